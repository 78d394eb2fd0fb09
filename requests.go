package roce

import (
	"context"
	"slices"
	"sync"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
)

// requestQueue holds what peers ask a listener for until the program takes it. The
// sources of the requests take turns, so that one which asks for much does not
// delay the others.
type requestQueue[T comparable] struct {
	dev    *Device
	signal chan struct{} // holds a token when there is a request
	done   chan struct{} // closed with the listener

	mu       sync.Mutex
	requests []queuedRequest[T] // oldest first
	served   map[bth.GID]uint64 // when a source had its turn last
	turn     uint64
	err      error // why there will be no more, if so
}

type queuedRequest[T comparable] struct {
	request T
	source  bth.GID // see cm.SourceOf
}

func (q *requestQueue[T]) init(d *Device) {
	q.dev, q.signal, q.done = d, make(chan struct{}, 1), make(chan struct{})
}

// push adds a request from an address, and reports false if the listener is closed.
func (q *requestQueue[T]) push(r T, from bth.GID) bool {
	q.mu.Lock()
	closed := q.err != nil
	if !closed {
		q.requests = append(q.requests, queuedRequest[T]{r, cm.SourceOf(from)})
	}
	q.mu.Unlock()
	if closed {
		return false
	}
	token(q.signal)
	return true
}

// remove takes a request back that its sender gave up.
func (q *requestQueue[T]) remove(r T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.requests = slices.DeleteFunc(q.requests, func(o queuedRequest[T]) bool { return o.request == r })
}

// pick takes the oldest request of the source whose turn is longest ago. Called with
// the lock held; there is a request.
func (q *requestQueue[T]) pick() T {
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
	if len(q.served) > 2*len(q.requests)+64 { // of sources that have no more requests
		waiting := map[bth.GID]uint64{r.source: q.turn}
		for _, o := range q.requests {
			waiting[o.source] = q.served[o.source]
		}
		q.served = waiting
	}
	return r.request
}

// next waits for a request and takes it.
func (q *requestQueue[T]) next(ctx context.Context) (r T, err error) {
	if q.dev.polled {
		q.dev.Progress() // a request may be over since somebody looked last
	}
	for {
		err = q.dev.wait(ctx, q.signal, q.done, func() bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			return len(q.requests) > 0
		})
		q.mu.Lock()
		if len(q.requests) > 0 {
			r = q.pick()
			more := len(q.requests) > 0
			q.mu.Unlock()
			if more { // for another waiter: two requests may have left one token
				token(q.signal)
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

// close ends the waiting, says why, and returns what nobody has taken.
func (q *requestQueue[T]) close(why error) (rest []T, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return nil, ErrClosed
	}
	q.err = why
	for _, r := range q.requests {
		rest = append(rest, r.request)
	}
	q.requests = nil
	close(q.done)
	return rest, nil
}
