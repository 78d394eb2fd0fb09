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
	// 24 bits that wrap. A datagram is a message.
	Sent, Expected bth.PSN
	Messages       bth.MSN

	// SentBytes and ReceivedBytes are payload: of SENDs, WRITEs and ATOMIC_WRITEs, and of READs in the other direction. Bytes
	// that are sent again do not count, nor headers. Those of a READ of the peer count when its responses leave, all others
	// that are sent when they are acknowledged.
	SentBytes, ReceivedBytes uint64

	InFlight, Window int           // packets that are not acknowledged, and how many may be
	Posted           int           // work requests in the send queue
	RTT, RTTVar      time.Duration // smoothed round trip and its mean deviation (RFC 6298); 0: none measured
	Rate             Rate          // that congestion control allows; 0: not limited
	Incidents
}

// rarities is what a queue pair has memory for only when something rare has happened: most have none.
type rarities struct {
	incidents Incidents
	before    beforeTimeout // if requester.late
}

func (q *QP) rarities() *rarities {
	if q.rare == nil {
		q.rare = new(rarities)
	}
	return q.rare
}

// incidents returns what counts the incidents of the queue pair.
func (q *QP) incidents() *Incidents { return &q.rarities().incidents }

// Observe returns the state of the queue pair. It changes nothing.
func (q *QP) Observe() Observation {
	r, s := &q.requester, &q.responder
	o := Observation{
		Num: q.num, Type: q.typ, State: q.state, DestQPN: q.destQPN, Own: q.ownGID, Peer: q.peerGID,
		Sent: r.max, Expected: s.expect, Messages: s.msn,
		InFlight: int(max(r.max.Sub(r.acked), 0)), Window: int(r.window), Posted: int(q.sq.tail - q.sq.head),
		RTT: r.srtt, RTTVar: r.rttvar,
	}
	o.SentBytes, o.ReceivedBytes = q.bytes()
	if q.rare != nil {
		o.Incidents = q.rare.incidents
	}
	if q.cc != nil && q.cc.limited {
		o.Rate = q.cc.rate
	}
	return o
}

// bytes returns the payload sent and received. Messages are counted as a whole, when they are posted or completed, so that a packet
// counts nothing. What is left to do of those in progress is found here.
func (q *QP) bytes() (sent, received uint64) {
	r, s := &q.requester, &q.responder
	sent, received = r.sendBytes+s.served, r.readBytes+s.taken
	for i := q.sq.head; i != q.sq.tail; i++ {
		send, read := q.left(q.sq.at(i))
		sent, received = sent-send, received-read
	}
	for i := s.answers.head; i != s.answers.tail; i++ {
		if a := s.answers.at(i); a.kind == answerRead && !a.repeated {
			sent -= uint64(a.length)
		}
	}
	switch s.in {
	case sendMessage:
		received += uint64(s.received)
	case writeMessage:
		received += uint64(s.writeLen - s.writeLeft)
	}
	return sent, received
}

// left returns how many bytes of a work request in the queue are still to be acknowledged, or to be read.
func (q *QP) left(w *sendWQE) (send, read uint64) {
	n := uint64(w.length)
	if done := q.requester.acked.Sub(w.first); done > 0 {
		n -= min(n, uint64(done)*uint64(q.mtu))
	}
	switch w.kind {
	case kindSend, kindAtomicWrite:
		return n, 0
	case kindRead:
		return 0, n
	}
	return 0, 0
}

// uncount takes from the counts what a work request will not send or read any more: it has failed.
func (q *QP) uncount(w *sendWQE) {
	send, read := q.left(w)
	q.requester.sendBytes -= send
	q.requester.readBytes -= read
}
