package qp

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mono"
)

// A responder that holds acknowledges again when its peer falls silent after a loss.
//
// rxe as a requester can wait for ever. While it sends a message of several packets again, it
// may receive an acknowledgement of the last packet of that message. It then counts the whole
// message as acknowledged, and sends the rest of it; but it completes the message only when
// another acknowledgement names that packet or a later one. If the network loses that one, rxe
// sends nothing more, and its timer does not run.
//
// A responder that drops seldom causes this: it acknowledges a message when it has received the
// repetition. A responder that holds may have executed the whole message before the requester
// repeats it. Two rules make this rare:
//
//   - The responder does not acknowledge the end of a message while the requester may still
//     repeat that message because of a NAK: see withholdEnd. This makes the case rare, but a
//     network that reorders or duplicates packets can mislead the responder.
//   - After a NAK, when the peer is silent for a while, the responder acknowledges the latest
//     message again if it has several packets, and a few times more, each after a longer silence.
//     The first of these acknowledgements that arrives ends the wait of rxe.
//
// Any other requester takes these for copies of an acknowledgement, which the network could have
// made, and ignores them (IBTA 9.7.5.1). But rxe does not expect an old acknowledgement between two
// packets of the answer to a READ: it waits for ever, for another reason. A path that reorders packets
// may bring one there, so no message of a single packet is acknowledged again.

// maxAckRepeats is how many acknowledgements follow a silence. Each comes after four times the
// silence of the one before, the last after a quarter of a second.
const maxAckRepeats = 6

// repetition is what a responder knows about the requests that its peer may send again.
type repetition struct {
	mayRepeat bool      // the peer was sent a NAK, and may still repeat what was executed
	asked     bool      // a NAK was sent, and the peer has repeated nothing since
	long      bool      // the latest executed request ended a message of several packets, and none was refused since
	repeats   uint8     // acknowledgements sent in this silence
	until     bth.PSN   // when the peer sends requests behind this one, it will repeat nothing more
	heard     mono.Time // when the peer sent a request last
}

// expectRepetition notes that the peer may repeat requests. newest is one beyond the newest
// request that it has sent. If it goes on for a whole window behind that one, it has received
// acknowledgements of all before it.
func (q *QP) expectRepetition(now mono.Time, newest bth.PSN) {
	s := &q.responder
	s.repairing = true
	s.learnt.mayRepeat, s.learnt.until = true, newest.Add(holdSlots)
	s.hear(now)
}

// hear notes a request of the peer: the silence begins anew.
func (s *responder) hear(now mono.Time) {
	if s.learnt.heard, s.learnt.repeats = now, 0; s.hold == nil {
		s.gapDue = min(s.gapDue, now.Add(silence))
	}
}

// sawRepetition notes that the peer has repeated the request psn, which was executed. Without a NAK
// before, the responder answers as one that drops, and no more.
func (q *QP) sawRepetition(now mono.Time, p *frame.Packet, psn bth.PSN) {
	s := &q.responder
	if s.withheld && psn.Add(1) == s.expect {
		s.nameEnd()
	}
	if s.learnt.mayRepeat && p.Info.Flags&(bth.Send|bth.Write) != 0 {
		s.learnt.asked = false
		q.expectRepetition(now, s.expect)
	}
}

// waitForSilence is hear for a request behind a gap without a hold. A stranger can forge one, so it does not keep the
// responder from acknowledging again.
func (s *responder) waitForSilence(now mono.Time) {
	if s.learnt != nil && s.learnt.mayRepeat {
		s.hear(now)
	}
}

// executedNext notes that a request was executed while the peer may still repeat earlier ones.
func (s *responder) executedNext(now mono.Time) {
	if l := s.learnt; l.until.Less(s.expect) {
		l.mayRepeat, l.asked = false, false
		return
	}
	s.hear(now)
}

// acknowledgeAgain handles the end of a silence: the responder acknowledges the latest request
// again. It does not if it waits for a request that it has refused, or if the latest request was
// a READ, an atomic or a message of one packet: then the timer of rxe runs.
func (q *QP) acknowledgeAgain(now mono.Time) {
	s := &q.responder
	l := s.learnt
	if !l.mayRepeat || !l.long || l.repeats == maxAckRepeats {
		return
	}
	if due := l.silentUntil(); now.Before(due) {
		s.gapDue = due // the peer has sent something since the timer was started
		return
	}
	l.asked = false
	if s.withheld {
		s.nameEnd()
	}
	if s.acked.Add(1) == s.expect {
		q.acknowledge(s.acked)
	}
	if l.repeats++; l.repeats < maxAckRepeats {
		s.gapDue = max(l.silentUntil(), now.Add(silence))
	}
}

// silentUntil returns when the silence is long enough for the next acknowledgement.
func (l *repetition) silentUntil() mono.Time { return l.heard.Add(silence << (2 * l.repeats)) }

// endsLong reports whether a packet is the last of several packets of a SEND or WRITE.
func endsLong(f bth.OpcodeFlags) bool {
	return f&(bth.Send|bth.Write) != 0 && f&bth.Last != 0 && f&bth.First == 0
}
