package qp

import (
	"time"

	"github.com/goroce/roce/bth"
)

// Incidents count rare events of one queue pair. [Counters] has counters of the same events for all queue pairs of a
// shard. A packet without a rare event changes no counter here. The counters have 32 bits and wrap.
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

// Observation is a snapshot of a queue pair for monitoring. It needs no state beyond that which the engine keeps
// anyway. The difference of the PSNs of two observations is the number of packets between them.
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

	// SentBytes and ReceivedBytes count the payload of SENDs, WRITEs and ATOMIC_WRITEs, and of READs in the opposite
	// direction. Headers and repeated bytes do not count. The bytes of a READ of the peer count as sent when the
	// response leaves, all other bytes when they are acknowledged.
	SentBytes, ReceivedBytes uint64

	InFlight, Window int           // packets that are not acknowledged, and how many may be
	Posted           int           // work requests in the send queue
	RTT, RTTVar      time.Duration // smoothed round trip and its mean deviation (RFC 6298); 0: none measured
	Rate             Rate          // that congestion control allows; 0: not limited
	Incidents
}

// rarities has fields that most queue pairs never need. The first rare event allocates them.
type rarities struct {
	incidents Incidents
	before    beforeTimeout // if requester.late
	final     finalAck      // if QP.owes

	// The errors of full queues. Programs post until they get one, so each is allocated once.
	sendFull, recvFull error
}

func (q *QP) rarities() *rarities {
	if q.rare == nil {
		q.rare = new(rarities)
	}
	return q.rare
}

// incidents returns the incident counters of the queue pair.
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

// bytes returns the payload sent and received. The counters change once for each message, when it is posted or
// completed, not for each packet. So bytes subtracts the missing part of messages in progress.
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

// uncount subtracts the bytes that a failed work request will not send or read any more.
func (q *QP) uncount(w *sendWQE) {
	send, read := q.left(w)
	q.requester.sendBytes -= send
	q.requester.readBytes -= read
}
