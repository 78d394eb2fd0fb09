package rsocket

import (
	"sync"
	"time"
)

// deadline is a time limit that can be moved while somebody waits for it.
type deadline struct {
	mu      sync.Mutex
	timer   *time.Timer
	expired chan struct{} // closed when the time is over
}

func newDeadline() *deadline { return &deadline{expired: make(chan struct{})} }

// set moves the limit; the zero time is none.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.expired // the timer's function runs, or has run
	}
	d.timer = nil
	over := d.over()
	if t.IsZero() {
		if over {
			d.expired = make(chan struct{})
		}
		return
	}
	if left := time.Until(t); left > 0 {
		if over {
			d.expired = make(chan struct{})
		}
		expired := d.expired
		d.timer = time.AfterFunc(left, func() { close(expired) })
		return
	}
	if !over {
		close(d.expired)
	}
}

func (d *deadline) over() bool {
	select {
	case <-d.expired:
		return true
	default:
		return false
	}
}

// wait returns a channel that is closed when the time is over.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.expired
}
