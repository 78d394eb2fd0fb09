package qp_test

import (
	"fmt"
	"slices"
	"syscall"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/qp"
)

// A model of cross-channel communication, without packets and time: queues, counts and what holds
// what back. Each queue has one queue pair that enables it, and only a queue pair whose peer sends nothing
// fails by itself, so what is left when nothing goes on any more does not depend on which of several things comes
// first.

// modelCQ is a completion queue.
type modelCQ struct {
	name       string
	count      uint64
	base, most uint64 // of the lists of waits
	waits      int    // posted
	closed     bool
	fresh      []string // completions that were not looked at
}

func (c *modelCQ) push(id uint64, s cq.Status) {
	c.count++
	c.fresh = append(c.fresh, fmt.Sprintf("%d %v", id, s))
}

// await is the count that a new wait is for.
func (c *modelCQ) await(n uint64, last bool) uint64 {
	c.most = max(c.most, n)
	target := c.base + n
	if last {
		c.base, c.most = c.base+c.most, 0
	}
	return target
}

// modelGate is a managed queue.
type modelGate struct{ held, credit int }

// modelKind is what a work request is in the model.
type modelKind int

const (
	modelSend modelKind = iota
	modelWrite
	modelBad // its list is outside of memory
	modelWait
	modelSendEnable
	modelRecvEnable
	modelRefused // EINVAL while posting
)

// modelWR is a work request.
type modelWR struct {
	id       uint64
	kind     modelKind
	signaled bool
	held     bool
	done     bool // a local operation that was executed
	wait     *modelCQ
	last     bool   // of a list of waits
	count    uint64 // of a wait or an enabling
	target   uint64 // of a wait
	enable   *modelQP
	slot     int    // of a WRITE
	data     []byte // of a WRITE
}

// modelQP is a queue pair.
type modelQP struct {
	peer             *modelQP
	managed, failed  bool
	sendCQ, recvCQ   *modelCQ
	sq               []*modelWR
	reached          int // how many of sq were transmitted or executed
	rq, heldRecvs    []uint64
	sendGate         modelGate
	recvCredit       int
	sendCap, recvCap int
	memory           []byte
}

// checkSend is what CheckSend says.
func (q *modelQP) checkSend(w *modelWR, ahead int) error {
	switch {
	case !q.failed && len(q.sq)+ahead >= q.sendCap:
		return syscall.ENOMEM
	case w.kind == modelRefused, w.kind == modelWait && (w.wait.closed || w.count == 0):
		return syscall.EINVAL
	}
	return nil
}

func (q *modelQP) checkRecv(ahead int) error {
	if !q.failed && len(q.rq)+len(q.heldRecvs)+ahead >= q.recvCap {
		return syscall.ENOMEM
	}
	return nil
}

// postSend queues a work request that checkSend has nothing against.
func (q *modelQP) postSend(w *modelWR) {
	if w.kind == modelWait {
		w.target = w.wait.await(w.count, w.last)
		w.wait.waits++
	}
	if q.sq = append(q.sq, w); q.failed {
		q.flushSends()
		return
	}
	if q.managed {
		if q.sendGate.credit > 0 {
			q.sendGate.credit--
		} else {
			q.sendGate.held++
			w.held = true
		}
	}
}

func (q *modelQP) postRecv(id uint64) {
	switch {
	case q.failed:
		q.recvCQ.push(id, cq.WRFlushErr)
	case q.managed && q.recvCredit == 0:
		q.heldRecvs = append(q.heldRecvs, id)
	default:
		if q.managed {
			q.recvCredit--
		}
		q.rq = append(q.rq, id)
	}
}

// retire takes the oldest work request from the queue.
func (q *modelQP) retire(s cq.Status) {
	w := q.sq[0]
	q.sq = q.sq[1:]
	q.reached = max(0, q.reached-1)
	if w.kind == modelWait {
		w.wait.waits--
	}
	if w.signaled || s != cq.Success {
		q.sendCQ.push(w.id, s)
	}
}

func (q *modelQP) flushSends() {
	for len(q.sq) > 0 {
		q.retire(cq.WRFlushErr)
	}
}

// fail moves the queue pair to ERR.
func (q *modelQP) fail() {
	q.failed, q.sendGate, q.recvCredit = true, modelGate{}, 0
	q.flushSends()
	for _, id := range slices.Concat(q.rq, q.heldRecvs) {
		q.recvCQ.push(id, cq.WRFlushErr)
	}
	q.rq, q.heldRecvs = nil, nil
}

// reach transmits or executes the next work request, if nothing holds it back.
func (q *modelQP) reach() bool {
	if q.reached == len(q.sq) {
		return false
	}
	w := q.sq[q.reached]
	switch {
	case w.held, w.kind == modelBad, w.kind == modelWait && w.wait.count < w.target:
		return false
	case w.kind == modelSendEnable:
		w.enable.enableSends(int(w.count))
	case w.kind == modelRecvEnable:
		w.enable.enableRecvs(int(w.count))
	}
	w.done = w.kind >= modelWait
	q.reached++
	return true
}

// finish completes the oldest work request, if it can.
func (q *modelQP) finish() bool {
	if len(q.sq) == 0 || q.failed {
		return false
	}
	w := q.sq[0]
	switch {
	case w.kind == modelBad && !w.held:
		q.retire(cq.LocProtErr)
		q.fail()
		return true
	case q.reached == 0:
		return false
	case w.kind == modelSend && len(q.peer.rq) == 0:
		return false
	case w.kind == modelSend:
		q.peer.recvCQ.push(q.peer.rq[0], cq.Success)
		q.peer.rq = q.peer.rq[1:]
	case w.kind == modelWrite:
		copy(q.peer.memory[w.slot:], w.data)
	}
	q.retire(cq.Success)
	return true
}

func (q *modelQP) enableSends(n int) {
	if q.failed {
		return
	}
	if n == 0 {
		n = q.sendGate.held
	}
	for _, w := range q.sq[len(q.sq)-q.sendGate.held:] {
		if n == 0 {
			return
		}
		w.held = false
		q.sendGate.held--
		n--
	}
	q.sendGate.credit += n
}

func (q *modelQP) enableRecvs(n int) {
	if q.failed {
		return
	}
	if n == 0 {
		n = len(q.heldRecvs)
	}
	k := min(n, len(q.heldRecvs))
	q.rq = append(q.rq, q.heldRecvs[:k]...)
	q.heldRecvs = q.heldRecvs[k:]
	q.recvCredit += n - k
}

// settleModel goes on until nothing can.
func settleModel(qps ...*modelQP) {
	for again := true; again; {
		again = false
		for _, q := range qps {
			again = q.reach() || again
			again = q.finish() || again
		}
	}
}

// opcode is that of the engine.
func (w *modelWR) opcode() qp.Opcode {
	return [...]qp.Opcode{modelSend: qp.Send, modelWrite: qp.Write, modelBad: qp.Send, modelWait: qp.CQEWait,
		modelSendEnable: qp.SendEnable, modelRecvEnable: qp.RecvEnable, modelRefused: qp.CQEWait}[w.kind]
}
