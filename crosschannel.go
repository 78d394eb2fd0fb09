package roce

import (
	"slices"
	"strconv"
	"syscall"

	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/qp"
)

// Task is a list of work requests for one queue of a queue pair (struct ibv_exp_task): sends or
// receives, not both.
type Task struct {
	QP    *QP
	Sends []SendWR
	Recvs []RecvWR
}

// PostTask posts the work requests of several queue pairs at once: all of them or, if one is
// refused, none (ibv_exp_post_task). bad is the task of the one that is refused, the error
// says which of the task it is. Without an error it is len(tasks).
//
// All queue pairs are of one shard, and the completion queues and queue pairs that work
// requests name are of the same one. A refusal is an *[Error]: EINVAL for a task without a queue
// pair or with none or both of the lists, for a queue pair of another device or shard, and for
// what [QP.PostSend] and [QP.PostRecv] refuse with it; ENOMEM if a queue has not room for all
// that the list has for it.
func (d *Device) PostTask(tasks []Task) (bad int, err error) {
	if len(tasks) == 0 {
		return 0, nil
	}
	for i := range tasks {
		if detail := d.checkTask(tasks, i); detail != "" {
			return i, fail("post task", syscall.EINVAL, "task %d: %s", i, detail)
		}
	}
	qps := make([]*nic.QP, len(tasks))
	for i := range tasks {
		qps[i] = &tasks[i].QP.nic
	}
	return tasks[0].QP.nic.Shard().PostAll(qps, func() (int, error) { return postTasks(tasks) })
}

// checkTask says what is wrong with a task as such.
func (d *Device) checkTask(tasks []Task, i int) string {
	t := &tasks[i]
	switch {
	case t.QP == nil:
		return "there is no queue pair"
	case t.QP.dev != d:
		return t.QP.Num().Object() + " is of another device"
	case t.QP.target != nil:
		return t.QP.Num().Object() + " is an XRC target, which takes no work requests"
	case t.QP.nic.Shard() != tasks[0].QP.nic.Shard():
		return t.QP.Num().Object() + " is of another shard than " + tasks[0].QP.Num().Object()
	case (len(t.Sends) == 0) == (len(t.Recvs) == 0):
		return "either sends or receives are needed"
	}
	return ""
}

// postTasks posts the work requests of all tasks if none is refused. The shard is locked.
func postTasks(tasks []Task) (bad int, err error) {
	for i := range tasks {
		t := &tasks[i]
		e := t.QP.nic.Engine()
		sends, recvs := ahead(tasks[:i], t.QP)
		for n := range t.Sends {
			if err := t.QP.checkAH(&t.Sends[n]); err != nil {
				return i, inTask(i, n, err)
			}
			if err := e.CheckSend(&t.Sends[n], sends+n); err != nil {
				return i, inTask(i, n, err)
			}
		}
		for n := range t.Recvs {
			if err := e.CheckRecv(&t.Recvs[n], recvs+n); err != nil {
				return i, inTask(i, n, err)
			}
		}
	}
	for i := range tasks {
		t := &tasks[i]
		e := t.QP.nic.Engine()
		for n := range t.Sends {
			if err := e.PostSend(&t.Sends[n]); err != nil {
				return i, inTask(i, n, err)
			}
		}
		for n := range t.Recvs {
			if err := e.PostRecv(&t.Recvs[n]); err != nil {
				return i, inTask(i, n, err)
			}
		}
	}
	return len(tasks), nil
}

// ahead counts the work requests that tasks have for a queue pair.
func ahead(tasks []Task, q *QP) (sends, recvs int) {
	for i := range tasks {
		if tasks[i].QP == q {
			sends += len(tasks[i].Sends)
			recvs += len(tasks[i].Recvs)
		}
	}
	return sends, recvs
}

// inTask says in the refusal of a work request in which task it is.
func inTask(task, wr int, err error) error {
	in, ok := inList(wr, err).(*Error)
	if !ok {
		return errs.New("post task", err, "task %d", task)
	}
	in.Detail = "task " + strconv.Itoa(task) + ": " + in.Detail
	return in
}

// WaitWR returns the work request that waits for n completions of the queue, of those that
// earlier lists have not waited for (IBV_EXP_WR_CQE_WAIT). Polled or not, they count. Waits in
// a list are for the same completions, up to one with [WaitEnLast]: the waits behind
// that one are for the next completions. See docs/cross-channel.md.
func (c *CQ) WaitWR(id uint64, n uint32, flags SendFlags) SendWR {
	return SendWR{ID: id, Opcode: qp.CQEWait, Flags: flags, WaitCQ: c.q, Count: n}
}

// SendEnableWR returns the work request that releases the next n sends of the queue pair, which
// has QPConfig.ManagedSend (IBV_EXP_WR_SEND_ENABLE). 0 is all that are posted when it is executed.
func (q *QP) SendEnableWR(id uint64, n uint32, flags SendFlags) SendWR {
	return SendWR{ID: id, Opcode: qp.SendEnable, Flags: flags, Enable: q.nic.Engine(), Count: n}
}

// RecvEnableWR is SendEnableWR for receives (IBV_EXP_WR_RECV_ENABLE).
func (q *QP) RecvEnableWR(id uint64, n uint32, flags SendFlags) SendWR {
	return SendWR{ID: id, Opcode: qp.RecvEnable, Flags: flags, Enable: q.nic.Engine(), Count: n}
}

// SetIgnoreOverrun changes CQConfig.IgnoreOverrun (ibv_exp_modify_cq with
// IBV_EXP_CQ_IGNORE_OVERRUN). EINVAL for a queue without CrossChannel.
func (c *CQ) SetIgnoreOverrun(on bool) error {
	c.shard.Lock()
	defer c.shard.Unlock()
	if c.closed {
		return ErrClosed
	}
	return c.q.SetIgnoreOverrun(on)
}

// Reductions; see [SendWR] and docs/cross-channel.md.
type (
	Calc     = qp.Calc
	CalcOp   = qp.CalcOp
	CalcType = qp.CalcType
	CalcSize = qp.CalcSize
)

// The operations, types and sizes of reductions.
const (
	CalcAdd   = qp.CalcAdd
	CalcBAnd  = qp.CalcBAnd
	CalcBXor  = qp.CalcBXor
	CalcBOr   = qp.CalcBOr
	CalcInt   = qp.CalcInt
	CalcUint  = qp.CalcUint
	CalcFloat = qp.CalcFloat
	Calc64Bit = qp.Calc64Bit
)

// CalcCap says which reductions a device offers (struct ibv_exp_device_calc_cap).
type CalcCap struct {
	Types    []CalcType
	Sizes    []CalcSize
	IntOps   []CalcOp
	UintOps  []CalcOp
	FloatOps []CalcOp
}

// Offers reports whether a reduction is among them.
func (c *CalcCap) Offers(r Calc) bool {
	ops := map[CalcType][]CalcOp{CalcInt: c.IntOps, CalcUint: c.UintOps, CalcFloat: c.FloatOps}[r.Type]
	return slices.Contains(c.Types, r.Type) && slices.Contains(c.Sizes, r.Size) && slices.Contains(ops, r.Op)
}

func calcCap() CalcCap {
	return CalcCap{Types: []CalcType{CalcInt, CalcUint, CalcFloat}, Sizes: []CalcSize{Calc64Bit},
		IntOps: qp.CalcOps(CalcInt), UintOps: qp.CalcOps(CalcUint), FloatOps: qp.CalcOps(CalcFloat)}
}
