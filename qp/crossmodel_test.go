package qp_test

import (
	"fmt"
	"slices"
	"syscall"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/qp"
)

// A model of cross-channel communication without packets and time: queues, counts, and the work requests that are
// held or wait. Each queue has one queue pair that enables it, and only a queue pair whose peer sends nothing fails
// by itself. So the final state does not depend on the order of independent events.

// modelCQ is a completion queue.
type modelCQ struct {
	name       string
	count      uint64
	base, most uint64 // of the lists of waits
	waits      int    // posted
	closed     bool
	fresh      []string // completions that were not compared yet
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

// modelEnableState counts the held work requests of a managed queue, and those that are enabled in advance.
type modelEnableState struct{ held, credit int }

// modelKind is the kind of a work request in the model.
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
	sendEnable       modelEnableState
	recvCredit       int
	sendCap, recvCap int
	memory           []byte
}

// checkSend returns the error that CheckSend must return.
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

// postSend queues a work request that checkSend has accepted.
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
		if q.sendEnable.credit > 0 {
			q.sendEnable.credit--
		} else {
			q.sendEnable.held++
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
	q.failed, q.sendEnable, q.recvCredit = true, modelEnableState{}, 0
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
		n = q.sendEnable.held
	}
	for _, w := range q.sq[len(q.sq)-q.sendEnable.held:] {
		if n == 0 {
			return
		}
		w.held = false
		q.sendEnable.held--
		n--
	}
	q.sendEnable.credit += n
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

// runModel lets the queue pairs work until none of them can continue.
func runModel(qps ...*modelQP) {
	for again := true; again; {
		again = false
		for _, q := range qps {
			again = q.reach() || again
			again = q.finish() || again
		}
	}
}

// opcode returns the engine's opcode of a work request.
func (w *modelWR) opcode() qp.Opcode {
	return [...]qp.Opcode{modelSend: qp.Send, modelWrite: qp.Write, modelBad: qp.Send, modelWait: qp.CQEWait,
		modelSendEnable: qp.SendEnable, modelRecvEnable: qp.RecvEnable, modelRefused: qp.CQEWait}[w.kind]
}
