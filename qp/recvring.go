package qp

import "github.com/goroce/roce/mr"

// RecvRing is a ring of receives in memory that the owner of a queue pair shares with its program. As with an adapter's receive
// queue, the program adds receives without a call, and the responder takes one when it needs it.
//
// The program may add receives while the ring is open. When it has added one, it looks whether the ring is open still. If not, it has
// the owner call [QP.EndRecvs], which flushes receives that were added while the queue pair failed.
//
// A receive in the ring has one element at most. Receives that are posted with [QP.PostRecv] come behind those that the ring has then; nobody may add to the
// ring meanwhile. The queue pair has at most Caps.MaxRecvWR receives in both ways: Done tells the program how many have ended.
type RecvRing struct {
	Open func(bool) // true: the queue pair has left RESET; false: it enters RESET or ERR
	Len  func() int // how many receives there are

	Done func(int) // so many receives have ended that the program had added or posted; less than 0: it has posted some with a call

	// Next takes the oldest receive, which has so many elements. ok is false if there is none.
	Next func() (id uint64, sg [1]mr.SGE, elements int, ok bool)
}

// fetch moves the oldest receive of the shared ring to the queue. It returns false if there is none, or if the program has added more than
// the queue has room for.
func (q *recvQueue) fetch() bool {
	if q.len() == q.cap() {
		return false
	}
	id, sg, n, ok := q.shared.Next()
	if ok {
		q.push(id, sg[:n])
	}
	return ok
}

// openRecvRing tells the program whether it may add receives.
func (q *QP) openRecvRing(open bool) {
	if q.rq.shared != nil {
		q.rq.shared.Open(open)
	}
}

// EndRecvs flushes what the program has added to its [RecvRing] after the queue pair had entered ERR. In RESET it
// drops the same.
func (q *QP) EndRecvs() {
	switch q.state {
	case Err:
		q.flushRecvs()
	case Reset:
		q.dropRecvs()
	}
}

// dropRecvs empties the receive queue without completions.
func (q *QP) dropRecvs() {
	n := q.rq.len()
	if q.responder.held {
		n++
	}
	q.rq.clear()
	r := q.rq.shared
	if r == nil {
		return
	}
	for {
		if _, _, _, ok := r.Next(); !ok {
			break
		}
		n++
	}
	r.Done(n)
}

// ForgetRecvRing ends the use of the ring: its memory may be freed afterwards.
func (q *QP) ForgetRecvRing() { q.rq.shared = nil }
