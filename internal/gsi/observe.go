package gsi

import (
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/qp"
)

// queues converts the states of queue pairs for a report.
func queues(all []qp.Observation) (list []share.QueuePair) {
	for _, o := range all {
		q := share.QueuePair{
			QPN: uint32(o.Num), Type: o.Type.String(), State: o.State.String(), DestQPN: uint32(o.DestQPN),
			Sent: uint32(o.Sent), Expected: uint32(o.Expected), Messages: uint32(o.Messages),
			SentBytes: o.SentBytes, ReceivedBytes: o.ReceivedBytes, InFlight: o.InFlight, Window: o.Window, Posted: o.Posted, RTT: o.RTT, Rate: uint64(o.Rate),
			Incidents: share.Incidents(o.Incidents),
		}
		if !o.Own.IsZero() {
			q.Own = o.Own.Addr()
		}
		if !o.Peer.IsZero() {
			q.Peer = o.Peer.Addr()
		}
		list = append(list, q)
	}
	return list
}
