package roce

import (
	"context"
	"sync"
	"syscall"

	"github.com/goroce/roce/internal/fifo"
	"github.com/goroce/roce/internal/notify"
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
	signal notify.Chan   // holds a token for Next when there is an event
	ready  notify.Chan   // holds one for the receivers of C
	done   chan struct{} // closed with the channel

	mu     sync.Mutex
	events fifo.Queue[*CQ] // the queue of each event
	users  int             // queues
	closed bool
	notify notify.Counter
}

// CreateCompChannel creates a completion channel (ibv_create_comp_channel).
func (d *Device) CreateCompChannel() (*CompChannel, error) {
	if d.nic.Closing() {
		return nil, ErrClosed
	}
	return &CompChannel{dev: d, signal: notify.New(), ready: notify.New(), done: make(chan struct{})}, nil
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
	if q, ok = c.events.Pop(); c.events.Len() > 0 {
		c.wake() // this caller may have taken the token of another one, which still waits
	}
	return q, ok
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
	c.notify.Add(c.events.Len())
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
	return c.events.Len() > 0
}

// wake wakes one caller that waits in Next, and one receiver of C.
func (c *CompChannel) wake() {
	c.signal.Notify()
	c.ready.Notify()
}

// raise adds an event of a queue. Called under the lock of its shard.
func (c *CompChannel) raise(q *CQ) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*c.events.Push() = q
	c.notify.Add(1)
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
	n := c.events.Len()
	c.events.DeleteFunc(func(o *CQ) bool { return o == q })
	c.notify.Add(c.events.Len() - n)
}
