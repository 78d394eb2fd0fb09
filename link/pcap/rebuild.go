package pcap

import (
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// rebuilder adds headers to frames without headers.
type rebuilder struct {
	env    frame.Envelope // the envelope of path
	path   *frame.Path
	packet frame.Packet
	room   []byte
}

// frame returns the frame with its headers, valid until the next call.
func (r *rebuilder) frame(f *link.Frame, l frame.Layout) []byte {
	e := *f.Env
	id := e.ID + f.Segment
	if (!e.IDSeen || e.IDMerged && f.Segment > 0) && f.Parse(&r.packet, frame.LayoutUDP) == nil {
		if solved, ok := r.packet.RecoverIPv4ID(); ok || !e.IDSeen {
			id = solved
		}
	}
	e.ID, e.IDSeen, e.IDMerged = 0, false, false // the path does not depend on them
	if r.path == nil || r.env != e {
		path, err := frame.NewPath(frame.PathConfig{Src: e.Src, Dst: e.Dst, SrcMAC: e.SrcMAC, DstMAC: e.DstMAC, VLAN: e.VLAN,
			SrcPort: e.SrcPort, TrafficClass: e.TrafficClass, HopLimit: e.HopLimit, FlowLabel: e.FlowLabel})
		if err != nil {
			return f.Data // without a path the frame is shown as it is
		}
		r.path, r.env = path, e
	}
	n := r.path.HeaderLen(l) + len(f.Data)
	if cap(r.room) < n {
		r.room = make([]byte, n)
	}
	r.room = r.room[:n]
	body, _ := r.path.Put(r.room, l, len(f.Data), id)
	copy(body, f.Data)
	return r.room
}
