package qp

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mono"
)

// Here a responder that holds requests decides when to send a NAK for the missing one.
//
// The responder sends the first NAK for a gap at once, and repeats it as a responder without a hold does. If another
// gap is behind a filled one, the next NAK depends on the peer. A peer that sends only missing requests needs it at
// once. A peer that goes back needs none, unless it stops sending: it is about to send that request anyway. The
// responder learns the kind of its peer from the requests that follow a gap.
//
// If the network reorders packets, a request that is late is not lost. nakDelay is 0 until a NAK proves premature. One
// proof is two copies of the request, the first one too soon after the NAK to be the answer to it. Often there is no
// second copy, because the late request is acknowledged before the peer answers the NAK. So a request without AckReq
// from a peer that sends only missing requests is another proof, unless the peer then repeats what is held: it has gone
// back.

// Limits of the NAKs of a responder that holds.
const (
	maxNAKDelay   = 500 * time.Microsecond // half of the shortest wait for a probe
	nakBehind     = 3 * holdSlots / 8      // with so many requests behind a gap, nakDelay no longer delays the NAK
	singleRepeats = 8                      // packets between NAKs to a peer that repairs singly
	maxScore      = 4
	silence       = 250 * time.Microsecond // after so long without a packet the peer has stopped sending
	copyWait      = 200 * time.Microsecond // for how long a second copy of a request is expected
)

// gap is the state of a gap: the missing request and the packets behind it.
type gap struct {
	noticed  mono.Time // when a request beyond it arrived
	fresh    bool      // it was noticed when it arose, not behind another gap
	naks     uint8     // NAKs sent for it
	nakTime  mono.Time // when the first was sent
	lastNAK  mono.Time // when the latest was sent
	openTill mono.Time // at this time the hold is dropped
	top      bth.PSN   // one beyond the newest request seen
	behind   int       // requests seen behind it since it was noticed
}

// peerHabits is what a responder has learnt from gaps about its peer and the network.
type peerHabits struct {
	first    bth.PSN       // of the connection
	score    int8          // more than 0: the peer sends only what is missing
	judge    bool          // the previous gap was filled after a NAK: the next request shows the kind of peer
	top      bth.PSN       // one beyond the newest request seen before it
	nakDelay time.Duration // a missing request counts as late, not as lost, for so long
	least    time.Duration // shortest time from a NAK to the answer to it; 0: none measured
	last     bth.PSN       // the request that filled the previous gap
	lastNAK  mono.Time     // when the first NAK for it was sent
	lastTook time.Duration // from that to the request
	lastLate time.Duration // from noticing the gap to the request
	lastOpen bool          // a second copy of it may come
	suspect  time.Duration // a request came so late without AckReq: late, or because the peer goes back; 0: none

	repetition
}

// sawAhead decides about a NAK when a request behind the gap has arrived; again: it was held
// already.
func (q *QP) sawAhead(now mono.Time, p *frame.Packet, psn bth.PSN, again bool) {
	s := &q.responder
	g := &s.hold.gap
	if g.openTill == 0 {
		*g = gap{noticed: now, fresh: true, openTill: now.Add(holdLimit), top: psn.Add(1)}
		s.gapDue = g.openTill
		s.nakSent, s.ahead, s.nakLeft = true, psn, nakRepeats
		q.copyLost(now)
		if s.learnt.nakDelay > 0 {
			s.gapDue = now.Add(s.learnt.nakDelay)
		} else {
			q.nakNewGap(now, psn)
		}
		return
	}
	q.judge(psn, again)
	if again {
		s.learnt.asked = false
	}
	// The peer has gone back, and skipped the request once more.
	back := again && psn.Less(s.ahead) || g.naks == 0 && !psn.Less(g.top)
	if again || s.ahead.Less(psn) {
		s.ahead = psn
	}
	if g.top.Less(psn.Add(1)) {
		g.top = psn.Add(1)
	}
	g.behind++
	if g.naks == 0 && s.learnt.nakDelay == 0 {
		s.gapDue = min(now.Add(silence), g.openTill) // the peer is sending; it may still send the missing request
	}
	repeat := int32(ackEvery)
	if s.learnt.score > 0 {
		repeat = singleRepeats
	}
	switch {
	case g.naks == 0 && s.learnt.nakDelay > 0:
		if g.behind >= nakBehind {
			q.nakGap(now, psn)
		}
	case back:
		s.nakLeft = nakRepeats
		q.nakGap(now, psn)
	case s.nakLeft > 0 && p.AckReq() && psn.Sub(s.nakAt) >= repeat:
		s.nakLeft--
		q.nakGap(now, psn)
	}
}

// nakGap sends a NAK for the missing request, when psn has arrived behind it.
func (q *QP) nakGap(now mono.Time, psn bth.PSN) {
	s := &q.responder
	g := &s.hold.gap
	s.hold.asked, s.learnt.asked = true, true
	q.expectRepetition(now, g.top)
	if g.naks == 0 {
		g.nakTime = now
	}
	if g.naks < 255 {
		g.naks++
	}
	s.nakAt, s.gapDue, g.lastNAK = psn, g.openTill, now
	if t := s.answers.lastAck(); t != nil {
		if s.learnt.score > 0 {
			s.answers.tail-- // the NAK acknowledges the same packets
			q.cnt.AckDeferred++
		} else if t.psn.Less(s.acked) {
			t.psn, t.msn = s.acked, s.ackMSN()
		}
	}
	q.queueNAK(bth.NAKSequence, s.expect)
}

// nakNewGap is nakGap for a gap that has just arisen. A peer that sends only what is missing gets the NAK
// twice, because the path loses packets, and takes the second for a copy.
func (q *QP) nakNewGap(now mono.Time, psn bth.PSN) {
	q.nakGap(now, psn)
	if q.responder.learnt.score > 0 {
		q.queueNAK(bth.NAKSequence, q.responder.expect)
	}
}

// filledGap learns from the arrival of the missing request, and decides about a NAK for the next one.
func (q *QP) filledGap(now mono.Time, p *frame.Packet, psn bth.PSN) {
	s := &q.responder
	g := &s.hold.gap
	l := s.learnt
	late := now.Sub(g.noticed)
	switch {
	case g.naks > 0:
		l.judge, l.top = true, g.top
		if q.copyLost(now); l.score == maxScore && g.naks == 1 && !p.AckReq() {
			// A peer that sends only missing requests sends them with AckReq: this is no answer to the NAK, but the
			// late request, or the peer goes back: judge finds out. The step is small, because a longer delay also delays
			// the NAKs for lost requests.
			l.suspect = max(l.suspect, min(late, l.nakDelay*3/4+late/8))
		} else if !l.lastOpen && g.naks == 1 {
			l.last, l.lastNAK, l.lastTook, l.lastLate, l.lastOpen = psn, g.nakTime, now.Sub(g.nakTime), late, true
		}
	case g.fresh:
		l.nakDelay = max(l.nakDelay, min(late*5/4, maxNAKDelay))
	}
	if s.hold.held == 0 {
		s.nakSent = false
		q.dropHold()
		return
	}
	asked := p.AckReq()
	*g = gap{noticed: now, openTill: now.Add(holdLimit), top: g.top}
	s.gapDue = g.openTill
	s.nakSent, s.nakLeft, s.nakAt, s.ahead = true, nakRepeats, s.expect, g.top
	switch {
	case l.nakDelay > 0:
		s.gapDue = now.Add(l.nakDelay)
	case l.score > 0, asked && l.score == 0:
		q.nakNewGap(now, s.expect)
	default:
		s.gapDue = now.Add(silence)
	}
}

// copyLost learns that a NAK was right, if no second copy of the requested packet has arrived for a while.
func (q *QP) copyLost(now mono.Time) {
	l := q.responder.learnt
	if !l.lastOpen || now.Sub(l.lastNAK) < l.lastTook+copyWait {
		return
	}
	l.lastOpen = false
	if l.nakDelay -= l.nakDelay / 4; l.nakDelay < time.Microsecond {
		l.nakDelay = 0
	}
	if l.least == 0 || l.lastTook < l.least {
		l.least = l.lastTook
	}
}

// judge learns from the request that follows a gap: a peer that goes back repeats what is held
// or executed; one that sends only what is missing goes on.
func (q *QP) judge(psn bth.PSN, again bool) {
	l := q.responder.learnt
	if !l.judge {
		return
	}
	l.judge = false
	switch {
	case again:
		l.score = max(l.score-1, -maxScore)
		l.suspect = 0
	case !psn.Less(l.top):
		l.score = min(l.score+2, maxScore)
		if l.suspect > 0 {
			q.wasPremature(l.suspect)
			l.suspect = 0
		}
	}
}

// copyOf learns from a duplicate: if it is the second copy of the request that filled the previous gap, the NAK for
// it may have been premature.
func (q *QP) copyOf(now mono.Time, psn bth.PSN) {
	l := q.responder.learnt
	if l == nil {
		return
	}
	if h := q.responder.hold; h != nil && h.naks == 0 && l.nakDelay == 0 {
		q.responder.gapDue = min(now.Add(silence), h.openTill)
	}
	if psn != l.last {
		q.judge(psn, true)
	}
	if !l.lastOpen || psn != l.last {
		return
	}
	l.lastOpen = false
	took := now.Sub(l.lastNAK)
	if l.least == 0 || took < l.least {
		l.least = took
	}
	if l.lastTook < l.least*3/4 {
		q.wasPremature(l.lastLate)
	}
}

// wasPremature notes that the NAK for a request that came late was premature.
func (q *QP) wasPremature(late time.Duration) {
	l := q.responder.learnt
	l.nakDelay = max(l.nakDelay, min(late*5/4, maxNAKDelay))
	q.cnt.PrematureNAK++
}

// gapTimeout handles the deadlines of a responder that holds: a NAK that has waited, the end of a
// hold, and the end of a silence.
func (q *QP) gapTimeout(now mono.Time) {
	s := &q.responder
	s.gapDue = mono.Never
	if s.hold == nil {
		q.acknowledgeAgain(now)
		return
	}
	s.gapDue = s.hold.openTill
	if s.hold.naks == 0 { // also if the hold ends now: the caller may be late, and copies of old requests delay the NAK
		q.nakGap(now, s.expect)
	}
	if !now.Before(s.hold.openTill) {
		q.dropHold()
		s.waitForSilence(now)
	}
}
