package qp

import "github.com/goroce/roce/mono"

// NextTimeout returns when HandleTimeout must be called, or [mono.Never].
func (q *QP) NextTimeout() mono.Time {
	next := min(q.requester.ackDeadline, q.requester.rnrDeadline, q.requester.probeAt)
	if q.repair != nil {
		next = min(next, q.requester.repairAt, q.requester.single.wakeAt, q.responder.gapDue)
	}
	if q.owes {
		next = min(next, q.rare.final.at)
	}
	if q.cc != nil {
		next = min(next, q.cc.holdUntil)
	}
	if q.typ >= DCI {
		next = min(next, q.dcDeadline)
	}
	return next
}

// HandleTimeout handles the deadlines that have been reached; others stay.
func (q *QP) HandleTimeout(now mono.Time) {
	if !now.Before(q.requester.rnrDeadline) {
		q.rnrTimeout()
	}
	if !now.Before(q.requester.probeAt) {
		q.probeTimeout(now)
	}
	if !now.Before(q.requester.ackDeadline) {
		q.ackTimeout(now)
	}
	if q.repair != nil {
		q.repairTimeouts(now)
	}
	if q.owes {
		q.finalTimeout(now)
	}
	if q.cc != nil {
		q.cc.expire(now)
	}
	if q.typ >= DCI {
		q.dcTimeout(now)
	}
}
