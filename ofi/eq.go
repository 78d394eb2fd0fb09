package ofi

import (
	"context"
	"fmt"
	"sync"
	"syscall"
)

// EventType is what happened, with the values of libfabric.
type EventType uint32

const (
	ConnRequest EventType = 1 // FI_CONNREQ: a peer wants to connect, see Event.Info
	Connected   EventType = 2 // FI_CONNECTED: the endpoint is connected
	Shutdown    EventType = 3 // FI_SHUTDOWN: the connection is over
)

func (t EventType) String() string {
	if n := [...]string{1: "CONNREQ", 2: "CONNECTED", 3: "SHUTDOWN"}; t > 0 && int(t) < len(n) {
		return n[t]
	}
	return fmt.Sprintf("EventType(%d)", uint32(t))
}

// Event is an entry of an event queue (struct fi_eq_cm_entry).
type Event struct {
	Type     EventType
	Passive  *PassiveEndpoint // fid of a ConnRequest
	Endpoint *Endpoint        // fid of the others
	Info     *Info            // ConnRequest: for OpenEndpoint, with the request
	Data     []byte           // the peer's private data
}

// EQError is an error entry (struct fi_eq_err_entry): a connection that did not
// come about. It unwraps to Err.
type EQError struct {
	Endpoint  *Endpoint
	Err       error  // ECONNREFUSED: rejected, ETIMEDOUT: no answer, …
	ProvErrno int    // rejected: the reason of the connection manager
	Data      []byte // private data of the rejection
}

func (e *EQError) Error() string { return fmt.Sprintf("ofi: endpoint: %v", e.Err) }

// Unwrap returns Err.
func (e *EQError) Unwrap() error { return e.Err }

// EQ is an event queue (struct fid_eq). Many endpoints may report to one.
type EQ struct {
	mu     sync.Mutex
	queue  []any // Event or *EQError, oldest first
	signal chan struct{}
	closed chan struct{}
}

// OpenEQ opens an event queue (fi_eq_open).
func (f *Fabric) OpenEQ() *EQ {
	return &EQ{signal: make(chan struct{}, 1), closed: make(chan struct{})}
}

func (q *EQ) push(e any) {
	q.mu.Lock()
	q.queue = append(q.queue, e)
	q.mu.Unlock()
	q.wake()
}

func (q *EQ) wake() {
	select {
	case q.signal <- struct{}{}:
	default:
	}
}

// TryRead takes the oldest entry (fi_eq_read), EAGAIN if there is none. An error
// entry is an *[EQError].
func (q *EQ) TryRead() (Event, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 {
		select {
		case <-q.closed:
			return Event{}, fail("eq_read", syscall.EBADF, "the event queue is closed")
		default:
			return Event{}, syscall.EAGAIN
		}
	}
	e := q.queue[0]
	q.queue = q.queue[1:]
	if len(q.queue) > 0 {
		q.wake() // for another reader
	}
	if err, ok := e.(*EQError); ok {
		return Event{}, err
	}
	return e.(Event), nil
}

// Read waits for the oldest entry (fi_eq_sread).
func (q *EQ) Read(ctx context.Context) (Event, error) {
	for {
		e, err := q.TryRead()
		if err != syscall.EAGAIN {
			return e, err
		}
		select {
		case <-q.signal:
		case <-q.closed:
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}

// Close closes the queue. What is in it can still be read.
func (q *EQ) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-q.closed:
		return fail("close", syscall.EBADF, "the event queue is closed already")
	default:
		close(q.closed)
		return nil
	}
}
