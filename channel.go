package roce

import (
	"context"
	"slices"
	"sync"
	"syscall"
)

// CompChannel is a completion channel (struct ibv_comp_channel): a program
// waits on it for the completions of several queues. A queue raises an event
// on its channel only after [CQ.RequestNotify]. The methods may be called
// from any goroutine.
//
// This loop misses no completion:
//
//	for {
//		cq, err := channel.Next(ctx)   // wait for an event
//		...
//		cq.RequestNotify(false)        // request the next event, before polling
//		for cq.Poll(wcs) > 0 { ... }   // until the queue is empty
//	}
type CompChannel struct {
	dev    *Device
	signal chan struct{} // holds a token for Next when there is an event
	ready  chan struct{} // holds one for the receivers of C
	done   chan struct{} // closed with the channel

	mu     sync.Mutex
	events []*CQ // events that wait, from first on, oldest first
	first  int
	users  int // queues
	closed bool
	notify func(n int) // called when events are added or dropped; nil: none
}

// CreateCompChannel creates a completion channel (ibv_create_comp_channel).
func (d *Device) CreateCompChannel() (*CompChannel, error) {
	if d.nic.Closing() {
		return nil, ErrClosed
	}
	return &CompChannel{dev: d, signal: make(chan struct{}, 1), ready: make(chan struct{}, 1), done: make(chan struct{})}, nil
}

// Next waits for an event and returns the queue that raised it
// (ibv_get_cq_event). It returns each event once, in order; events need no
// acknowledgement. Next returns the context's error, or [ErrClosed] once the
// channel or the device is closed and no event is left. On a polled device Next
// does the device's work while it waits.
func (c *CompChannel) Next(ctx context.Context) (*CQ, error) {
	c.dev.nic.SpinFor(c.pending)
	for {
		err := c.dev.nic.Wait(ctx, c.signal, c.done, c.pending)
		if q, ok := c.TryNext(); ok {
			return q, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// TryNext is Next without waiting: ok is false when there is no event.
func (c *CompChannel) TryNext() (q *CQ, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == len(c.events) {
		return nil, false
	}
	q = c.events[c.first]
	c.events[c.first] = nil
	c.first++
	if c.first == len(c.events) {
		c.events, c.first = c.events[:0], 0
	} else {
		c.wake() // this caller may have taken the token of another one, which still waits
	}
	return q, true
}

// C returns a Go channel for select, in place of the file descriptor of the
// verbs. It has a value when there may be events: take them with TryNext until
// it returns false. On a polled device another goroutine must drive the device
// meanwhile.
func (c *CompChannel) C() <-chan struct{} { return c.ready }

// NotifyFunc registers f, for programs with their own event loop. The device calls f(n) when n events
// were added, and at once if events already wait; it calls f(-n) when it has dropped n events because
// their queue was closed. Typically f writes to an eventfd or reads from it, and the loop then takes
// events with TryNext. The device calls f with locks held: f must neither block nor call the device.
// Nil ends the calls.
func (c *CompChannel) NotifyFunc(f func(n int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notify = f
	c.call(len(c.events) - c.first)
}

// call tells the program's event loop that n events were added, or -n dropped. The caller has locked
// the channel.
func (c *CompChannel) call(n int) {
	if c.notify != nil && n != 0 {
		c.notify(n)
	}
}

// Close destroys the channel (ibv_destroy_comp_channel). It fails with EBUSY
// while queues use it.
func (c *CompChannel) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrClosed
	case c.users > 0:
		return fail("destroy completion channel", syscall.EBUSY, "%d completion queues still use it; close them first", c.users)
	}
	c.closed = true
	close(c.done)
	c.dev.nic.Nudge()
	return nil
}

// pending reports whether there is an event.
func (c *CompChannel) pending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first < len(c.events)
}

// wake wakes one caller that waits in Next, and one receiver of C.
func (c *CompChannel) wake() {
	token(c.signal)
	token(c.ready)
}

// raise adds an event of a queue. Called under the lock of its shard.
func (c *CompChannel) raise(q *CQ) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.first; n > 0 && 2*n >= len(c.events) && len(c.events) == cap(c.events) {
		// Make room at the front rather than grow for ever.
		c.events = slices.Delete(c.events, 0, n)
		c.first = 0
	}
	c.events = append(c.events, q)
	c.call(1)
	c.wake()
}

// retain counts another queue that uses the channel. It does nothing if c is
// nil.
func (c *CompChannel) retain() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.users++
	return nil
}

// release removes a queue from the channel, with its events.
func (c *CompChannel) release(q *CQ) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users--
	n := len(c.events) - c.first
	c.events = slices.DeleteFunc(slices.Delete(c.events, 0, c.first), func(o *CQ) bool { return o == q })
	c.first = 0
	c.call(len(c.events) - n)
}
