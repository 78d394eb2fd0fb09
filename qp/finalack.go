package qp

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mono"
)

// The last acknowledgement of a queue pair that ends.
//
// A responder that holds may have given a message to the program and not acknowledged its end yet: see withholdEnd. If
// the queue pair then enters ERR or RESET, it answers no more, and the requester would repeat the end of the message
// until its retries are used up, although the program has the message. So the queue pair acknowledges the message when
// it ends: at once, and again after silence and four times silence. The repetitions are for rxe. If the requester of
// rxe is still repeating the message when the first acknowledgement arrives, it needs a later one: see ackagain.go.
//
// No acknowledgement follows a NAK that refuses a request: the NAK acknowledges all requests before it.

// finalAckRepeats is how often the last acknowledgement is repeated.
const finalAckRepeats = 2

// finalAck is the last acknowledgement of a queue pair that has ended.
type finalAck struct {
	path    *frame.Path
	destQPN bth.QPN
	psn     bth.PSN
	msn     bth.MSN
	migReq  bth.BTHFlags
	repeats uint8     // how often it was repeated
	at      mono.Time // when to send it, or to repeat it; it is sent when due is set
	due     bool
}

// Owes reports whether a queue pair in ERR or RESET still has to send its last acknowledgement, or to repeat it. An
// owner that destroys a queue pair first resets it. Then it calls Emit and HandleTimeout as before, until Owes reports
// false.
func (q *QP) Owes() bool { return q.owes }

// AcknowledgeEnd has Emit acknowledge a message that the program has and whose end the responder does not acknowledge
// yet. It reports whether there is one. An owner calls it before it tells the peer that the connection ends: the peer
// then listens no more.
func (q *QP) AcknowledgeEnd() bool {
	s := &q.responder
	if !s.withheld {
		return false
	}
	s.nameEnd()
	q.acknowledge(s.acked)
	return true
}

// oweAck has Emit acknowledge a message that the program has and whose end the responder does not acknowledge yet. The
// queue pair ends.
func (q *QP) oweAck() {
	s := &q.responder
	if !s.withheld || q.path == nil {
		return
	}
	s.nameEnd()
	q.owes = true
	q.rarities().final = finalAck{path: q.path, destQPN: q.destQPN, psn: s.acked, msn: s.msn, migReq: q.mig.bit, at: mono.Never, due: true}
}

// LastPeer returns the path and the number of the queue pair that the last acknowledgement goes to, if Owes.
func (q *QP) LastPeer() (*frame.Path, bth.QPN) { return q.rare.final.path, q.rare.final.destQPN }

// ForgetLast ends the repetitions of the last acknowledgement: a queue pair that ends gets another peer, or its peer
// another queue pair.
func (q *QP) ForgetLast() {
	if q.owes {
		q.owes = false
		q.rare.final = finalAck{}
	}
}

// finalTimeout handles the deadline of the last acknowledgement.
func (q *QP) finalTimeout(now mono.Time) {
	if f := &q.rare.final; !now.Before(f.at) {
		f.at, f.due = mono.Never, true
	}
}

// emitFinal sends the last acknowledgement if it is due.
func (q *QP) emitFinal(now mono.Time, sink frame.Sink) emission {
	const hdr = bth.BTHLen + bth.AETHLen
	f := &q.rare.final
	if !f.due {
		return idle
	}
	body, crc, ok := sink.Begin(f.path, hdr+bth.ICRCLen)
	if !ok {
		return blocked
	}
	bth.PutBTH(body, bth.RCAck|q.base, f.migReq, 0, bth.DefaultPKey, f.destQPN, f.psn)
	bth.PutAETH(body[bth.BTHLen:], bth.AckNoCredits, f.msn)
	seal(body, hdr, 0, crc)
	sink.Commit()
	q.cnt.SentPkts++
	if f.due = false; f.repeats == finalAckRepeats {
		q.ForgetLast()
		return emitted
	}
	f.at = now.Add(silence << (2 * f.repeats))
	f.repeats++
	return emitted
}
