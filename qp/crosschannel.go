package qp

import (
	"fmt"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
)

// Cross-channel communication (CORE-Direct) lets work requests of one queue pair wait for completions and release
// work requests of another. A program posts a whole collective operation at once and waits only for its end.
//
//   - CQE_WAIT waits until a completion queue has had the given number of completions. Polled and lost
//     completions count. Meanwhile the completion queue keeps the waiting queue pair in a list, and wakes it
//     at the completion that ends the wait. Until then nothing examines the work request.
//   - SEND_ENABLE and RECV_ENABLE release work requests of a managed queue, in order. If
//     they release more than are held, those that are posted later are released at once.
//
// All three are local operations, so localops.go says when they are executed and complete.
//
// A wait blocks only the work requests behind it: the requests before it are acknowledged, the responder answers, and
// receives complete. These rules say how waits end:
//
//   - A queue pair in ERR flushes its waits like all its work requests. Work requests that it should have
//     released stay held until their own queue pair goes to ERR or another SEND_ENABLE or RECV_ENABLE releases them.
//   - Flush completions count, so the failure of a queue pair ends the waits for its completions.
//   - A completion queue that a posted wait names cannot be closed (EBUSY).
//   - Enabling a queue pair that is in ERR or RESET succeeds and does nothing.
//   - Waits in a cycle, each for a completion behind the other, wait for ever, as with hardware. The stack
//     does not detect a cycle, because the completions depend on the peers. Moving one of the queue pairs to
//     ERR ends the cycle.

// cross is the additional state of a queue pair with cross-channel communication.
type cross struct {
	managedSend, managedRecv bool

	sends enableState
	recvs enableState
	held  recvQueue // receives that are not enabled; QP.rq has those that are
	wake  func(*QP)
	owner any

	operand [calcChunk]byte // see gatherCalc
}

// MaxCount is the most completions that a CQE_WAIT waits for.
const MaxCount = 1<<31 - 1

// enableState counts the held work requests of a managed queue, which are its last ones. If none is held, credit is
// how many future ones are enabled in advance.
type enableState struct{ held, credit int }

// add takes a new work request into account and reports whether it is held.
func (g *enableState) add() bool {
	if g.credit > 0 {
		g.credit--
		return false
	}
	g.held++
	return true
}

// open releases n work requests, or with 0 all that are held. It returns how many of them were held.
func (g *enableState) open(n int) (released int) {
	if n == 0 {
		n = g.held
	}
	released = min(n, g.held)
	g.held -= released
	g.credit += n - released
	return released
}

// newCross returns nil for a queue pair without cross-channel communication.
func newCross(c *Config, caps Caps) *cross {
	if !c.CrossChannel && !c.ManagedSend && !c.ManagedRecv {
		return nil
	}
	return &cross{managedSend: c.ManagedSend, managedRecv: c.ManagedRecv, wake: c.Wake, owner: c.Owner, held: newRecvQueue(caps.MaxRecvWR, caps.MaxRecvSGE)}
}

// crossWQE has the fields of SEND_ENABLE, RECV_ENABLE and CQE_WAIT.
type crossWQE struct {
	wait   *cq.CQ
	target uint64 // the wait ends when wait.Count reaches it
	parked bool
	enable *QP
	count  int
}

// post stores the fields of a work request that checkCross has let through.
func (x *crossWQE) post(wr *SendWR) {
	if wr.Opcode == CQEWait {
		wr.WaitCQ.Retain() // checkCross has seen that it is not closed
		x.wait, x.target = wr.WaitCQ, wr.WaitCQ.Await(wr.Count, wr.Flags&WaitEnLast != 0)
		return
	}
	x.enable, x.count = wr.Enable, int(wr.Count)
}

// checkCross returns why a SEND_ENABLE, RECV_ENABLE or CQE_WAIT cannot be posted, or "".
func (q *QP) checkCross(wr *SendWR) string {
	switch {
	case q.cross == nil:
		return fmt.Sprintf("%v needs a queue pair with CrossChannel", wr.Opcode)
	case len(wr.SG) > 0:
		return checkLocal(wr)
	case wr.Count > MaxCount:
		return fmt.Sprintf("%v with a count of %d, the limit is 2^31-1", wr.Opcode, wr.Count)
	case wr.Opcode == CQEWait:
		return q.checkWait(wr)
	}
	return q.checkEnable(wr)
}

func (q *QP) checkWait(wr *SendWR) string {
	switch {
	case wr.WaitCQ == nil:
		return "CQE_WAIT without a completion queue"
	case wr.Count == 0:
		return "CQE_WAIT for no completion"
	}
	if detail := wr.WaitCQ.Waitable(q.cross.owner); detail != "" {
		return "CQE_WAIT: " + detail
	}
	return ""
}

func (q *QP) checkEnable(wr *SendWR) string {
	e := wr.Enable
	switch {
	case e == nil:
		return fmt.Sprintf("%v without a queue pair", wr.Opcode)
	case wr.Count > MaxWR:
		return fmt.Sprintf("%v of %d work requests, the limit is %d", wr.Opcode, wr.Count, MaxWR)
	case wr.Opcode == SendEnable && (e.cross == nil || !e.cross.managedSend):
		return fmt.Sprintf("SEND_ENABLE of %s, whose send queue is not managed", e.num.Object())
	case wr.Opcode == RecvEnable && (e.cross == nil || !e.cross.managedRecv):
		return fmt.Sprintf("RECV_ENABLE of %s, whose receive queue is not managed", e.num.Object())
	case e.cross.owner != q.cross.owner:
		return fmt.Sprintf("%v of %s, which is of another device or shard", wr.Opcode, e.num.Object())
	}
	return ""
}

// CheckSend returns the error that PostSend would return for a work request behind ahead others of the same list, or
// nil. It changes nothing.
func (q *QP) CheckSend(wr *SendWR, ahead int) error {
	if q.state != Err && q.state != SQE && int(q.sq.tail-q.sq.head)+ahead >= q.sq.cap() {
		return q.sendQueueFull()
	}
	_, _, err := q.checkSend(wr)
	return err
}

// CheckRecv is CheckSend for receives.
func (q *QP) CheckRecv(wr *RecvWR, ahead int) error {
	if err := q.checkRecv(wr); err != nil {
		return err
	}
	if q.state != Err && q.recvs()+ahead >= q.rq.cap() {
		return q.recvQueueFull()
	}
	return nil
}

// holdSend holds the work request that was posted last, unless it was enabled in advance.
func (q *QP) holdSend(w *sendWQE) {
	if q.cross.sends.add() {
		w.flags |= held
	}
}

// holdRecv queues a receive of a managed queue.
func (q *QP) holdRecv(wr *RecvWR) {
	if q.cross.recvs.add() {
		q.cross.held.push(wr.ID, wr.SG)
	} else {
		q.rq.push(wr.ID, wr.SG)
	}
}

// releaseRecvs lets messages use the n oldest receives that are held.
func (q *QP) releaseRecvs(n int) {
	h := &q.cross.held
	for range n {
		w := h.front()
		q.rq.push(w.id, h.list(w))
		h.head++
	}
}

func (q *QP) executeSendEnable(w *sendWQE) mr.Fault {
	x := &q.sq.rest(w).local.cross
	e := x.enable
	if e.state == Err || e.state == Reset {
		return mr.OK
	}
	first := e.sq.tail - uint32(e.cross.sends.held)
	for i := range uint32(e.cross.sends.open(x.count)) {
		e.sq.at(first + i).flags &^= held
	}
	(*waiter)(e).Wake()
	return mr.OK
}

func (q *QP) executeRecvEnable(w *sendWQE) mr.Fault {
	x := &q.sq.rest(w).local.cross
	if e := x.enable; e.state != Err && e.state != Reset {
		e.releaseRecvs(e.cross.recvs.open(x.count))
	}
	return mr.OK
}

// executeWait executes a CQE_WAIT whose wait has ended: nothing is left to do.
func (q *QP) executeWait(*sendWQE) mr.Fault { return mr.OK }

// waited reports whether the wait of a CQE_WAIT has ended. If not, the completion queue will wake the queue pair.
func (q *QP) waited(w *sendWQE) bool {
	x := &q.sq.rest(w).local.cross
	if x.wait.Count() >= x.target {
		return true
	}
	if !x.parked {
		x.parked = true
		x.wait.Park(x.target, (*waiter)(q))
	}
	return false
}

// waiter is a queue pair as completion queues know it.
type waiter QP

// Wake tells the owner that the queue pair may go on.
func (w *waiter) Wake() {
	if q := (*QP)(w); q.cross.wake != nil {
		q.cross.wake(q)
	}
}

// endLocal releases the objects that a local operation refers to.
func (q *QP) endLocal(w *sendWQE) {
	local := &q.sq.rest(w).local
	if x := &local.cross; x.wait != nil {
		if x.parked {
			x.wait.Unpark((*waiter)(q))
		}
		x.wait.Release()
	}
	*local = localWQE{}
}

// resetCross drops the local operations and the held receives of a queue pair that goes to RESET.
func (q *QP) resetCross() {
	for i := q.sq.head; i != q.sq.tail; i++ {
		if w := q.sq.at(i); w.kind == kindLocal {
			q.endLocal(w)
		}
	}
	q.cross.sends, q.cross.recvs = enableState{}, enableState{}
	q.cross.held.clear()
}
