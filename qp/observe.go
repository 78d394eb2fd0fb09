package qp

import (
	"time"

	"github.com/goroce/roce/bth"
)

// Incidents count what is rare on one queue pair. The counters of the same names in [Counters] are those
// of all queue pairs of a shard; these are few, so that a packet without an incident counts nothing here.
// They are 32 bits that wrap.
type Incidents struct {
	Retransmitted uint32 // request packets sent again
	Timeouts      uint32 // ACK timers that expired
	NAKsSent      uint32 // sequence NAKs and NAKs 0x61–0x63
	NAKsReceived  uint32
	RNRsSent      uint32 // receiver-not-ready NAKs
	RNRsReceived  uint32
	Marked        uint32 // packets that a switch marked: Congestion Experienced
	CNPsSent      uint32
	CNPsReceived  uint32
}

// Observation is the state of a queue pair as somebody sees it who watches it. It is made of what the
// engine keeps for itself. How many packets pass is the difference of the PSNs of two observations.
type Observation struct {
	Num       bth.QPN
	Type      Type
	State     State
	DestQPN   bth.QPN // zero for a datagram queue pair
	Own, Peer bth.GID // zero before there is a path, and for a datagram queue pair

	// Sent is the first PSN that has not been used yet; READs use one for each response. Expected is the
	// PSN that the next request of the peer has, and Messages how many messages the peer has completed,
	// 24 bits that wrap.
	Sent, Expected bth.PSN
	Messages       bth.MSN

	InFlight, Window int           // packets that are not acknowledged, and how many may be
	Posted           int           // work requests in the send queue
	RTT, RTTVar      time.Duration // smoothed round trip and its mean deviation (RFC 6298); 0: none measured
	Rate             Rate          // that congestion control allows; 0: not limited
	Incidents
}

// incidents returns what counts those of the queue pair: most have none, and no memory for them.
func (q *QP) incidents() *Incidents {
	if q.rare == nil {
		q.rare = new(Incidents)
	}
	return q.rare
}

// Observe returns the state of the queue pair. It changes nothing.
func (q *QP) Observe() Observation {
	r, s := &q.requester, &q.responder
	o := Observation{
		Num: q.num, Type: q.typ, State: q.state, DestQPN: q.destQPN, Own: q.ownGID, Peer: q.peerGID,
		Sent: r.max, Expected: s.expect, Messages: s.msn,
		InFlight: int(max(r.max.Sub(r.acked), 0)), Window: int(r.window), Posted: int(q.sq.tail - q.sq.head),
		RTT: r.srtt, RTTVar: r.rttvar,
	}
	if q.rare != nil {
		o.Incidents = *q.rare
	}
	if q.cc != nil && q.cc.limited {
		o.Rate = q.cc.rate
	}
	return o
}
