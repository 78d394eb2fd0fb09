package roce

import (
	"strconv"
	"syscall"

	"github.com/goroce/roce/errs"
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
