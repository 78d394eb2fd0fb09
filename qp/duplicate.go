package qp

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mr"
)

// saved is what a responder remembers of a READ or atomic, to answer it again.
type saved struct {
	first, last bth.PSN
	atomic      bool
	valid       bool
	key         bth.RKey
	length      uint32
	va          uint64
	value       uint64 // atomic: the old value; it is never executed twice
	pd          *mr.PD // READ: domain of the memory
}

// savedRing keeps the latest READs and atomics, as many as the peer may have
// outstanding.
type savedRing struct {
	ring[saved]
	next uint32 // and as many before it as there are slots
}

// resize makes it a ring of n that keeps the latest of what it has: the peer may repeat
// a request that was executed before.
func (r *savedRing) resize(n int) {
	old := *r
	*r = savedRing{ring: newRing[saved](n)}
	for i := uint32(min(len(old.slots), r.limit)); i > 0; i-- {
		if s := old.at(old.next - i); s.valid {
			*r.put() = *s
		}
	}
}

func (r *savedRing) clear() {
	clear(r.slots)
	r.next = 0
}

// put returns the place of the next READ or atomic, to be filled in entirely. It holds
// the one that is forgotten for it.
func (r *savedRing) put() *saved {
	if n := len(r.slots); n < r.limit && r.next >= uint32(n) {
		r.grow(r.next - uint32(n))
	}
	r.next++
	return r.at(r.next - 1)
}

// find returns the READ or atomic that psn belongs to, the latest first: PSNs
// come again, and an old entry may still be there.
func (r *savedRing) find(psn bth.PSN) *saved {
	for i := range uint32(len(r.slots)) {
		s := r.at(r.next - 1 - i)
		if s.valid && !psn.Less(s.first) && !s.last.Less(psn) {
			return s
		}
	}
	return nil
}

// handleDuplicate answers a request that was executed already (IBTA 9.7.5.1.2
// and 9.7.5.3): SENDs and WRITEs are acknowledged again but not executed,
// READs read memory again, atomics return the saved result.
//
// The answer of a READ or atomic goes before those to later requests that are
// still due. The requester that goes back for it takes none of them before, and
// asks for them again, too; a READ in progress behind it may never end otherwise.
//
// A SEND or WRITE packet is acknowledged only if it asks. rxe does so always,
// and must not be answered like that: an acknowledgement of a message that it
// is still repeating makes an rxe requester forget to run its timer, and if
// the next one is lost it waits for ever. Nor does the acknowledgement name the
// PSN of a READ or atomic: rxe takes that for its answer and completes it
// without data.
func (q *QP) handleDuplicate(p *frame.Packet, psn bth.PSN) {
	q.cnt.DuplicateRequest++
	s := &q.responder
	f := p.Info.Flags
	if f&(bth.Flush|bth.AtomicWrite) != 0 {
		q.repeatPlaced(p, psn)
		return
	}
	if f&(bth.Read|bth.Atomic) == 0 {
		if p.AckReq() {
			q.acknowledge(s.acked)
		}
		return
	}
	r := s.saved.find(psn)
	if r == nil || r.atomic != (f&bth.Atomic != 0) || s.answers.full() {
		q.cnt.DupDropped++
		return
	}
	if r.atomic {
		s.answers.insert(answer{kind: answerAtomic, psn: psn, msn: s.msn, value: r.value})
		return
	}
	// The repeated READ must lie inside the original one: same key, same
	// memory at the same PSN, not beyond its end.
	off := uint64(psn.Sub(r.first)) * uint64(q.mtu)
	n := p.DMALen()
	if p.RKey() != r.key || p.VA() != r.va+off || off+uint64(n) > uint64(r.length) || (n == 0) != (r.length == 0) ||
		!q.sameTarget(p, r) {
		q.cnt.DupDropped++
		return
	}
	if q.readPending(psn) {
		return
	}
	again := answer{kind: answerRead, repeated: true, psn: psn, last: psn.Add(packetsFor(n, q.mtu) - 1), msn: s.msn,
		va: p.VA(), key: r.key, length: n, pd: r.pd}
	if !q.rewind(&again) {
		s.answers.insert(again)
	}
}

// rewind takes the answer of a READ that is being sent back to an earlier
// response, if everything from there on is asked for again. What is left of it
// would be sent for nothing: a requester that goes back takes only what comes in
// order.
func (q *QP) rewind(again *answer) bool {
	s := &q.responder
	for i := s.answers.head; i != s.answers.tail; i++ {
		if a := s.answers.at(i); a.kind == answerRead && a.last == again.last && again.psn.Less(a.psn) {
			*a = *again
			return true
		}
	}
	return false
}

// readPending reports whether the response psn is still going to be sent by an
// answer in the queue; a copy of the request then changes nothing.
func (q *QP) readPending(psn bth.PSN) bool {
	s := &q.responder
	for i := s.answers.head; i != s.answers.tail; i++ {
		if a := s.answers.at(i); a.kind == answerRead && !psn.Less(a.psn) && !a.last.Less(psn) {
			return true
		}
	}
	return false
}
