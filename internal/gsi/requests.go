package gsi

import (
	"context"
	"slices"
	"sync"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/internal/notify"
)

// RequestQueue holds the requests of a listener until the program takes them. It serves the
// sources of requests in turn, so that a source with many requests does not delay the
// others.
type RequestQueue[T comparable] struct {
	nic   *nic.NIC
	ready notify.Chan   // there is a request
	done  chan struct{} // closed with the listener

	mu       sync.Mutex
	requests []queuedRequest[T] // oldest first
	served   map[bth.GID]uint64 // the last turn of each source
	turn     uint64
	err      error // reason why there will be no more requests; nil: there may be more
}

type queuedRequest[T comparable] struct {
	request T
	source  bth.GID // see cm.SourceOf
}

// Init prepares the queue of a listener.
func (q *RequestQueue[T]) Init(n *nic.NIC) {
	q.nic, q.ready, q.done = n, notify.New(), make(chan struct{})
}

// Push adds a request from an address. It returns false if the listener is closed.
func (q *RequestQueue[T]) Push(r T, from bth.GID) bool {
	q.mu.Lock()
	closed := q.err != nil
	if !closed {
		q.requests = append(q.requests, queuedRequest[T]{r, cm.SourceOf(from)})
	}
	q.mu.Unlock()
	if closed {
		return false
	}
	q.ready.Notify()
	return true
}

// Remove removes a request that its sender has given up.
func (q *RequestQueue[T]) Remove(r T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.requests = slices.DeleteFunc(q.requests, func(o queuedRequest[T]) bool { return o.request == r })
}

// pick takes the oldest request of the source whose last turn is longest ago. The caller
// holds the lock; there must be a request.
func (q *RequestQueue[T]) pick() T {
	best := 0
	for i, r := range q.requests {
		if q.served[r.source] < q.served[q.requests[best].source] {
			best = i
		}
	}
	r := q.requests[best]
	q.requests = slices.Delete(q.requests, best, best+1)
	if q.served == nil || len(q.requests) == 0 {
		q.served = map[bth.GID]uint64{}
	}
	q.turn++
	q.served[r.source] = q.turn
	if len(q.served) > 2*len(q.requests)+64 { // most entries belong to sources without requests
		waiting := map[bth.GID]uint64{r.source: q.turn}
		for _, o := range q.requests {
			waiting[o.source] = q.served[o.source]
		}
		q.served = waiting
	}
	return r.request
}

// Next waits for a request and takes it.
func (q *RequestQueue[T]) Next(ctx context.Context) (r T, err error) {
	if q.nic.Polled() {
		q.nic.Progress() // a request may have ended since the last call
	}
	for {
		err = q.nic.Wait(ctx, q.ready, q.done, func() bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			return len(q.requests) > 0
		})
		q.mu.Lock()
		if len(q.requests) > 0 {
			r = q.pick()
			more := len(q.requests) > 0
			q.mu.Unlock()
			if more { // wake another waiter, because two requests may have left one token
				q.ready.Notify()
			}
			return r, nil
		}
		if err != nil && q.err != nil {
			err = q.err
		}
		q.mu.Unlock()
		if err != nil {
			return r, err
		}
	}
}

// Close ends the queue: callers of Next fail with why. It returns the remaining requests.
func (q *RequestQueue[T]) Close(why error) (rest []T, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return nil, errs.ErrClosed
	}
	q.err = why
	for _, r := range q.requests {
		rest = append(rest, r.request)
	}
	q.requests = nil
	close(q.done)
	return rest, nil
}
