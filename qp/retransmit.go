package qp

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
)

// goBack returns to the oldest unacknowledged packet: go-back-N. A SEND or WRITE goes on in
// the middle of its message; a READ requests the rest of its data.
func (q *QP) goBack() {
	r := &q.requester
	r.next, r.backTo = r.acked, r.acked
	q.forgetAsks()
	r.single.goesBack(r.max)
	q.sq.cur = q.sq.head
	r.reads = 0
	r.probed = false
	r.ahead = r.acked
	q.cnt.CompleterRetryErr++
}

// progress notes a positive answer; before was the oldest outstanding PSN until then. The
// retry counters start over, and the ACK timer runs from now, or stops when nothing is
// outstanding.
func (q *QP) progress(now mono.Time, before bth.PSN) {
	r := &q.requester
	r.retryLeft, r.rnrLeft = r.retryCnt, r.rnrRetry
	r.recovering = false
	r.rnrDeadline = mono.Never
	r.acknowledged(now, r.acked, int32(r.acked.Sub(before)), q.window)
	if r.late {
		q.forgetTimeout()
	}
	q.armAck(now)
}

func (q *QP) armAck(now mono.Time) {
	r := &q.requester
	switch {
	case r.timeout == 0 || !r.acked.Less(r.max):
		r.ackDeadline, r.probeAt = mono.Never, mono.Never
	case r.armedAt != now || r.ackDeadline == mono.Never:
		q.arm(now)
	} // otherwise the timers run from now already: packets come in batches
}

// arm starts the ACK timer and the probe timer. The ACK timer may run up to four times as
// long as it was set to (IBTA 9.7.6.1.3).
func (q *QP) arm(now mono.Time) {
	r := &q.requester
	r.armedAt, r.ackDeadline, r.ackLimit = now, now.Add(r.timeout), now.Add(timerLimit*bth.AckTimeout(r.timeoutCode))
	q.armProbe(now)
}

// noteAnswer notes an answer without progress: the peer still answers packets that were sent before the requester
// went back. The peer gets more time for the rest.
func (q *QP) noteAnswer(now mono.Time) {
	r := &q.requester
	if r.ackDeadline != mono.Never {
		r.ackDeadline = min(now.Add(r.timeout), r.ackLimit)
		q.armProbe(now)
	}
}

// retry goes back because a NAK said, or another answer showed, that a packet was lost.
// More NAKs, also after a timeout, change nothing until there is progress: they may be about
// packets that were sent before. Each retransmission means more work for a slow peer, and
// one retry less for the requester.
func (q *QP) retry(now mono.Time) {
	r := &q.requester
	if r.recovering {
		return
	}
	if !q.useRetry() {
		return
	}
	r.recovering = true
	q.goBack()
	r.wentBack(now, true)
	q.armAck(now)
}

// retryAgain is retry for an answer which shows that a retransmission was lost again, if the answer can be about the
// retransmission. The requester cannot know whether it is: a peer that had no processor for a while still answers
// earlier packets. So it costs no retry. The ACK timer, which is not started anew, bounds how often this happens.
// Without an ACK timer it costs a retry.
func (q *QP) retryAgain(now mono.Time) {
	r := &q.requester
	if !r.recovering || !r.acked.Less(r.next) || r.stale(now) {
		q.retry(now)
		return
	}
	if r.timeout == 0 {
		r.recovering = false
		q.retry(now)
		return
	}
	q.goBack()
	r.wentBack(now, true)
	q.noteAnswer(now)
}

// useRetry uses up one transport retry and reports whether the requester may continue. When none is left, it changes
// over to the alternate path, which has new retries, or fails the oldest work request.
func (q *QP) useRetry() bool {
	r := &q.requester
	if r.retryLeft == 0 {
		if q.exhausted() {
			return true
		}
		q.cnt.RetryExceededErr++
		q.fail(cq.RetryExcErr)
		return false
	}
	r.retryLeft--
	return true
}

// ackTimeout handles the local ACK timeout: there was no answer in time.
func (q *QP) ackTimeout(now mono.Time) {
	r := &q.requester
	r.ackDeadline = mono.Never
	if (q.state != RTS && q.state != SQD) || !r.acked.Less(r.max) {
		return
	}
	q.cnt.LocalAckTimeout++
	q.incidents().Timeouts++
	if !q.useRetry() {
		return
	}
	r.recovering = true
	q.goBack()
	q.wentBackAfterTimeout(now)
	q.armAck(now)
}

// receiverNotReady handles an RNR NAK for the oldest outstanding packet: the requester waits
// as long as the peer says and then sends the packet again. A copy of the same NAK does not
// make the wait longer. The packet has arrived, so the transport retries start over: rxe
// sends a sequence NAK for the packets behind it, which would otherwise use up a retry after
// each short wait.
func (q *QP) receiverNotReady(now mono.Time, t bth.RNRTimer) {
	r := &q.requester
	q.cnt.RcvdRNRErr++
	q.incidents().RNRsReceived++
	if r.rnrDeadline != mono.Never {
		return
	}
	if r.rnrRetry != infiniteRNR {
		if r.rnrLeft == 0 {
			q.cnt.RetryRNRExceeded++
			q.fail(cq.RNRRetryExcErr)
			return
		}
		r.rnrLeft--
	}
	r.retryLeft = r.retryCnt
	r.recovering = false
	r.ackDeadline = mono.Never
	r.rnrDeadline = now.Add(t.Duration())
	r.disarmProbe()
	q.goBack()
	r.wentBack(now, false)
}

// rnrTimeout handles the end of the RNR wait: Emit sends the packet again.
func (q *QP) rnrTimeout() { q.requester.rnrDeadline = mono.Never }
