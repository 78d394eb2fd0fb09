package qp

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
)

// handleResponse processes an ACKNOWLEDGE, READ response or ATOMIC
// ACKNOWLEDGE: the completing half of the requester.
func (q *QP) handleResponse(now mono.Time, p *frame.Packet) {
	if q.state != RTS && q.state != SQD {
		q.cnt.WrongState++
		return
	}
	r := &q.requester
	psn := p.PSN()
	if psn.Less(r.acked) || !psn.Less(r.max) {
		// An answer to a request that is complete already, or was never sent.
		if psn.Less(r.max) {
			q.noteAnswer(now)
			q.nothingLost()
		}
		q.cnt.GhostAck++
		return
	}
	q.cnt.RcvdPkts++
	if p.Op == bth.RCReadResponseOnly && q.completeRead(now, p, psn) {
		return
	}
	q.handleOutstanding(now, p, psn)
}

// handleOutstanding processes an answer whose PSN is outstanding.
func (q *QP) handleOutstanding(now mono.Time, p *frame.Packet, psn bth.PSN) {
	r := &q.requester
	switch p.Op &^ q.base {
	case bth.RCAck:
		if all := psn.Add(1) == r.max && p.Syndrome().Kind() == bth.KindACK && !q.awaitsData(); !all {
			q.noteAnswer(now)
		} // otherwise nothing is left to wait for, and handleAck stops the timers
		q.handleAck(now, p.Syndrome(), psn)
	case bth.RCAtomicAck, bth.MaskedAtomicAck:
		q.handleAtomicAck(now, p, psn)
	default:
		q.handleReadResponse(now, p, psn)
	}
	if q.state == Err {
		return
	}
	if r.missing != nil {
		if q.absorb(now); q.state == Err {
			return
		}
	}
	if r.single.watchesAnswers() {
		if q.singleAnswered(now, q.standing(p)); q.state == Err {
			return
		}
	}
	if r.next.Less(r.acked) {
		// The answer belongs to a packet that was sent before the requester went back. The packet need not be sent
		// again.
		r.next, q.sq.cur = r.acked, q.sq.head
		q.nothingLost()
	}
	q.checkFailed()
	if q.state == SQD {
		q.checkDrained()
	}
}

// completeRead is a short cut for the most common response to short READs: it has all the
// data of the oldest work request, for one piece of memory. It reports whether the response
// was of that kind and is handled.
//
// Invariant: if it reports true, it has done what handleOutstanding would have done. If it
// reports false, at most data are in place already, which handleOutstanding writes again.
func (q *QP) completeRead(now mono.Time, p *frame.Packet, psn bth.PSN) bool {
	r := &q.requester
	if psn != r.acked || q.sq.head == q.sq.tail || q.state != RTS || q.repair != nil && (r.missing != nil || r.single.watchesAnswers()) {
		return false
	}
	w := q.sq.at(q.sq.head)
	data := p.Data[bth.BTHLen+bth.AETHLen : len(p.Data)-bth.ICRCLen-p.Pad()]
	if w.op != Read || w.first != psn || w.last != psn || w.length != uint32(len(data)) || w.sges != 1 ||
		bth.Syndrome(p.Data[bth.BTHLen]).Kind() != bth.KindACK || !psn.Less(r.next) {
		return false
	}
	region, at, fault := r.trail.Local(q.mem, q.pd, w.sge[0], mr.LocalWrite)
	if fault != mr.OK || region.WriteAt(at, data) != mr.OK {
		return false
	}
	r.acked = psn.Add(1)
	r.reads--
	if q.signals(w) {
		q.reportSend(cq.Success)
	} else {
		q.sq.head++
	}
	q.progress(now, psn)
	if q.sq.head != q.sq.tail {
		if w := q.sq.at(q.sq.head); w.done || w.fail {
			q.completeLocals()
			q.checkFailed()
		}
	}
	return true
}

// handleAck handles a plain acknowledgement or a NAK.
func (q *QP) handleAck(now mono.Time, s bth.Syndrome, psn bth.PSN) {
	r := &q.requester
	old := q.mayBeOld()
	if s.Kind() == bth.KindACK {
		found := r.probes > 0 && psn == r.acked
		if w := q.ackThrough(now, psn); w != nil && w.last.Less(psn) {
			// The peer acknowledges a PSN beyond a READ or atomic whose answer is missing.
			q.lostAnswer(now, psn, old)
		} else if found && r.acked.Less(r.max) && q.state != Err {
			// The peer was waiting for the packet that the probe repeated. It has
			// dropped the packets behind it, which came too early, or holds them and
			// misses the next one, too.
			if !r.single.knownToHold() || !q.repairsSingly(now, r.acked) {
				q.retry(now)
			}
		}
		return
	}
	// A NAK acknowledges everything before its PSN.
	missing := q.ackThrough(now, psn.Add(-1)) != nil && r.acked != psn
	switch {
	case s.Kind() == bth.KindRNR && !missing:
		q.receiverNotReady(now, bth.RNRTimer(s.Value()))
	case s.Kind() == bth.KindRNR:
		q.cnt.ImpliedNAK++
		q.retry(now)
	case s == bth.NAKSequence:
		q.cnt.RcvdSeqErr++
		q.incidents().NAKsReceived++
		switch {
		case r.rnrDeadline != mono.Never: // after an RNR NAK the wait goes on
		case missing && old:
			q.retry(now)
		case q.nakSingly(now, psn, missing):
		case psn == r.acked:
			q.retryAgain(now)
		case missing && q.repairs():
			q.retryFrom(now, psn)
		default:
			q.retry(now)
		}
	default:
		q.cnt.FatalNAKRcvd++
		q.incidents().NAKsReceived++
		q.failAt(q.holder(psn), nakStatus(s))
	}
}

// lostAnswer recovers from the loss of an answer: the peer acknowledges psn, which is beyond a READ or atomic without
// an answer. old: the acknowledgement may be one of an old connection.
func (q *QP) lostAnswer(now mono.Time, psn bth.PSN, old bool) {
	if q.repairs() && !old {
		q.noteExecuted(now, psn.Add(1))
		return
	}
	q.cnt.ImpliedNAK++
	q.retry(now)
}

// mayBeOld reports whether an answer may be one of an old connection: see hold.
func (q *QP) mayBeOld() bool {
	r := &q.requester
	return q.reused && q.repair != nil && r.acked == r.firstPSN
}

// nakStatus maps a fatal NAK to the status of the work request it hit.
func nakStatus(s bth.Syndrome) cq.Status {
	switch s {
	case bth.NAKInvalidRequest:
		return cq.RemInvReqErr
	case bth.NAKRemoteAccess:
		return cq.RemAccessErr
	case bth.NAKRemoteOp:
		return cq.RemOpErr
	}
	return cq.BadRespErr // a syndrome no responder may send
}

// holder returns the index of the work request that owns a PSN.
func (q *QP) holder(psn bth.PSN) uint32 {
	i := q.sq.head
	for i != q.sq.tail && q.sq.at(i).last.Less(psn) {
		i++
	}
	return i
}

// ackThrough completes the work requests that are acknowledged up to and including psn. It
// stops at a READ or atomic, which only its own answer completes, and returns that work
// request if psn lies at or behind it.
func (q *QP) ackThrough(now mono.Time, psn bth.PSN) (waiting *sendWQE) {
	r := &q.requester
	if psn.Less(r.acked) {
		return nil
	}
	before := r.acked
	for q.sq.head != q.sq.tail {
		w := q.sq.at(q.sq.head)
		if psn.Less(w.first) {
			break
		}
		if w.kind.returnsData() {
			if r.acked.Less(w.first) {
				r.acked = w.first
			}
			waiting = w
			break
		}
		if psn.Less(w.last) {
			r.acked = psn.Add(1)
			break
		}
		r.acked = w.last.Add(1)
		if w.kind.takesCredit() && w.last.Less(r.next) {
			r.reads-- // it was sent after the requester went back last
		}
		q.completeSend(cq.Success)
	}
	if r.acked != before {
		q.noteStall(now, before) // not for responses to READs and atomics: they say nothing about the window of other requests
		q.progress(now, before)
	}
	return waiting
}

// answered returns the work request that the response psn belongs to. If answers before it are missing, answered
// returns nil: the requester keeps the data of the response and asks for the missing ones, or goes back.
func (q *QP) answered(now mono.Time, p *frame.Packet, psn bth.PSN) *sendWQE {
	r := &q.requester
	if r.missing != nil {
		q.filled(now, p, psn)
	}
	old := false
	if r.acked != psn { // rare: answers come in order
		old = q.mayBeOld()
		q.noteAnswer(now)
		q.ackThrough(now, psn.Add(-1))
	}
	if r.acked != psn && q.repairs() && !old {
		q.early(now, p, psn)
		return nil
	}
	if r.acked != psn {
		q.cnt.ImpliedNAK++
		again := psn.Less(r.ahead) // the peer has started to answer again, and has skipped the missing answer again
		if r.ahead = psn; again {
			q.retryAgain(now)
		} else {
			q.retry(now)
		}
		return nil
	}
	if q.sq.empty() {
		return nil
	}
	return q.sq.at(q.sq.head)
}

// handleReadResponse handles a READ response, which is also the answer to a FLUSH or
// ATOMIC_WRITE.
func (q *QP) handleReadResponse(now mono.Time, p *frame.Packet, psn bth.PSN) {
	w := q.answered(now, p, psn)
	if w == nil {
		return
	}
	switch w.kind {
	case kindRead:
		q.handleReadData(now, w, p, psn)
	case kindFlush, kindAtomicWrite:
		q.handlePlaced(now, p, psn)
	default:
		q.fail(cq.BadRespErr)
	}
}

// handleReadData writes the data of one READ response to memory. Only the response with the
// expected PSN is accepted. Its opcode may be FIRST, MIDDLE, LAST or ONLY: rxe answers a
// duplicate READ with MIDDLE and LAST, hardware with FIRST or ONLY.
func (q *QP) handleReadData(now mono.Time, w *sendWQE, p *frame.Packet, psn bth.PSN) {
	r := &q.requester
	if p.Info.Headers&bth.HasAETH != 0 && p.Syndrome().Kind() != bth.KindACK {
		q.fail(cq.BadRespErr)
		return
	}
	seq := uint32(psn.Sub(w.first))
	off := seq * q.mtu
	data := p.Payload()
	if uint32(len(data)) != min(q.mtu, w.length-off) {
		q.fail(cq.LocLenErr)
		return
	}
	if r.scattFor != q.sq.head || off == 0 {
		r.scatter, r.scattFor = cursor{}, q.sq.head
	}
	if fault := q.scatter(q.sq.list(w), &r.scatter, off, data); fault != mr.OK {
		q.fail(statusOf(fault))
		return
	}
	before := r.acked
	q.advanceRead(w, psn)
	q.progress(now, before)
}

// handleAtomicAck delivers the old value of an atomic.
func (q *QP) handleAtomicAck(now mono.Time, p *frame.Packet, psn bth.PSN) {
	r := &q.requester
	w := q.answered(now, p, psn)
	if w == nil {
		return
	}
	if w.kind != kindAtomic || p.Syndrome().Kind() != bth.KindACK {
		q.fail(cq.BadRespErr)
		return
	}
	var buf [mr.MaxOperand]byte
	old := q.atomicResult(&buf, p, int(w.length))
	if old == nil {
		q.fail(cq.BadRespErr)
		return
	}
	var c cursor
	if fault := q.scatter(q.sq.list(w), &c, 0, old); fault != mr.OK {
		q.fail(statusOf(fault))
		return
	}
	before := r.acked
	r.acked = psn.Add(1)
	if psn.Less(r.next) {
		r.reads--
	}
	q.completeSend(cq.Success)
	q.progress(now, before)
}

// scatter copies data to message offset off of the scatter list of a send work
// request. The list is long enough; the caller has checked.
func (q *QP) scatter(sg []mr.SGE, c *cursor, off uint32, data []byte) mr.Fault {
	return scatter(&q.requester.trail, q.mem, q.pd, sg, c, off, data)
}

// scatter copies data to message offset off of a list of elements in a domain.
func scatter(r *mr.Trail, mem *mr.Table, pd *mr.PD, sg []mr.SGE, c *cursor, off uint32, data []byte) mr.Fault {
	for len(data) > 0 {
		c.seek(sg, off)
		s := sg[c.i]
		region, at, fault := r.Local(mem, pd, s, mr.LocalWrite)
		if fault != mr.OK {
			return fault
		}
		skip := off - c.base
		n := min(uint32(len(data)), s.Length-skip)
		if fault := region.WriteAt(at+uint64(skip), data[:n]); fault != mr.OK {
			return fault
		}
		data, off = data[n:], off+n
	}
	return mr.OK
}
