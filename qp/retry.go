package qp

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
)

// goBack returns to the oldest unacknowledged packet: go-back-N. SENDs and
// WRITEs restart in the middle of a message, READs ask for the rest.
func (q *QP) goBack() {
	r := &q.requester
	r.next = r.acked
	q.sq.cur = q.sq.head
	r.reads = 0
	r.probed = false
	r.ahead = r.acked
	q.cnt.CompleterRetryErr++
}

// progress notes a positive answer, which moved the oldest outstanding packet on
// from before: the retry counters start over and the ACK timer runs from now, or
// stops when nothing is outstanding.
func (q *QP) progress(now mono.Time, before bth.PSN) {
	r := &q.requester
	r.retryLeft, r.rnrLeft = r.retryCnt, r.rnrRetry
	r.recovering = false
	r.rnrDeadline = mono.Never
	r.acknowledged(now, r.acked, int32(r.acked.Sub(before)), q.window)
	q.armAck(now)
}

func (q *QP) armAck(now mono.Time) {
	r := &q.requester
	switch {
	case r.timeout == 0 || !r.acked.Less(r.max):
		r.ackDeadline, r.probeAt = mono.Never, mono.Never
	case r.probeAt == mono.Never || r.ackDeadline != now.Add(r.timeout) || r.ackLimit != now.Add(4*r.timeout):
		r.arm(now)
	} // otherwise they run since now: packets come in batches
}

// arm starts the ACK timer, and the one of the probe. It may run four times as
// long as it was set to, no longer. (IBTA 9.7.6.1.3)
func (r *requester) arm(now mono.Time) {
	r.ackDeadline, r.ackLimit = now.Add(r.timeout), now.Add(4*r.timeout)
	r.flight.arm(now, r.timeout)
}

// heard notes an answer that brings no progress: the peer works its way through
// what was sent before we went back. It gets more time to come to the rest.
func (q *QP) heard(now mono.Time) {
	r := &q.requester
	if r.ackDeadline != mono.Never {
		r.ackDeadline = min(now.Add(r.timeout), r.ackLimit)
		r.flight.arm(now, r.timeout)
	}
}

// retry goes back because the peer said, or showed, that a packet was lost.
// NAKs behind that, or behind a timeout, change nothing until there is progress:
// they may be about what was sent before, and to a slow peer every repetition
// means more work, to us one retry less.
func (q *QP) retry(now mono.Time) {
	r := &q.requester
	if r.recovering {
		return
	}
	if !q.spendRetry() {
		return
	}
	r.recovering = true
	q.goBack()
	r.wentBack(true)
	q.armAck(now)
}

// retryAgain is retry for an answer which shows that what was repeated got lost
// again, if it can be about the repetition. Whether it is cannot be known: a peer that has
// not had a processor for a while still answers what came before. So it costs no retry, and
// the ACK timer, which it does not begin anew, bounds how long this goes on; unless there
// is none.
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
	r.wentBack(true)
	q.heard(now)
}

// spendRetry takes one transport retry. When there is none left it changes over
// to the alternate path, which brings new ones, or fails the oldest work
// request.
func (q *QP) spendRetry() bool {
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

// ackExpired is the local ACK timeout: no answer in time.
func (q *QP) ackExpired(now mono.Time) {
	r := &q.requester
	r.ackDeadline = mono.Never
	if (q.state != RTS && q.state != SQD) || !r.acked.Less(r.max) {
		return
	}
	q.cnt.LocalAckTimeout++
	if !q.spendRetry() {
		return
	}
	r.recovering = true
	q.goBack()
	r.wentBack(true)
	q.armAck(now)
}

// receiverNotReady is an RNR NAK for the oldest outstanding packet: wait as
// long as the peer says, then send it again. A copy of the same NAK does not
// make the wait longer. The packet got there, so the transport retries start
// over: rxe sends a sequence NAK for what follows it, and a short wait would
// spend one each time.
func (q *QP) receiverNotReady(now mono.Time, t bth.RNRTimer) {
	r := &q.requester
	q.cnt.RcvdRNRErr++
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
	r.rnrDeadline, r.probeAt = now.Add(t.Duration()), mono.Never
	q.goBack()
	r.wentBack(false)
}

// rnrExpired ends the wait; Emit sends again.
func (q *QP) rnrExpired() { q.requester.rnrDeadline = mono.Never }

// statusOf is the completion status of a fault in the local memory of a work
// request. (IBTA 10.8.3: Local Protection Error covers keys, rights and
// bounds.)
func statusOf(mr.Fault) cq.Status { return cq.LocProtErr }

// status is the completion status of a work request that could not be sent or
// executed.
func (w *sendWQE) status() cq.Status {
	if w.kind == kindLocal {
		return cq.MWBindErr
	}
	return cq.LocProtErr
}

// failLocally notes that a work request cannot be sent. It fails when the ones
// before it are complete, so that completions stay in order.
func (q *QP) failLocally(w *sendWQE) {
	q.cnt.SendErr++
	w.fail = true
	if q.reliable() {
		q.checkFailed()
	}
}

// checkFailed fails the queue pair when its oldest work request could not be
// sent.
func (q *QP) checkFailed() {
	if q.sq.empty() {
		return
	}
	if w := q.sq.at(q.sq.head); w.fail {
		q.fail(w.status())
	}
}

// fail moves to ERR: the oldest send completes with status, everything else is
// flushed in order. A receive already in use keeps the status it was given.
func (q *QP) fail(status cq.Status) { q.failAt(q.sq.head, status) }

// failAt is fail for the send work request at index i; those before it are
// flushed. Nothing more is sent, not even the answers that were due.
func (q *QP) failAt(i uint32, status cq.Status) {
	if q.state != Err {
		q.responder.answers.clear()
		q.flushAll(i, status)
	}
}

// flushAll enters ERR but lets the answers in the queue go out: the last of
// them is the NAK that tells the peer why.
func (q *QP) flushAll(i uint32, status cq.Status) {
	before := q.state
	q.state = Err
	r := &q.requester
	r.ackDeadline, r.rnrDeadline, r.probeAt = mono.Never, mono.Never, mono.Never
	for q.sq.head != q.sq.tail {
		s := cq.WRFlushErr
		if q.sq.head == i {
			s = status
		}
		q.completeSend(s)
	}
	q.sq.cur = q.sq.tail
	q.responder.stop()
	q.flushRecvs()
	if (q.srq != nil || q.typ == XRCRecv) && before != Err {
		q.event(EventLastWQE)
	}
}

// flushSends completes the sends before index end with status.
func (q *QP) flushSends(end uint32, status cq.Status) {
	for q.sq.head != end {
		q.completeSend(status)
	}
	q.sq.cur = q.sq.tail
}

// completeSend takes the oldest send off the queue and reports it. After a
// success come the local operations that waited for their turn.
func (q *QP) completeSend(status cq.Status) {
	q.reportSend(status)
	if status == cq.Success && q.sq.head != q.sq.tail && q.sq.at(q.sq.head).done {
		q.completeLocals()
	}
}

// reportSend takes the oldest send off the queue and reports it. A success of
// an unsignaled request is silent, an error never.
func (q *QP) reportSend(status cq.Status) {
	w := q.sq.at(q.sq.head)
	q.sq.head++
	info := &opTable[w.op]
	if w.kind == kindLocal {
		q.sq.rest(w).local = localWQE{}
	}
	if status == cq.Success {
		if info.recv && !info.reth {
			q.cnt.RDMASends++
		}
		if !q.signals(w) {
			return
		}
	}
	wc := q.sendCQ.Next()
	wc.ID, wc.Status, wc.Opcode, wc.QPN, wc.ByteLen = w.id, status, info.wc, q.num, w.length
	q.sendCQ.Publish(wc, false)
}

// checkDrained reports SQ_DRAINED once the started work requests are complete.
func (q *QP) checkDrained() {
	r := &q.requester
	if q.state != SQD || r.drained || (!q.sq.empty() && q.sq.at(q.sq.head).first.Less(r.max)) {
		return
	}
	r.drained = true
	if q.sqdNotify {
		q.event(EventSQDrained)
	}
}
