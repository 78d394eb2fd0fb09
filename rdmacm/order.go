package rdmacm

import (
	"slices"
	"time"

	"github.com/goroce/roce"
)

// Disconnected and the completions before it.
//
// On an adapter a completion takes a shorter way to the program than an event, which comes through the kernel. Programs
// count on that: ofi_rxm of libfabric destroys the queue pair when it sees Disconnected, and loses the messages that it
// has not polled. So a channel holds Disconnected, and the events behind it, until the program has polled the completions
// that came first. It does this only for queue pairs that the program has made itself: for others the event comes before
// the flushed completions.

const (
	// holdTime is how long a channel holds an event for a program that does not poll, and holdEvery how often it looks.
	holdTime  = 20 * time.Millisecond
	holdEvery = time.Millisecond
)

// UnreadFunc registers f, for programs with their own queue pairs. f returns a function that reports whether the program
// has yet to poll completions of a queue pair that wait now; nil if the program does not know the queue pair. Both are
// called with locks held: they must neither block nor call this package.
//
// A [Channel] then returns Disconnected only after these completions, or 20 ms later.
func (h *Host) UnreadFunc(f func(d *roce.Device, n roce.QPN) (still func() bool)) {
	h.unread.Store(&f)
}

// unreadOf calls the function of UnreadFunc; nil if there is none.
func (h *Host) unreadOf(d *roce.Device, n roce.QPN) (still func() bool) {
	f := h.unread.Load()
	if f == nil || *f == nil {
		return nil
	}
	return (*f)(d, n)
}

// heldEvent is an event that a channel does not return yet.
type heldEvent struct {
	*Event
	until time.Time
}

// waits reports whether the program must poll first.
func (e *heldEvent) waits() bool { return e.unread != nil && e.unread() && time.Now().Before(e.until) }

// push adds an event, or holds it.
func (c *Channel) push(ev *Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.events.Closed() {
		return
	}
	c.held = append(c.held, heldEvent{ev, time.Now().Add(holdTime)})
	c.release()
}

// release adds the held events that need not wait any longer. The caller has locked c.
func (c *Channel) release() {
	for len(c.held) > 0 && !c.held[0].waits() {
		if c.events.Put(c.held[0].Event) {
			c.host.nudge()
			c.notify.Add(1)
		}
		c.held = c.held[1:]
	}
	if len(c.held) == 0 {
		c.held = nil
	} else if !c.looks {
		c.looks = true
		time.AfterFunc(holdEvery, c.look)
	}
}

// look is release for a timer.
func (c *Channel) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks = false
	c.release()
}

// drop removes held events that match, and returns them. The caller has locked c.
func (c *Channel) drop(match func(*Event) bool) (dropped []*Event) {
	c.held = slices.DeleteFunc(c.held, func(e heldEvent) bool {
		hit := match(e.Event)
		if hit {
			dropped = append(dropped, e.Event)
		}
		return hit
	})
	return dropped
}
