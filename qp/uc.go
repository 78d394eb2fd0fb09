package qp

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
)

// emitUnreliable builds the next packet of a UC work request. Nothing is
// acknowledged: a request is complete when its last packet is handed to the
// port.
func (q *QP) emitUnreliable(sink frame.Sink) emission {
	r := &q.requester
	w := q.sq.at(q.sq.cur)
	if q.state == SQD && r.drained {
		return idle
	}
	at := q.sq.cur
	var res emission
	if w.kind == kindLocal {
		res = q.emitLocal(w)
	} else if q.cc != nil && q.cc.hold() {
		return idle
	} else {
		res = q.emitSend(sink, w, &opTable[w.op])
	}
	switch {
	case w.fail:
		q.failUnreliable(w.status())
		return res
	case res != emitted || w.kind == kindLocal:
		return res
	}
	if q.cc != nil {
		q.cc.spend()
	}
	q.cnt.SentPkts++
	r.acked, r.max = r.next, r.next
	if q.sq.cur != at {
		q.completeSend(cq.Success)
		q.checkDrained()
	}
	return emitted
}

// failUnreliable handles a local error of a UC or UD send. The send fails, those behind it are flushed, and receiving
// continues (IBTA 10.3.1, state SQE).
func (q *QP) failUnreliable(status cq.Status) {
	q.sq.cur = q.sq.tail
	q.completeSend(status)
	q.flushSends(q.sq.tail, cq.WRFlushErr)
	q.requester.postPSN = q.requester.next // flushed work requests take no PSNs
	q.state = SQE
}

// handleUnreliable processes a packet of the UC service (IBTA 9.8.2.2). When a packet is missing, it drops all
// packets up to the beginning of the next message. It answers nothing. The receive of an incomplete message is left
// for the next message.
func (q *QP) handleUnreliable(p *frame.Packet) {
	switch q.state {
	case RTR, RTS, SQD, SQE:
	default:
		q.cnt.WrongState++
		return
	}
	q.cnt.RcvdPkts++
	s := &q.responder
	psn := p.PSN()
	first := p.Info.Flags&bth.First != 0
	if psn != s.expect {
		q.cnt.OutOfSeqRequest++
	}
	if first || psn != s.expect {
		if q.abandon(); q.state == Err {
			return
		}
	}
	s.expect = psn
	if !s.established && q.state == RTR {
		s.established = true
		q.event(EventCommEst)
	}
	if v := q.execute(p); v != proceed {
		q.dropMessage(v)
		s.expect = psn.Add(1)
	}
}

// abandon ends the message in progress: the rest of it is not accepted any more. Its receive is left for the next
// message. A receive from a shared queue cannot go back, so it completes in error (IBTA 9.9.3, class E).
func (q *QP) abandon() {
	s := &q.responder
	s.in = noMessage
	if s.held && s.from != nil {
		q.failRecv(cq.RemInvReqErr)
	}
}

// dropMessage ends an unreliable message that cannot be taken. Only faults of
// this side's own receive are reported.
func (q *QP) dropMessage(v verdict) {
	if v == tooLong || v == localFault {
		q.consumeRecv()
		q.failRecv(verdicts[v].status)
		q.flushAll(q.sq.tail, cq.WRFlushErr)
		return
	}
	q.abandon()
	q.cnt.UDNoReceive++
}
