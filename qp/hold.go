package qp

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mono"
)

// Holding: a responder keeps requests that come before their turn.
//
// The standard lets a responder drop every request behind a missing one. A responder that holds copies them instead,
// by PSN, and executes them in their order when the missing one has come. execute handles held requests like all
// others, so keys, rights, receives and exactly-once execution need no rules of their own. A requester that goes back
// notices nothing: it gets acknowledgements for the requests that it sends again, as for any duplicate. A requester
// that has found out that its peer holds sends only the missing request: see single.go.
//
// These events end the hold: a refused request, a missing receive, a gap that stays open for too long, ERR and RESET.
// The responder then drops the held requests, as the standard allows.
//
// A program may connect a queue pair again that was connected before, with the same PSNs, while packets of the old
// connection are still on their way. They arrive before those of the new connection. So a queue pair that was connected
// before holds nothing until it has executed a request of the present connection, and its requester keeps no early
// response, and does not rely on what an acknowledgement says about requests behind a READ, until there was an answer.
//
// A responder begins a hold only if there is room for a whole window. Holding a part of a window is worse than
// holding nothing: the requests that were dropped are found missing one by one.

// Limits of a hold.
const (
	holdSlots    = 256            // PSNs behind the missing one
	holdBytes    = 288 << 10      // room for DefaultWindowBytes of packets of any size
	holdOverhead = 96             // of a block: the longest headers, and the ICRC
	holdLimit    = 4 * firstProbe // for how long a gap may stay open
)

// DefaultHoldBudget is how many bytes the queue pairs of an owner hold at most.
const DefaultHoldBudget = 4 << 20

// hold is a gap in the requests of a peer, and the requests that came behind it.
type hold struct {
	low   bth.PSN           // the missing request: the responder's expect
	slots [holdSlots]uint16 // by PSN: 1 + block of the request, 0: none
	sizes [holdSlots]uint16 // by block
	free  [holdSlots]uint16 // stack of free blocks
	nfree int
	held  int
	block int  // bytes of a block
	asked bool // a NAK was sent since the hold began
	mem   []byte

	gap
}

// blocksFor returns how many blocks a hold has, and their size, for a path MTU.
func blocksFor(mtu uint32) (n, size int) {
	size = int(mtu) + holdOverhead
	return min(holdSlots, holdBytes/size), size
}

// lend returns an empty hold for packets of a path MTU, or nil if the budget is used up.
func (r *Repair) lend(mtu uint32) *hold {
	n, size := blocksFor(mtu)
	for i := len(r.holds) - 1; i >= 0; i-- {
		if h := r.holds[i]; h.block == size {
			last := len(r.holds) - 1
			r.holds[i], r.holds[last] = r.holds[last], nil
			r.holds = r.holds[:last]
			return h
		}
	}
	for len(r.holds) > 0 && r.made+n*size > r.budget { // free unused holds of other sizes
		last := len(r.holds) - 1
		r.made -= len(r.holds[last].mem)
		r.holds[last] = nil
		r.holds = r.holds[:last]
	}
	if r.made+n*size > r.budget {
		return nil
	}
	r.made += n * size
	h := &hold{block: size, mem: make([]byte, n*size), nfree: n}
	for i := range n {
		h.free[i] = uint16(i)
	}
	return h
}

// giveBack returns a hold to the pool.
func (r *Repair) giveBack(h *hold) {
	for i, b := range h.slots {
		if b != 0 {
			h.release(bth.PSN(i))
		}
	}
	h.gap, h.asked = gap{}, false
	r.holds = append(r.holds, h)
}

// put copies a request that is not held yet. It reports false if there is no room.
func (h *hold) put(psn bth.PSN, data []byte) bool {
	if h.nfree == 0 || len(data) > h.block {
		return false
	}
	h.nfree--
	b := h.free[h.nfree]
	h.slots[psn%holdSlots], h.sizes[b] = b+1, uint16(len(data))
	copy(h.mem[int(b)*h.block:], data)
	h.held++
	return true
}

// at returns the request with a PSN, or nil.
func (h *hold) at(psn bth.PSN) []byte {
	b := h.slots[psn%holdSlots]
	if b == 0 {
		return nil
	}
	b--
	return h.mem[int(b)*h.block:][:h.sizes[b]]
}

// release frees the slot of a PSN.
func (h *hold) release(psn bth.PSN) {
	if b := h.slots[psn%holdSlots]; b != 0 {
		h.slots[psn%holdSlots] = 0
		h.free[h.nfree] = b - 1
		h.nfree++
		h.held--
	}
}

// advance frees the slots of all PSNs before expect.
func (h *hold) advance(expect bth.PSN) {
	n := expect.Sub(h.low)
	if n < 0 || n > holdSlots { // the longest READ has half of all PSNs
		n = holdSlots
	}
	for ; n > 0; n-- {
		h.release(expect.Add(int(-n)))
	}
	h.low = expect
}

// mayHold reports whether a request d PSNs behind the missing one can be held.
func (q *QP) mayHold(d int32) bool {
	s := &q.responder
	if q.repair == nil || d >= holdSlots {
		return false
	}
	if s.hold != nil {
		return true
	}
	if s.nakSent || q.repair.budget == 0 || q.reused && s.expect == s.learnt.first {
		return false
	}
	if s.hold = q.repair.lend(q.mtu); s.hold == nil {
		q.cnt.HoldRefused++
		return false
	}
	s.hold.low, s.repairing = s.expect, true
	return true
}

// handleAhead handles a request d PSNs behind the missing one, if it can be held.
func (q *QP) handleAhead(now mono.Time, p *frame.Packet, psn bth.PSN, d int32) bool {
	if !q.mayHold(d) {
		return false
	}
	h := q.responder.hold
	again := h.at(psn) != nil
	if l := q.responder.learnt; !again && p.Info.Flags&bth.Read != 0 && l.score <= -maxScore && l.nakDelay == 0 {
		// A peer that goes back asks again for everything: it would get all responses twice. If the missing request may
		// only be late, there may be no NAK, and then the peer does not go back.
		again = psn.Less(h.top)
	} else if !again {
		if !h.put(psn, p.Data) {
			q.cnt.HoldRefused++
			q.dropHold()
			return false
		}
		q.cnt.HeldRequests++
	}
	q.sawAhead(now, p, psn, again)
	return true
}

// dropHold ends a hold without executing what it has. The gap stays.
func (q *QP) dropHold() {
	s := &q.responder
	if s.hold != nil {
		q.repair.giveBack(s.hold)
		s.hold, s.gapDue = nil, mono.Never
	}
}

// endHold is dropHold for ERR and RESET: the responder waits for nothing any more.
func (q *QP) endHold() {
	q.dropHold()
	s := &q.responder
	if s.withheld {
		s.nameEnd()
	}
	if s.learnt != nil {
		s.learnt.repetition, s.gapDue = repetition{}, mono.Never
	}
}

// executeAndDrain executes the request with the expected PSN, and then the held requests that follow it.
func (q *QP) executeAndDrain(now mono.Time, p *frame.Packet) {
	s := &q.responder
	if s.withheld {
		s.nameEnd()
	}
	psn, msn, l := p.PSN(), s.msn, s.learnt
	mayGoBack := l.asked && l.score <= 0
	if l.judge {
		q.judge(psn, false)
	}
	if v := q.execute(p); v != proceed {
		q.dropHold()
		q.refuse(v, psn)
	} else if l.long = endsLong(p.Info.Flags); s.hold != nil {
		q.drain(now, p)
	} else if mayGoBack && l.long {
		q.withholdEnd(psn, msn)
	}
	if l.mayRepeat {
		s.executedNext(now)
	}
	s.repairing = s.hold != nil || s.withheld || l.judge || l.mayRepeat
}

// drain executes the held requests that follow the missing one, p.
func (q *QP) drain(now mono.Time, p *frame.Packet) {
	s := &q.responder
	h := s.hold
	filled := h.low
	h.advance(s.expect)
	for s.hold != nil {
		data := h.at(s.expect)
		if data == nil {
			break
		}
		held := &q.repair.packet
		if held.Packet.Parse(data) != nil { // never: it was parsed before
			q.dropHold()
			return
		}
		if s.withheld {
			s.nameEnd() // the peer has sent a later one
		}
		psn, msn, acked := s.expect, s.msn, s.acked
		if v := q.execute(held); v != proceed {
			q.dropHold()
			q.refuse(v, psn)
			return
		}
		if s.hold == nil {
			return // executing it has failed the queue pair
		}
		s.learnt.long = endsLong(held.Info.Flags)
		if s.acked != acked && h.asked && s.learnt.long {
			q.withholdEnd(psn, msn)
		}
		h.advance(s.expect)
	}
	q.filledGap(now, p, filled)
}

// The responder does not acknowledge the end of a message of several packets that the requester
// may be about to repeat because of a NAK: ackagain.go says why. An acknowledgement that would name
// the last packet of such a message names the one before, until the peer sends that packet again
// or a later one, or falls silent.
//
// If the missing request was lost, that concerns messages whose end was held. If it was only late,
// it concerns messages whose end arrives behind it in its order, too: the requester has sent these
// for the first time, and goes back later. The responder tells the two apart by the repetitions: a
// requester that goes back repeats what was held, and everything that it sends after that is
// part of the repetition.
//
// Without a NAK the requester does not go back, and nothing is withheld.

// withholdEnd notes that psn must not be acknowledged yet: it is the end of a message that was executed. msn is the
// number of messages before it. If the peer has sent so much since the last NAK that it repeats nothing because of it,
// withholdEnd does nothing: then no timer would end the wait, either.
func (q *QP) withholdEnd(psn bth.PSN, msn bth.MSN) {
	s := &q.responder
	if l := s.learnt; !l.mayRepeat || !psn.Less(l.until) {
		return
	}
	s.withheld, s.acked = true, psn.Add(-1)
	if t := s.answers.lastAck(); t != nil && t.psn == psn {
		t.psn, t.msn = s.acked, msn
	}
}

// nameEnd allows acknowledgements of the PSN that withholdEnd withheld.
func (s *responder) nameEnd() {
	s.withheld = false
	s.acked = s.acked.Add(1)
}

// ackMSN returns the message sequence number of an acknowledgement of acked.
func (s *responder) ackMSN() bth.MSN {
	if s.withheld {
		return s.msn.Add(-1)
	}
	return s.msn
}
