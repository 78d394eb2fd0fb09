package roce

import (
	"context"
	"slices"
	"sync"
)

// requestQueue holds what peers ask a listener for until somebody takes it.
type requestQueue[T comparable] struct {
	dev    *Device
	signal chan struct{} // holds a token when there is a request
	done   chan struct{} // closed with the listener

	mu       sync.Mutex
	requests []T   // oldest first
	err      error // why there will be no more, if so
}

func (q *requestQueue[T]) init(d *Device) {
	q.dev, q.signal, q.done = d, make(chan struct{}, 1), make(chan struct{})
}

// push adds a request, and reports false if the listener is closed.
func (q *requestQueue[T]) push(r T) bool {
	q.mu.Lock()
	closed := q.err != nil
	if !closed {
		q.requests = append(q.requests, r)
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
	q.requests = slices.DeleteFunc(q.requests, func(o T) bool { return o == r })
}

// next waits for the oldest request and takes it.
func (q *requestQueue[T]) next(ctx context.Context) (r T, err error) {
	for {
		err = q.dev.wait(ctx, q.signal, q.done, func() bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			return len(q.requests) > 0
		})
		q.mu.Lock()
		if len(q.requests) > 0 {
			r, q.requests = q.requests[0], q.requests[1:]
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
	rest, q.requests = q.requests, nil
	close(q.done)
	return rest, nil
}
