package qp

import (
	"syscall"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/mr"
)

// recvWQE is a posted receive work request. It is half a cache line: there may be thousands
// of them, and each is read when it is posted and when it is used.
type recvWQE struct {
	id   uint64
	sge  [1]mr.SGE // the scatter list, if it has at most one element
	slot uint32    // of its long list; the ring may move the work request when it grows
	sges uint8     // elements of the list: see recvQueue.list
}

// recvQueue is the ring of receive work requests.
type recvQueue struct {
	ring[recvWQE]
	tail   uint32
	maxSGE int32 // elements of a slot
	lists  longLists
	shared *RecvRing // with newer receives; nil: none
}

func newRecvQueue(n, sge int) recvQueue {
	return recvQueue{ring: newRing[recvWQE](n), maxSGE: int32(sge)}
}

func (q *recvQueue) len() int    { return int(q.tail - q.head) }
func (q *recvQueue) empty() bool { return q.head == q.tail }
func (q *recvQueue) clear()      { q.head, q.tail = 0, 0 }

// push appends a work request. The caller has checked that there is room.
func (q *recvQueue) push(id uint64, sg []mr.SGE) {
	if q.len() == len(q.slots) {
		q.widen()
	}
	w := q.at(q.tail)
	w.id, w.sges = id, uint8(len(sg))
	switch len(sg) {
	case 0:
	case 1:
		w.sge[0] = sg[0]
	default:
		q.lists.put(int(w.slot), len(q.slots), int(q.maxSGE), sg)
	}
	q.tail++
}

func (q *recvQueue) widen() {
	n := len(q.slots)
	for i, w := range q.grow(q.head) {
		w.slot = uint32(n + i)
	}
	q.lists.widen(len(q.slots), int(q.maxSGE))
}

// list is the scatter list of a work request.
func (q *recvQueue) list(w *recvWQE) []mr.SGE {
	if w.sges <= 1 {
		return w.sge[:w.sges]
	}
	return q.lists.at(int(w.slot), int(q.maxSGE), int(w.sges))
}

// ready reports whether there is a receive. If the queue is empty, ready takes one from the shared ring.
func (q *recvQueue) ready() bool { return !q.empty() || q.shared != nil && q.fetch() }

// done tells the program that a receive of the queue has ended.
func (q *recvQueue) done() {
	if q.shared != nil {
		q.shared.Done(1)
	}
}

// front returns the oldest work request of a queue that is not empty.
func (q *recvQueue) front() *recvWQE { return q.at(q.head) }

// inUse is a receive that a message uses. It is off its queue.
type inUse struct {
	recvWQE
	long []mr.SGE // the list, if it is of more than one element
}

// take takes the oldest receive off a queue that has one.
func (r *inUse) take(q *recvQueue) {
	r.recvWQE = *q.at(q.head)
	if r.sges > 1 {
		r.long = append(r.long[:0], q.list(&r.recvWQE)...)
	}
	q.head++
}

// list is its scatter list.
func (r *inUse) list() []mr.SGE {
	if r.sges <= 1 {
		return r.sge[:r.sges]
	}
	return r.long
}

// total is how many bytes a scatter/gather list has.
func total(sg []mr.SGE) (n uint64) {
	for i := range sg {
		n += uint64(sg[i].Length)
	}
	return n
}

// PostRecv queues a receive work request (ibv_post_recv of one). In state ERR
// it is accepted and flushed at once.
func (q *QP) PostRecv(wr *RecvWR) error {
	if err := q.checkRecv(wr); err != nil {
		return err
	}
	if q.state == Err {
		q.flushRecvs() // of the shared ring
		q.flushRecv(wr.ID)
		return nil
	}
	if q.cross != nil && q.cross.managedRecv {
		q.holdRecv(wr)
		return nil
	}
	if q.rq.shared != nil {
		for q.rq.fetch() {
		}
		if q.rq.len() == q.rq.cap() { // the program has added more than there is room for
			return q.recvQueueFull()
		}
		q.rq.shared.Done(-1)
	}
	q.rq.push(wr.ID, wr.SG)
	return nil
}

// CancelRecv takes back the receive with an ID: it completes at once with WR_FLUSH_ERR. The other receives keep their
// order. CancelRecv returns ENOENT if the queue pair's own queue has no such receive, or a message has begun to use
// it; it does not look at those of [Config].RecvRing. The verbs have no such call; libfabric has fi_cancel.
func (q *QP) CancelRecv(id uint64) error {
	i := q.rq.head
	for i != q.rq.tail && q.rq.at(i).id != id {
		i++
	}
	if i == q.rq.tail {
		return errs.On("cancel recv", q.num.Object(), syscall.ENOENT, "no receive with ID %#x waits for a message", id)
	}
	for last := q.rq.tail - 1; i != last; i++ {
		a, b := q.rq.at(i), q.rq.at(i+1)
		*a, *b = *b, *a
	}
	q.rq.tail--
	q.rq.done()
	q.flushRecv(id)
	return nil
}

// recvQueueFull returns the error of a post to a full receive queue. It allocates the first
// time.
func (q *QP) recvQueueFull() error {
	r := q.rarities()
	if r.recvFull == nil {
		r.recvFull = errs.On("post receive", q.num.Object(), syscall.ENOMEM, "receive queue is full (%d work requests)", q.rq.cap())
	}
	return r.recvFull
}

// checkRecv refuses what ibv_post_recv refuses.
func (q *QP) checkRecv(wr *RecvWR) error {
	if q.typ > UD || q.srq != nil || q.state == Reset || len(wr.SG) > int(q.rq.maxSGE) || q.state != Err && q.recvs() >= q.rq.cap() || total(wr.SG) > MaxMessage {
		return q.refuseRecv(wr)
	}
	return nil
}

// refuseRecv says why checkRecv refuses a receive.
func (q *QP) refuseRecv(wr *RecvWR) error {
	fail := func(errno syscall.Errno, format string, args ...any) error {
		return errs.On("post receive", q.num.Object(), errno, format, args...)
	}
	switch {
	case q.typ > UD:
		switch q.typ {
		case DCI:
			return fail(syscall.EINVAL, "a DCI receives nothing")
		case DCT:
			return fail(syscall.EINVAL, "receives come from shared receive queue %v; post there", q.srq.num)
		}
		return fail(syscall.EINVAL, "%v queue pairs have no receives; post to a shared receive queue of the XRC domain", q.typ)
	case q.srq != nil:
		return fail(syscall.EINVAL, "receives come from shared receive queue %v; post there", q.srq.num)
	case q.state == Reset:
		return fail(syscall.EINVAL, "state is RESET; move the queue pair to INIT first")
	case len(wr.SG) > int(q.rq.maxSGE):
		return fail(syscall.EINVAL, "%d scatter elements, the queue pair has %d", len(wr.SG), q.rq.maxSGE)
	case q.state != Err && q.recvs() >= q.rq.cap():
		return q.recvQueueFull()
	}
	return fail(syscall.EINVAL, "receive buffer of %d bytes, the limit is 2^31", total(wr.SG))
}

// recvs returns how many receives are not complete: those of the own queue, and the one in
// use.
func (q *QP) recvs() int {
	n := q.rq.len()
	if q.rq.shared != nil {
		n += q.rq.shared.Len()
	}
	if q.responder.held {
		n++
	}
	if q.cross != nil {
		n += q.cross.held.len()
	}
	return n
}

// nextRecv returns the scatter list of the receive for the message in progress: the receive
// in use or, if there is none, the oldest of the queue. ok is false if the queue is empty.
func (q *QP) nextRecv() (sg []mr.SGE, ok bool) {
	if s := &q.responder; s.held {
		return s.recv.list(), true
	}
	from := q.recvQueue()
	if !from.ready() {
		return nil, false
	}
	return from.list(from.front()), true
}

// hasRecv reports whether there is a receive for the message in progress.
func (q *QP) hasRecv() bool { return q.responder.held || q.recvQueue().ready() }

// recvQueue returns the queue that the message in progress takes its receive from.
func (q *QP) recvQueue() *recvQueue {
	if s := q.responder.srq; s != nil {
		return &s.rq
	}
	return &q.rq
}

// consumeRecv takes the oldest receive off its queue and makes it the one in use, unless a
// receive is in use. The caller has checked that there is one. endRecv completes it exactly
// once, whatever happens to the queue pair.
func (q *QP) consumeRecv() {
	s := &q.responder
	if s.held {
		return
	}
	s.held, s.from = true, s.srq
	s.recv.take(q.recvQueue())
	if s.from != nil {
		s.from.taken()
	}
}

// place copies data to message offset off of the receive in use. Its elements
// are in the domain of the queue it was posted to.
func (q *QP) place(off uint32, data []byte) mr.Fault {
	s, pd := &q.responder, q.pd
	if s.from != nil {
		pd = s.from.pd
	}
	return scatter(&s.trail, q.mem, pd, s.recv.list(), &s.scatter, off, data)
}

// endRecv ends the use of the receive in use and begins its completion. The caller sets the
// result in the completion and delivers it by reportRecv.
func (q *QP) endRecv() (into *cq.CQ, wc *cq.WC) {
	s := &q.responder
	into = q.recvCQ
	if s.from != nil && s.from.cq != nil {
		into = s.from.cq
	}
	if s.from == nil {
		q.rq.done()
	}
	s.releaseRecv()
	return into, q.beginRecv(into, s.recv.id)
}

// failRecv completes the receive in use with an error.
func (q *QP) failRecv(status cq.Status) {
	into, wc := q.endRecv()
	wc.Status = status
	q.reportRecv(into, wc, false)
}

// flushRecv completes a receive of the own queue that no message uses.
func (q *QP) flushRecv(id uint64) {
	wc := q.beginRecv(q.recvCQ, id)
	wc.Status = cq.WRFlushErr
	q.reportRecv(q.recvCQ, wc, false)
}

// beginRecv begins the completion of a receive.
func (q *QP) beginRecv(into *cq.CQ, id uint64) *cq.WC {
	wc := into.Next()
	wc.ID, wc.Opcode, wc.QPN = id, cq.OpRecv, q.num
	return wc
}

// releaseRecv ends the use of the receive in use, if there is one.
func (s *responder) releaseRecv() {
	if s.held && s.from != nil {
		s.from.inUse--
	}
	s.held, s.from = false, nil
}

// reportRecv delivers the completion of a receive. If the completion queue is full, the queue
// pair goes to ERR and raises an event: otherwise the receive would be lost silently (IBTA
// 11.6.3.2: an error that no completion can report).
func (q *QP) reportRecv(into *cq.CQ, wc *cq.WC, solicited bool) {
	if wc.Status == cq.Success {
		q.cnt.RDMARecvs++
	}
	if !into.Publish(wc, solicited) && q.state != Err {
		q.event(EventFatal)
		q.fail(cq.WRFlushErr)
	}
}

// flushRecvs completes every receive, the one in use first. Those in a shared
// queue stay there.
func (q *QP) flushRecvs() {
	if q.cross != nil {
		q.cross.recvs = enableState{}
		q.releaseRecvs(q.cross.held.len())
	}
	for q.responder.held || q.rq.ready() {
		q.consumeRecv()
		q.failRecv(cq.WRFlushErr)
	}
}
