package rsocket

import (
	"sync"
	"time"

	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/notify"
)

// SetDeadline sets both time limits.
func (c *Conn) SetDeadline(t time.Time) error {
	return c.setDeadlines(t, c.readDeadline, c.writeDeadline)
}

// SetReadDeadline sets the time t at which waiting Reads fail with
// [os.ErrDeadlineExceeded]. The zero time means no limit.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(t, c.readDeadline) }

// SetWriteDeadline does the same for Writes.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, c.writeDeadline) }

func (c *Conn) setDeadlines(t time.Time, deadlines ...*deadline) error {
	for _, d := range deadlines {
		if !d.set(t) {
			return c.fail("set", errs.ErrClosed)
		}
	}
	return nil
}

func (c *Conn) openError(op string) error {
	if notify.Closed(c.closed) {
		return c.fail(op, errs.ErrClosed)
	}
	return nil
}

// deadline is a time limit that can change while calls wait for it.
type deadline struct {
	mu      sync.Mutex
	timer   *time.Timer
	expired chan struct{} // closed at the deadline
	stopped bool          // no call waits any more
}

func newDeadline() *deadline { return &deadline{expired: make(chan struct{})} }

// set changes the limit; the zero time means none. It returns false if the
// deadline is stopped.
func (d *deadline) set(t time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return false
	}
	if d.timer != nil && !d.timer.Stop() {
		<-d.expired // the timer's function runs, or has run
	}
	d.timer = nil
	left := time.Until(t)
	past := !t.IsZero() && left <= 0
	switch over := notify.Closed(d.expired); {
	case past && !over:
		close(d.expired)
	case !past && over:
		d.expired = make(chan struct{})
	}
	if !t.IsZero() && !past {
		expired := d.expired
		d.timer = time.AfterFunc(left, func() { close(expired) })
	}
	return true
}

// stop ends the timer, so that it does not keep the stream in memory.
func (d *deadline) stop() {
	d.set(time.Time{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
}

// wait returns a channel that is closed at the deadline.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.expired
}
