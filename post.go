package roce

import (
	"strconv"
	"syscall"

	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/qp"
)

// postRecvs posts the receives of a list up to the first refused one, and returns the number of
// queued ones.
func postRecvs(to interface{ PostRecv(*RecvWR) error }, wrs []RecvWR) (n int, err error) {
	for n = range wrs {
		if err := to.PostRecv(&wrs[n]); err != nil {
			return n, inList(n, err)
		}
	}
	return len(wrs), nil
}

// inList adds the place in the list to the error of a refused work request.
func inList(i int, err error) error {
	e, ok := err.(*Error)
	if !ok {
		return errs.New("post", err, "work request %d of the list", i)
	}
	in := *e
	in.Detail = "work request " + strconv.Itoa(i) + " of the list: " + e.Detail
	return &in
}

// PostSend queues a work request and sends the packets that can leave now
// (ibv_post_send of one). It copies wr; the memory that wr names stays in use until
// the completion. The error of a refused work request is an *[Error]. PostSend
// reports errors that it can detect without access to memory; later errors are the
// Status of the completion.
//
//   - EINVAL: the state is RESET, INIT or RTR; the operation is not one of the
//     service; too many elements or too much inline data; READs and atomics
//     without MaxRdAtomic; an atomic not of 8 aligned bytes; more than 2^31
//     bytes, or for a datagram more than the MTU;
//   - ENOMEM: the send queue is full.
func (q *QP) PostSend(wr *SendWR) error {
	return q.post(1, func(e *qp.QP) error { return q.postSend(e, wr) })
}

// PostSends queues several work requests with one doorbell (ibv_post_send of a list). It
// stops at the first refused work request, wrs[n] (bad_wr), and returns n: those before it
// are queued, it and those after it are not.
func (q *QP) PostSends(wrs []SendWR) (n int, err error) {
	err = q.post(len(wrs), func(e *qp.QP) error {
		n, err = q.postSends(e, wrs)
		return err
	})
	return n, err
}

// postSends posts a list up to the first refused work request.
func (q *QP) postSends(e *qp.QP, wrs []SendWR) (n int, err error) {
	for n = range wrs {
		if err := q.postSend(e, &wrs[n]); err != nil {
			return n, inList(n, err)
		}
	}
	return len(wrs), nil
}

// PostCollected is PostSends for a front end that collects work requests, see [Options.Collect]: calls is how many
// times the program has posted. The front end may collect up to room work requests after
// that, as the queue will accept them, while [CQ.Collecting] of its completion queue allows it.
func (q *QP) PostCollected(wrs []SendWR, calls int) (n, room int, err error) {
	if q.target != nil { // which accepts none
		n, err = q.PostSends(wrs)
		return n, 0, err
	}
	single, err := q.nic.PostCollected(len(wrs), calls, func(e *qp.QP) error {
		n, err = q.postSends(e, wrs)
		room = e.SendRoom()
		return err
	})
	if single {
		room = 0 // the next one should leave at once, too
	}
	return n, room, err
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

// PostRecv queues a receive (ibv_post_recv of one). It copies wr; the memory
// that wr names stays in use until the completion. It fails with an *[Error]:
// EINVAL in RESET, with too many elements, and on a queue pair with a shared
// receive queue (use [SRQ.PostRecv]); ENOMEM if the receive queue is full.
func (q *QP) PostRecv(wr *RecvWR) error {
	if wr == nil {
		return errs.On("post receive", q.Num().Object(), syscall.EINVAL, "the work request is nil")
	}
	return q.nic.Locked(func(e *qp.QP) error { return e.PostRecv(wr) })
}

// PostRecvs queues several receives (ibv_post_recv of a list). It stops at the
// first refused receive, wrs[n], and returns n.
func (q *QP) PostRecvs(wrs []RecvWR) (n int, err error) {
	err = q.nic.Locked(func(e *qp.QP) error {
		n, err = postRecvs(e, wrs)
		return err
	})
	return n, err
}

// EndRecvs completes the receives that a program has added to its [RecvRing] after the queue pair had failed, with
// WR_FLUSH_ERR. In RESET it drops them.
func (q *QP) EndRecvs() error {
	return q.nic.Locked(func(e *qp.QP) error {
		e.EndRecvs()
		return nil
	})
}

// post runs f, which posts n work requests, on the engine and sends the resulting packets. An XRC target accepts no work
// requests and sends nothing.
func (q *QP) post(n int, f func(*qp.QP) error) error {
	if q.target != nil {
		return q.nic.Locked(f)
	}
	return q.nic.Post(n, f)
}

// Task is a list of work requests for one queue of a queue pair (struct ibv_exp_task): sends or
// receives, not both.
type Task struct {
	QP    *QP
	Sends []SendWR
	Recvs []RecvWR
}

// PostTask posts the work requests of several queue pairs at once: all of them or, if one is
// refused, none (ibv_exp_post_task). bad is the index of the task with the refused work
// request; the error has the work request's place in the task. Without an error bad is
// len(tasks).
//
// All queue pairs, and the completion queues and queue pairs that work requests name, must be of
// one shard. PostTask fails with an *[Error]: EINVAL for a task without a queue pair or with
// none or both of the lists, for a queue pair of another device or shard, and where
// [QP.PostSend] and [QP.PostRecv] return EINVAL; ENOMEM if a queue does not have room for all
// its work requests in the list.
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

// checkTask returns the fault of a task apart from its work requests, or an
// empty string.
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

// postTasks posts the work requests of all tasks if none is refused. The caller holds the
// lock of the shard.
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

// ahead counts the work requests in tasks for a queue pair.
func ahead(tasks []Task, q *QP) (sends, recvs int) {
	for i := range tasks {
		if tasks[i].QP == q {
			sends += len(tasks[i].Sends)
			recvs += len(tasks[i].Recvs)
		}
	}
	return sends, recvs
}

// inTask adds the task to the error of a refused work request.
func inTask(task, wr int, err error) error {
	in, ok := inList(wr, err).(*Error)
	if !ok {
		return errs.New("post task", err, "task %d", task)
	}
	in.Detail = "task " + strconv.Itoa(task) + ": " + in.Detail
	return in
}

// WaitWR returns the work request that waits for n completions of the queue
// (IBV_EXP_WR_CQE_WAIT). Completions count whether the program has polled them or not, and
// those with an error, too: a program that polls none looks at [QP.State] at the end. All
// waits of a list count from the same completion; a list ends with the wait that has
// [WaitEnLast], and the next list counts from the completions after it. See
// docs/cross-channel.md.
func (c *CQ) WaitWR(id uint64, n uint32, flags SendFlags) SendWR {
	return SendWR{ID: id, Opcode: qp.CQEWait, Flags: flags, WaitCQ: c.q, Count: n}
}

// SendEnableWR returns the work request that releases the next n sends of the queue pair, which
// has QPConfig.ManagedSend (IBV_EXP_WR_SEND_ENABLE). n 0 releases all sends that are posted when
// it is executed.
func (q *QP) SendEnableWR(id uint64, n uint32, flags SendFlags) SendWR {
	return SendWR{ID: id, Opcode: qp.SendEnable, Flags: flags, Enable: q.nic.Engine(), Count: n}
}

// RecvEnableWR is SendEnableWR for receives (IBV_EXP_WR_RECV_ENABLE).
func (q *QP) RecvEnableWR(id uint64, n uint32, flags SendFlags) SendWR {
	return SendWR{ID: id, Opcode: qp.RecvEnable, Flags: flags, Enable: q.nic.Engine(), Count: n}
}
