package roce

import (
	"strconv"
	"syscall"

	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/qp"
)

// postAll posts the work requests of a list up to the first that is refused, and
// returns how many were queued.
func postAll(list int, post func(i int) error) (n int, err error) {
	for n = range list {
		if err := post(n); err != nil {
			return n, inList(n, err)
		}
	}
	return list, nil
}

// inList says in the refusal of a work request where in the list it is.
func inList(i int, err error) error {
	e, ok := err.(*Error)
	if !ok {
		return errs.New("post", err, "work request %d of the list", i)
	}
	in := *e
	in.Detail = "work request " + strconv.Itoa(i) + " of the list: " + e.Detail
	return &in
}

// PostSend queues a work request and sends what can be sent (ibv_post_send of
// one). wr is copied; the memory it names stays in use until the completion.
// A refusal is an *[Error]. What can be seen without touching memory is refused here;
// what is found later is the Status of the completion.
//
//   - EINVAL: the state is RESET, INIT or RTR; the operation is not one of the
//     service; too many elements or too much inline data; READs and atomics
//     without MaxRdAtomic; an atomic not of 8 aligned bytes; more than 2^31
//     bytes, or for a datagram more than the MTU;
//   - ENOMEM: the send queue is full.
func (q *QP) PostSend(wr *SendWR) error {
	return q.post(func(e *qp.QP) error { return q.postSend(e, wr) })
}

// PostSends queues several work requests with one doorbell (ibv_post_send of a
// list). It stops at the first that is refused, and returns how many were
// queued: wrs[n] is the refused one, bad_wr. The work requests before it are queued, it and
// those behind it are not.
func (q *QP) PostSends(wrs []SendWR) (n int, err error) {
	err = q.post(func(e *qp.QP) error {
		n, err = postAll(len(wrs), func(i int) error { return q.postSend(e, &wrs[i]) })
		return err
	})
	return n, err
}

func (q *QP) postSend(e *qp.QP, wr *SendWR) error {
	if wr == nil {
		return errs.On("post send", q.Num().Object(), syscall.EINVAL, "the work request is nil")
	}
	if err := q.checkAH(wr); err != nil {
		return err
	}
	return e.PostSend(wr)
}

// PostRecv queues a receive (ibv_post_recv of one). wr is copied; the memory it
// names stays in use until the completion. A refusal is a *[Error]: EINVAL in
// RESET, with too many elements, and on a queue pair whose receives come from a
// shared queue (post to [SRQ.PostRecv]); ENOMEM when the receive queue is full.
func (q *QP) PostRecv(wr *RecvWR) error {
	if wr == nil {
		return errs.On("post receive", q.Num().Object(), syscall.EINVAL, "the work request is nil")
	}
	return q.nic.Locked(func(e *qp.QP) error { return e.PostRecv(wr) })
}

// PostRecvs queues several receives (ibv_post_recv of a list). It stops at the
// first that is refused, and returns how many were queued: wrs[n]
// is the refused one.
func (q *QP) PostRecvs(wrs []RecvWR) (n int, err error) {
	err = q.nic.Locked(func(e *qp.QP) error {
		n, err = postAll(len(wrs), func(i int) error { return e.PostRecv(&wrs[i]) })
		return err
	})
	return n, err
}

// post runs f on the engine and sends what comes of it. An XRC target takes no work requests:
// there is nothing to send.
func (q *QP) post(f func(*qp.QP) error) error {
	if q.target != nil {
		return q.nic.Locked(f)
	}
	return q.nic.Post(f)
}

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
