package rdmacm

import (
	"context"
	"sync"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/mailbox"
	"github.com/goroce/roce/internal/notify"
)

// Channel queues the events of the IDs that use it (struct
// rdma_event_channel). Any goroutine may take events; each event is returned
// once.
type Channel struct {
	host   *Host
	events *mailbox.Box[*Event]

	mu     sync.Mutex // guards the fields below, and is held while events are added or dropped
	notify notify.Counter
	held   []heldEvent // behind events, oldest first
	looks  bool        // a timer calls look
}

// NewChannel makes an event channel (rdma_create_event_channel).
func (h *Host) NewChannel() *Channel { return &Channel{host: h, events: mailbox.New[*Event](0)} }

// Next waits for an event (rdma_get_cm_event). Like librdmacm, it connects the
// queue pair and sends the RTU when a peer has accepted, and attaches the queue
// pair when a group is joined.
func (c *Channel) Next(ctx context.Context) (*Event, error) {
	for {
		if err := c.host.await(ctx, c.events.Ready(), c.ready); err != nil {
			return nil, err
		}
		ev, ok := c.events.Take()
		switch {
		case c.events.Closed():
			return nil, roce.ErrClosed
		case !ok: // another goroutine took it
			continue
		case !ev.ID.prepare(ctx, ev):
			if ctx.Err() != nil {
				c.events.PutBack(ev)
				c.host.nudge()
				return nil, ctx.Err()
			}
			continue
		}
		return ev, nil
	}
}

// TryNext is Next without waiting. ok is false if there is no event, and if the channel is closed.
func (c *Channel) TryNext() (ev *Event, ok bool) {
	for {
		if ev, ok = c.events.Take(); !ok {
			return nil, false
		}
		if ev.ID.prepare(context.Background(), ev) {
			return ev, true
		}
	}
}

// NotifyFunc registers f, for programs with their own event loop. The channel calls f(1) for every new
// event, and f(-n) when it has dropped n events because their ID was destroyed or moved to another
// channel. It does not call f for events that already wait. Typically f writes to an eventfd or reads
// from it, and the loop then takes events with TryNext. The channel calls f with locks held: f must
// neither block nor call this package. Nil ends the calls.
func (c *Channel) NotifyFunc(f func(n int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notify = f
}

// Close closes the channel (rdma_destroy_event_channel) and ends waiting calls
// of Next. Destroy the IDs of the channel first.
func (c *Channel) Close() error {
	if !c.events.Close() {
		return roce.ErrClosed
	}
	c.take(func(*Event) bool { return true })
	c.host.nudge()
	return nil
}

func (c *Channel) ready() bool { return c.events.Len() > 0 || c.events.Closed() }

// take removes the events that match.
func (c *Channel) take(match func(*Event) bool) []*Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.events.Remove(match)
	c.notify.Add(-len(taken))
	return append(taken, c.drop(match)...)
}

// severalNap is the time that await sleeps at one of several polled devices before it polls
// the others.
const severalNap = time.Millisecond

// await waits until ready returns true, and drives polled devices meanwhile.
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
			if err := agentOf(h.polled[0]).NIC().Wait(ctx, signal, nil, ready); err != nil && !ready() {
				return err
			}
		default:
			for _, d := range h.polled[1:] {
				d.Progress()
			}
			nap, cancel := context.WithTimeout(ctx, severalNap)
			agentOf(h.polled[0]).NIC().Wait(nap, signal, nil, ready)
			cancel()
		}
	}
	return nil
}

// nudge wakes the callers that drive a polled device.
func (h *Host) nudge() {
	for _, d := range h.polled {
		agentOf(d).NIC().Nudge()
	}
}
