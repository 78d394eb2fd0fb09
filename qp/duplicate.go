package qp

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mr"
)

// saved is what a responder keeps of a READ or atomic, to answer a duplicate of it.
type saved struct {
	first, last bth.PSN
	atomic      bool
	valid       bool
	key         bth.RKey
	length      uint32
	va          uint64
	value       uint64 // atomic: the old value; it is never executed twice. If length is not 0: its place in wideResults
	pd          *mr.PD // READ: domain of the memory
}

// savedRing keeps the latest READs and atomics, as many as the peer may have
// outstanding.
type savedRing struct {
	ring[saved]
	next uint32 // index of the next one; the ring holds as many before it as there are slots
}

// resize changes the size to n and keeps the latest entries: the peer may repeat a request
// that was executed before the change.
func (r *savedRing) resize(n int) {
	old := *r
	*r = savedRing{ring: newRing[saved](n)}
	for i := uint32(min(len(old.slots), r.cap())); i > 0; i-- {
		if s := old.at(old.next - i); s.valid {
			*r.put() = *s
		}
	}
}

func (r *savedRing) clear() {
	clear(r.slots)
	r.next = 0
}

// put returns the slot of the next READ or atomic. The caller sets every field: the slot
// holds an old entry, which is forgotten.
func (r *savedRing) put() *saved {
	if n := len(r.slots); n < r.cap() && r.next >= uint32(n) {
		r.grow(r.next - uint32(n))
	}
	r.next++
	return r.at(r.next - 1)
}

// find returns the READ or atomic that a PSN belongs to, or nil. It searches from the latest
// one: PSNs wrap, and an old entry with the same PSN may still be there.
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
// The responder sends the answer to a duplicate READ or atomic before the answers to later requests that are still
// due. A requester that goes back accepts those only after it, and repeats the later requests, too. In the other
// order a READ in progress behind the duplicate might never end.
//
// A duplicate SEND or WRITE packet is acknowledged only if it has AckReq. The rxe responder acknowledges always. An
// rxe requester must not be answered like that: an acknowledgement of a message that it is still retransmitting makes
// it stop its timer, and if the next acknowledgement is lost, it waits for ever. The acknowledgement does not name
// the PSN of a READ or atomic either: rxe takes that for its answer and completes it without data.
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
		s.answers.insert(answer{kind: answerAtomic, repeated: true, psn: psn, msn: s.msn, length: r.length, value: r.value})
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

// rewind sets a READ answer that is being sent back to an earlier response, if the requester asks for everything from
// there on again, and reports whether it did. It would not help to send the rest first: a requester that goes back
// accepts only responses in order.
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

// readPending reports whether an answer in the queue will still send the response psn. A
// duplicate of the request then changes nothing.
func (q *QP) readPending(psn bth.PSN) bool {
	s := &q.responder
	for i := s.answers.head; i != s.answers.tail; i++ {
		if a := s.answers.at(i); a.kind == answerRead && !psn.Less(a.psn) && !a.last.Less(psn) {
			return true
		}
	}
	return false
}
