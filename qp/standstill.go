package qp

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mono"
)

// A process that has no processor for a while receives nothing meanwhile, but it loses nothing either: packets wait in
// its socket. To the requester it looks as if all packets in flight were lost, until the peer continues and answers
// all of them. Two rules prevent the requester from taking such a peer for a dead one, or for one behind a network
// that loses packets:
//
//   - The ACK timer runs longer than it was set to, within the standard's limit, if the retries would otherwise
//     be used up before such a peer answers.
//   - An expired ACK timer makes the window smaller. The window gets its old size back when answers show that
//     nothing was lost.

const (
	// standstill is for how long a process may get no processor on a busy machine, or in a container whose quota is used up.
	standstill = 100 * time.Millisecond

	// standstillMost is how long the retries last, if the limit of the ACK timer allows it: a peer needs some time to
	// catch up.
	standstillMost = standstill + standstill/4

	// timerLimit is how many times as long as it was set to the ACK timer may run (IBTA 9.7.6.1.3).
	timerLimit = 4
)

// ackTimeoutFor returns how long the ACK timer runs if the program has set it to timeout, with so many retries. The
// result is longer than timeout only if the retries would not last through a standstill otherwise, and the limit of
// the ACK timer allows them to. If it does not, the requester reports a dead peer after the time that the program has
// chosen.
func ackTimeoutFor(timeout time.Duration, retries uint8) time.Duration {
	waits := time.Duration(retries) + 1
	if timeout*waits >= standstillMost || timerLimit*timeout*waits < standstill {
		return timeout
	}
	return min(standstillMost/waits, timerLimit*timeout)
}

// beforeTimeout is the state of the requester before its ACK timer expired.
type beforeTimeout struct {
	window int32
	stalls stalls
	end    bth.PSN // one beyond the newest packet in flight
}

// wentBackAfterTimeout is wentBack for an ACK timer that expired. It makes the window smaller only if the packets in
// flight do not fit into the smaller window.
func (q *QP) wentBackAfterTimeout(now mono.Time) {
	r := &q.requester
	narrower, late := r.max.Sub(r.acked) > r.window/2, r.late
	if narrower && !late {
		q.rarities().before = beforeTimeout{r.window, r.stalls, r.max}
	}
	r.wentBack(now, narrower)
	r.late = late || narrower
}

// nothingLost notes an answer to a packet that was sent before the ACK timer expired, or to a copy of a packet that had
// arrived. If all packets that were in flight then are acknowledged by now, the peer has only been late. Otherwise
// this answer says nothing about the other packets: the last of them may be lost.
func (q *QP) nothingLost() {
	r := &q.requester
	if !r.late || r.acked.Less(q.rare.before.end) {
		return
	}
	r.late = false
	b := &q.rare.before
	r.window = max(r.window, b.window)
	r.wide, r.trial, r.since, r.losses = b.stalls.wide, false, b.stalls.since, b.stalls.losses
	r.span = 0 // rates are measured anew
}

// forgetTimeout drops the state before the timeout when a packet that was sent after it is acknowledged.
func (q *QP) forgetTimeout() {
	if q.rare.before.end.Less(q.requester.acked) {
		q.requester.late = false
	}
}
