package qp

import (
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
)

// statusOf returns the completion status of a fault in the local memory of a work
// request. (IBTA 10.8.3: Local Protection Error covers keys, rights and
// bounds.)
func statusOf(mr.Fault) cq.Status { return cq.LocProtErr }

// status returns the completion status of a work request that could not be sent or
// executed.
func (w *sendWQE) status() cq.Status {
	if w.kind == kindLocal {
		return cq.MWBindErr
	}
	return cq.LocProtErr
}

// failLocally notes that a work request cannot be sent. It fails when those before it are
// complete, so that completions stay in order.
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
// flushed. Nothing more is sent, not even the answers that were due, except the last acknowledgement: see oweAck.
func (q *QP) failAt(i uint32, status cq.Status) {
	if q.state != Err {
		q.oweAck()
		q.responder.answers.clear()
		q.flushAll(i, status)
	}
}

// flushAll enters ERR but leaves the answers in the queue: the last of them is the NAK that
// tells the peer why.
func (q *QP) flushAll(i uint32, status cq.Status) {
	before := q.state
	q.state = Err
	r := &q.requester
	r.ackDeadline, r.rnrDeadline = mono.Never, mono.Never
	r.disarmProbe()
	r.single.stop()
	q.endRepair()
	q.endHold()
	for q.sq.head != q.sq.tail {
		s := cq.WRFlushErr
		if q.sq.head == i {
			s = status
		}
		q.completeSend(s)
	}
	q.sq.cur = q.sq.tail
	if q.cross != nil {
		q.cross.sends = enableState{}
	}
	q.responder.stop()
	q.openRecvRing(false)
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

// completeSend takes the oldest send off the queue and reports it. After a success it also
// completes the local operations behind it that are done.
func (q *QP) completeSend(status cq.Status) {
	q.reportSend(status)
	if status == cq.Success && q.sq.head != q.sq.tail && q.sq.at(q.sq.head).done {
		q.completeLocals()
	}
}

// reportSend takes the oldest send off the queue and reports it. A success of an unsignaled request delivers no
// completion, an error always does.
func (q *QP) reportSend(status cq.Status) {
	w := q.sq.at(q.sq.head)
	q.sq.head++
	info := &opTable[w.op]
	if w.kind == kindLocal {
		q.endLocal(w)
	}
	if status == cq.Success {
		if info.recv && !info.reth {
			q.cnt.RDMASends++
		}
		if !q.signals(w) {
			return
		}
	} else {
		q.uncount(w)
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
