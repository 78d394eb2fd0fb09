package rdmacm

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/goroce/roce"
)

// Channel hands out the events of the IDs that use it (struct
// rdma_event_channel). Any goroutine may take events; each is taken once.
type Channel struct {
	host   *Host
	signal chan struct{} // holds a token when there may be an event

	mu     sync.Mutex
	events []*Event // oldest first
	closed bool
}

// NewChannel makes an event channel (rdma_create_event_channel).
func (h *Host) NewChannel() *Channel { return &Channel{host: h, signal: make(chan struct{}, 1)} }

// Next waits for an event (rdma_get_cm_event). It does what librdmacm does
// there, too: when a peer has accepted, the queue pair is connected and the peer
// told; when a group is joined, the queue pair is attached.
func (c *Channel) Next(ctx context.Context) (*Event, error) {
	for {
		if err := c.host.await(ctx, c.signal, c.ready); err != nil {
			return nil, err
		}
		ev, err := c.pop()
		switch {
		case err != nil:
			return nil, err
		case ev == nil: // somebody else has it
			continue
		case !ev.ID.digest(ctx, ev):
			if ctx.Err() != nil {
				c.unpop(ev)
				return nil, ctx.Err()
			}
			continue
		}
		return ev, nil
	}
}

// Close ends the waiting in Next (rdma_destroy_event_channel). Destroy the IDs
// of the channel first.
func (c *Channel) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return roce.ErrClosed
	}
	c.closed, c.events = true, nil
	c.mu.Unlock()
	c.wake()
	return nil
}

func (c *Channel) ready() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed || len(c.events) > 0
}

// wake makes one look who waits in Next, if there is anyone.
func (c *Channel) wake() {
	select {
	case c.signal <- struct{}{}:
	default:
	}
	c.host.nudge()
}

func (c *Channel) push(ev *Event) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.events = append(c.events, ev)
	c.mu.Unlock()
	c.wake()
}

func (c *Channel) unpop(ev *Event) {
	c.mu.Lock()
	c.events = slices.Insert(c.events, 0, ev)
	c.mu.Unlock()
	c.wake()
}

func (c *Channel) pop() (ev *Event, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		err = roce.ErrClosed
	} else if len(c.events) > 0 {
		ev, c.events[0] = c.events[0], nil
		c.events = c.events[1:]
	}
	if err != nil || len(c.events) > 0 { // for the others
		select {
		case c.signal <- struct{}{}:
		default:
		}
	}
	return ev, err
}

// take removes the events that match.
func (c *Channel) take(match func(*Event) bool) (taken []*Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = slices.DeleteFunc(c.events, func(ev *Event) bool {
		hit := match(ev)
		if hit {
			taken = append(taken, ev)
		}
		return hit
	})
	return taken
}

// severalNap is how long one of several polled devices is waited at.
const severalNap = time.Millisecond

// await waits until ready says so, and drives polled devices meanwhile.
func (h *Host) await(ctx context.Context, signal <-chan struct{}, ready func() bool) error {
	for !ready() {
		if err := ctx.Err(); err != nil {
			return err
		}
		switch len(h.polled) {
		case 0:
			select {
			case <-signal:
			case <-ctx.Done():
			}
		case 1:
			if err := h.polled[0].CM().Await(ctx, signal, ready); err != nil && !ready() {
				return err
			}
		default:
			for _, d := range h.polled[1:] {
				d.Progress()
			}
			nap, cancel := context.WithTimeout(ctx, severalNap)
			h.polled[0].CM().Await(nap, signal, ready)
			cancel()
		}
	}
	return nil
}

// nudge makes those look who drive a polled device.
func (h *Host) nudge() {
	for _, d := range h.polled {
		d.CM().Nudge()
	}
}
