package roce

import (
	"fmt"
	"syscall"

	"github.com/goroce/roce/qp"
)

// PostError is a work request of a list that was refused: those before it are
// queued, it and those behind it are not (bad_wr of ibv_post_send). It unwraps to
// the refusal.
type PostError struct {
	Index int // in the list
	Err   error
}

func (e *PostError) Error() string {
	return fmt.Sprintf("roce: work request %d of the list: %v", e.Index, e.Err)
}

// Unwrap returns the refusal, a *[qp.Error] mostly.
func (e *PostError) Unwrap() error { return e.Err }

// postAll posts the work requests of a list up to the first that is refused, and
// returns how many were queued.
func postAll(list int, post func(i int) error) (n int, err error) {
	for n = range list {
		if err := post(n); err != nil {
			return n, &PostError{n, err}
		}
	}
	return list, nil
}

// PostSend queues a work request and sends what can be sent (ibv_post_send of
// one). wr is copied; the memory it names stays in use until the completion.
// A refusal is a *[qp.Error], or an *[Error] (EINVAL) if the address handle is
// another device's. What can be seen without touching memory is refused here;
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
// list). It stops at the first that is refused, which the *[PostError] names, and
// returns how many were queued.
func (q *QP) PostSends(wrs []SendWR) (n int, err error) {
	err = q.post(func(e *qp.QP) error {
		n, err = postAll(len(wrs), func(i int) error { return q.postSend(e, &wrs[i]) })
		return err
	})
	return n, err
}

func (q *QP) postSend(e *qp.QP, wr *SendWR) error {
	if wr == nil {
		return fail("post send", syscall.EINVAL, "qp %v: the work request is nil", q.num)
	}
	if err := q.checkAH(wr); err != nil {
		return err
	}
	return e.PostSend(wr)
}

// PostRecv queues a receive (ibv_post_recv of one). wr is copied; the memory it
// names stays in use until the completion. A refusal is a *[qp.Error]: EINVAL in
// RESET, with too many elements, and on a queue pair whose receives come from a
// shared queue (post to [SRQ.PostRecv]); ENOMEM when the receive queue is full.
func (q *QP) PostRecv(wr *RecvWR) error {
	if wr == nil {
		return fail("post receive", syscall.EINVAL, "qp %v: the work request is nil", q.num)
	}
	return q.locked(func() error { return q.engine.PostRecv(wr) })
}

// PostRecvs queues several receives (ibv_post_recv of a list). It stops at the
// first that is refused, which the *[PostError] names, and returns how many were
// queued.
func (q *QP) PostRecvs(wrs []RecvWR) (n int, err error) {
	err = q.locked(func() error {
		n, err = postAll(len(wrs), func(i int) error { return q.engine.PostRecv(&wrs[i]) })
		return err
	})
	return n, err
}

// post runs f on the engine and sends what comes of it. An XRC target takes no work requests:
// there is nothing to send.
func (q *QP) post(f func(*qp.QP) error) error {
	if q.target != nil {
		return q.locked(func() error { return f(q.engine) })
	}
	return q.shard.post(q, f)
}

// locked runs f with the shard locked, if the queue pair exists.
func (q *QP) locked(f func() error) error {
	s := q.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dev.closed || q.closed {
		return ErrClosed
	}
	return f()
}
