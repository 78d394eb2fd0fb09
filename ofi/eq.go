package ofi

import (
	"context"
	"fmt"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/mailbox"
)

// EventType is the type of an event, with the values of libfabric.
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

// EQError is an error entry (struct fi_eq_err_entry): a failed connection attempt. It unwraps
// to Err.
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
//
// It never overruns (FI_EOVERRUN), and a program does not choose its size: it holds at most one
// request of each passive endpoint, whose other requests wait in the backlog, and two events of
// each endpoint. Closing an endpoint removes its events.
type EQ struct{ entries *mailbox.Box[*entry] }

// entry is an entry of an event queue: an event or an error.
type entry struct {
	Event
	err   *EQError
	taken chan struct{} // closed when the event is read; nil: no call waits for that
}

// OpenEQ opens an event queue (fi_eq_open).
func (f *Fabric) OpenEQ() *EQ {
	return &EQ{mailbox.New[*entry](0)}
}

// TryRead takes the oldest entry (fi_eq_read), EAGAIN if there is none. An error
// entry is an *[EQError].
func (q *EQ) TryRead() (Event, error) {
	closed := q.entries.Closed() // read this first: an entry may come in between
	e, ok := q.entries.Take()
	switch {
	case !ok && closed:
		return Event{}, fail("eq_read", roce.ErrClosed, "the event queue is closed")
	case !ok:
		return Event{}, syscall.EAGAIN
	}
	if e.taken != nil {
		close(e.taken)
	}
	if e.err != nil {
		return Event{}, e.err
	}
	return e.Event, nil
}

// Read waits for the oldest entry (fi_eq_sread).
func (q *EQ) Read(ctx context.Context) (Event, error) {
	for {
		e, err := q.TryRead()
		if err != syscall.EAGAIN {
			return e, err
		}
		select {
		case <-q.entries.Ready():
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}

// Close closes the queue. A program can still read its entries; later events are lost.
func (q *EQ) Close() error {
	if !q.entries.Close() {
		return fail("close", roce.ErrClosed, "the event queue is closed already")
	}
	return nil
}
