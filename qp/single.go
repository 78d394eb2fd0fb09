package qp

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mono"
)

// Single repairs: a requester sends a missing request alone to a peer that holds what came
// behind it.
//
// Nothing on the wire says whether a peer holds, so the requester finds out. When the first
// NAK comes, it sends the missing request alone, with AckReq, and nothing new. If the answer
// reaches beyond that request, the peer has held the others. If it does not, or there is none
// within a round trip, the peer has dropped them: the requester goes back, and tries again
// after some more losses.
//
// To a peer that holds, a NAK costs one packet. The window stays as it is, new requests are sent, and no retry is
// spent. The ACK timer, which only progress starts anew, bounds the repetitions. When it expires, and after any
// unusual event, the requester goes back.

// holding is what a requester knows about how its peer treats requests behind a missing one.
type holding uint8

const (
	unknown holding = iota
	trial           // a request was sent alone to find out
	holds
	drops
)

// Limits of single repairs.
const (
	firstTrial = 4    // losses until the next trial, doubled each time
	lastTrial  = 1024 // up to this
	maxSteps   = 3    // repairs in a row after which the peer missed the very next request: it does not hold
	maxRepeats = 4    // the wait doubles so many times

	// A trial waits for so many times as long as a repair. The round trip was measured while little was in flight. If
	// a trial ends too soon, a peer that holds counts as one that drops, and each of the next losses costs a window.
	trialPatience = 2
)

// single is the state of single repairs: the kind of peer, and the request that was sent again alone.
type single struct {
	peer   holding
	losses uint16 // until the next trial
	next   uint16 // losses until the one after it

	on         bool    // sent, or due, and not answered
	due        bool    // to be sent
	psn, end   bth.PSN // the request, and one beyond it
	max        bth.PSN // requester.max when the request was sent
	tries      uint8
	steps      uint8
	seen       bth.PSN // the oldest request that was not acknowledged then, or when the wait began anew
	sent       mono.Time
	wakeAt     mono.Time     // when to send it again, or to look for the next
	rtt, dev   time.Duration // smoothed time to the answer
	twice      bth.PSN       // outstanding requests before it may have been sent more than once
	twiceValid bool          // there are such requests
	repeat     bth.PSN       // outstanding READs before it may have been requested again, by a repair or a probe
	repeatOpen bool          // there are such READs
}

// repairsSingly begins or continues a single repair of the missing request h, and returns true. It returns false if
// no single repair is possible.
func (q *QP) repairsSingly(now mono.Time, h bth.PSN) bool {
	r := &q.requester
	s := r.single
	if q.repair == nil || !q.repair.single || r.retryCnt == 0 || r.timeout == 0 || r.ackDeadline == mono.Never || !h.Less(r.max) {
		return false
	}
	i := q.holder(h)
	if i == q.sq.tail {
		return false
	}
	w := q.sq.at(i)
	if w.fail || w.kind == kindFlush && q.flushQuirk {
		return false
	}
	end := h.Add(1)
	if w.kind == kindRead {
		end = min24(w.last.Add(1), q.original(w, h).Add(int(q.readPSNs)))
	}
	if s.peer == unknown || s.peer == drops {
		if s.losses > 0 || r.next != r.max || s.twiceValid && h.Less(s.twice) || end == r.max {
			return false
		}
		s.peer = trial
	} else if s.on && s.psn == h && !s.due {
		if now.Sub(s.sent) <= s.rtt || s.peer == trial && now.Before(s.wakeAt) {
			return true // a copy of the NAK, or the peer sent it before the request arrived
		}
		if s.peer == trial {
			q.singleFailed(now)
			return true
		}
	} else if r.next != r.max && r.next.Less(h.Add(1)) {
		return false // the requester has gone back to it
	}
	if !s.on || s.psn != h {
		s.tries = 0
	}
	s.on, s.due, s.psn, s.end = true, true, h, end
	r.repairing, r.timing = true, false
	r.late = false
	r.lost(now) // narrow the window: a peer holds no more than the usual one
	return true
}

// nakSingly handles a sequence NAK for h by a single repair, if it can. missing: answers before h
// are missing here.
func (q *QP) nakSingly(now mono.Time, h bth.PSN, missing bool) bool {
	if missing {
		if !q.repairs() {
			return false
		}
		q.noteExecuted(now, h)
	}
	if s := q.requester.single; s.isOn() {
		if q.singleAnswered(now, aNAK); q.requester.next.Less(q.requester.max) {
			return true // it has gone back
		}
	}
	return q.repairsSingly(now, h)
}

// min24 returns the lesser of two PSNs.
func min24(a, b bth.PSN) bth.PSN {
	if b.Less(a) {
		return b
	}
	return a
}

// emitSingle sends only the missing request. Transmission then goes on where it was.
func (q *QP) emitSingle(now mono.Time, sink frame.Sink) emission {
	r := &q.requester
	s := r.single
	i := q.holder(s.psn)
	if i == q.sq.tail || s.psn.Less(r.acked) || q.sq.at(i).fail {
		s.stop()
		return idle
	}
	w := q.sq.at(i)
	next, cur, reads, probe := r.next, q.sq.cur, r.reads, r.probe
	r.next, q.sq.cur, r.reads, r.probe, r.noAckReq = s.psn, i, 0, true, false
	var res emission
	switch info := &opTable[w.op]; w.kind {
	case kindSend:
		res = q.emitSend(sink, w, info)
	case kindRead:
		off := uint32(s.psn.Sub(w.first)) * q.mtu
		res = q.emitRead(sink, w, off, min(w.length-off, uint32(s.end.Sub(s.psn))*q.mtu))
	case kindAtomic:
		res = q.emitAtomic(sink, w, info)
	case kindFlush:
		res = q.emitFlush(sink, w, info)
	case kindAtomicWrite:
		res = q.emitAtomicWrite(sink, w, info)
	}
	if q.state == Err {
		return res
	}
	r.next, q.sq.cur, r.reads, r.probe = next, cur, reads, probe
	switch res {
	case emitted:
		q.repaired(&q.cnt.SingleRepairs)
		if w.kind == kindRead {
			s.repeatsRead(s.end)
		}
		s.due, s.sent, s.max, s.seen = false, now, r.max, r.acked
		s.wakeAt = now.Add(r.singleWait() << min(s.tries, maxRepeats))
		s.tries = min(s.tries+1, maxRepeats+1)
	case idle:
		s.stop()
	}
	return res
}

// singleWait returns how long a requester waits for the answer to a single request.
func (r *requester) singleWait() (wait time.Duration) {
	rtt, dev := r.single.rtt, r.single.dev
	if rtt == 0 {
		rtt, dev = r.srtt, r.rttvar
	}
	if wait = firstProbe; rtt > 0 {
		wait = max(rtt+2*dev, rtt*5/4, minAskWait)
	}
	if r.single.peer == trial {
		wait *= trialPatience
	}
	return wait
}

// knownToHold reports whether the peer holds what comes behind a missing request.
func (s *single) knownToHold() bool { return s != nil && s.peer == holds }

// isOn reports whether a request was sent, or is due, and not answered. It is false for queue pairs that go back.
func (s *single) isOn() bool { return s != nil && s.on }

// watchesAnswers reports whether singleAnswered has to see each answer.
func (s *single) watchesAnswers() bool { return s != nil && (s.on || s.twiceValid || s.repeatOpen) }

// repeatsRead notes that the READ requests before end were sent again: the peer may answer them twice.
func (s *single) repeatsRead(end bth.PSN) {
	if s != nil && (!s.repeatOpen || s.repeat.Less(end)) {
		s.repeat, s.repeatOpen = end, true
	}
}

// answersTwice reports whether two responses psn may come although the network duplicates nothing, and no part was
// asked for: the original request was sent more than once.
func (s *single) answersTwice(psn bth.PSN) bool {
	return s != nil && (s.twiceValid && psn.Less(s.twice) || s.repeatOpen && psn.Less(s.repeat))
}

// stop ends the repair in progress.
func (s *single) stop() {
	if s == nil {
		return
	}
	s.on, s.due, s.tries, s.wakeAt = false, false, 0, mono.Never
}

// goesBack notes that the requester goes back: everything is sent again.
func (s *single) goesBack(max bth.PSN) {
	if s == nil {
		return
	}
	if s.peer == trial {
		s.peer = drops
		s.backOff()
	} else if s.losses > 0 {
		s.losses--
	}
	s.steps = 0
	s.twice, s.twiceValid = max, true
	s.stop()
}

// backOff sets when the next trial is.
func (s *single) backOff() {
	s.next = min(max(s.next*2, firstTrial), lastTrial)
	s.losses = s.next
}

// singleFailed goes back because the peer does not hold.
func (q *QP) singleFailed(now mono.Time) {
	s := q.requester.single
	if s.peer != trial {
		s.peer = drops
		s.backOff()
	}
	if r := &q.requester; r.recovering { // a retry was used already, and retry does nothing before progress
		q.goBack()
		r.wentBack(now, true)
		q.noteAnswer(now)
		return
	}
	q.retry(now)
}

// standing is the kind of an answer, which decides what it says about the progress of the peer.
type standing uint8

const (
	aResponse standing = iota // answers one request; answers to others may be in flight
	anACK                     // has the PSN of the latest request that the peer has executed
	aNAK                      // has the PSN of the request that the peer misses
)

// standing returns what kind of answer a packet is.
func (q *QP) standing(p *frame.Packet) standing {
	switch {
	case p.Op&^q.base != bth.RCAck:
		return aResponse
	case p.Syndrome().Kind() == bth.KindACK:
		return anACK
	}
	return aNAK
}

// executed returns the first PSN that the peer may not have executed.
func (q *QP) executed() bth.PSN {
	r := &q.requester
	if e := r.missing; e != nil && r.acked.Less(e.known) {
		return e.known
	}
	return r.acked
}

// singleAnswered decides about a repair in progress after an answer.
func (q *QP) singleAnswered(now mono.Time, by standing) {
	r := &q.requester
	s := r.single
	if s.twiceValid && !r.acked.Less(s.twice) {
		s.twiceValid = false // none of these requests is outstanding; later the PSN would wrap and seem to be ahead
	}
	if s.repeatOpen && !r.acked.Less(s.repeat) {
		s.repeatOpen = false
	}
	done := q.executed()
	if !s.on || done.Less(s.end) {
		return
	}
	if s.due { // the request was only late
		s.stop()
		return
	}
	stepped := done == s.end && done != s.max
	if stepped && (by == aResponse || by == aNAK && s.peer == trial) {
		return // the deadline decides, unless the answer to a later request comes before
	}
	if s.tries == 1 {
		s.measure(now.Sub(s.sent))
	}
	switch {
	case s.peer == trial && s.end.Less(done):
		s.peer, s.next, s.losses = holds, 0, 0
	case s.peer == trial && stepped:
		q.singleFailed(now)
		return
	case s.peer == trial:
		s.peer = unknown
	case stepped:
		if q.steps(now) {
			return
		}
	default:
		s.steps = 0
	}
	s.stop()
	if done.Less(s.max) && s.peer == holds {
		s.seen, s.wakeAt = r.acked, now.Add(r.singleWait()) // the NAK for the next missing request may be lost
	}
}

// steps counts a repair after which the peer missed the very next request. After some of these in a row the peer does
// not hold: steps goes back and returns true.
func (q *QP) steps(now mono.Time) (failed bool) {
	s := q.requester.single
	if s.steps++; s.steps < maxSteps {
		return false
	}
	q.singleFailed(now)
	return true
}

// measure notes how long the answer to a request took that was sent alone once.
func (s *single) measure(took time.Duration) {
	if s.rtt == 0 {
		s.rtt, s.dev = took, took/2
		return
	}
	dev := took - s.rtt
	s.rtt += dev / 8
	s.dev += (max(dev, -dev) - s.dev) / 4
}

// singleTimeout handles the deadline of a repair.
func (q *QP) singleTimeout(now mono.Time) {
	r := &q.requester
	s := r.single
	s.wakeAt = mono.Never
	done, awaited := q.executed(), s.max
	if s.on {
		awaited = s.end
	}
	switch {
	case q.state != RTS && q.state != SQD || !r.acked.Less(r.max) || r.rnrDeadline != mono.Never:
		s.stop()
	case s.seen != r.acked && done.Less(awaited): // the peer still answers requests before it
		s.seen, s.wakeAt = r.acked, now.Add(r.singleWait())
	case s.peer == trial:
		q.singleFailed(now)
	case s.on && done.Less(s.end):
		s.due = true
	case s.on && q.steps(now):
	case r.next == r.max && done.Less(s.max) && q.repairsSingly(now, done):
	default:
		s.stop()
	}
}
