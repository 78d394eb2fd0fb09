package share

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Report describes the activity of a process, for the list of processes on an address. A process of an
// older version leaves out fields that it does not know.
type Report struct {
	QueuePairs  int           `json:"queue_pairs"`
	Connections int           `json:"connections"`
	Services    []uint64      `json:"services"`
	Omitted     int           `json:"omitted,omitempty"` // number of services for which the message had no room
	TxPackets   uint64        `json:"tx_packets"`
	RxPackets   uint64        `json:"rx_packets"`
	Clock       time.Duration `json:"clock,omitempty"` // of the process, at the time of the report; 0: unknown

	// Queues are the queue pairs, if requested. QueuesOmitted is the number of those for which the
	// message had no room: unconnected ones are left out first, then those with the highest numbers.
	Queues        []QueuePair `json:"queues,omitempty"`
	QueuesOmitted int         `json:"queues_omitted,omitempty"`
}

// QueuePair is a queue pair of a process. Its JSON names are short, because a
// message has many queue pairs.
type QueuePair struct {
	QPN      uint32     `json:"n"`
	Type     string     `json:"t"`
	State    string     `json:"s"`
	DestQPN  uint32     `json:"d,omitempty"`
	Own      netip.Addr `json:"o,omitzero"`
	Peer     netip.Addr `json:"p,omitzero"`
	Sent     uint32     `json:"x,omitempty"` // PSN
	Expected uint32     `json:"r,omitempty"` // PSN
	Messages uint32     `json:"m,omitempty"` // MSN

	SentBytes     uint64 `json:"sb,omitempty"` // payload
	ReceivedBytes uint64 `json:"rb,omitempty"`

	InFlight  int           `json:"f,omitempty"`
	Window    int           `json:"w,omitempty"`
	Posted    int           `json:"q,omitempty"`
	RTT       time.Duration `json:"rtt,omitempty"`
	Rate      uint64        `json:"rate,omitempty"` // bit/s
	Incidents Incidents     `json:"i,omitzero"`
}

// Incidents count rare events of a queue pair. The counters wrap.
type Incidents struct {
	Retransmitted uint32 `json:"re,omitempty"`
	Timeouts      uint32 `json:"to,omitempty"`
	NAKsSent      uint32 `json:"ns,omitempty"`
	NAKsReceived  uint32 `json:"nr,omitempty"`
	RNRsSent      uint32 `json:"rs,omitempty"`
	RNRsReceived  uint32 `json:"rr,omitempty"`
	Marked        uint32 `json:"ce,omitempty"`
	CNPsSent      uint32 `json:"cs,omitempty"`
	CNPsReceived  uint32 `json:"cr,omitempty"`
}

// The numbers of services and of queue pairs, of all processes, for which one message has room. A
// message with queue pairs has room for fewer services.
const (
	maxListed         = 4000
	maxListedDetailed = 500
	maxQueues         = 214
)

// limit leaves out services and queue pairs beyond a number.
func (r *Report) limit(services, queues int) {
	if r == nil {
		return
	}
	if len(r.Services) > services {
		r.Omitted += len(r.Services) - services
		r.Services = r.Services[:services]
	}
	if len(r.Queues) > queues {
		slices.SortFunc(r.Queues, func(a, b QueuePair) int {
			return cmp.Or(connectedFirst(a)-connectedFirst(b), cmp.Compare(a.QPN, b.QPN))
		})
		r.QueuesOmitted += len(r.Queues) - queues
		r.Queues = r.Queues[:queues]
	}
}

func connectedFirst(q QueuePair) int {
	if q.Peer.IsValid() {
		return 0
	}
	return 1
}

// limitAll limits the reports of all members to the room of a message. Processes with few queue pairs
// keep all of theirs; the others share the rest evenly.
func limitAll(members []Member, detail bool) {
	services, room := maxListed/len(members), 0
	if detail {
		services, room = maxListedDetailed/len(members), maxQueues
	}
	var reports []*Report
	for i := range members {
		if r := members[i].Report; r != nil {
			reports = append(reports, r)
		}
	}
	slices.SortFunc(reports, func(a, b *Report) int { return cmp.Compare(len(a.Queues), len(b.Queues)) })
	for i, r := range reports {
		r.limit(services, room/(len(reports)-i))
		room -= len(r.Queues)
	}
}
