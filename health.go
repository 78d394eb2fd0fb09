package roce

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// lasting is how long a port must fail to receive before it is reported as down.
const lasting = time.Second

// health is what the errors of a shard's port amount to. The shard's lock guards it,
// but for deaf.
type health struct {
	errors uint64      // calls that failed
	since  mono.Time   // of the first of the receives that fail, in a row
	deaf   atomic.Bool // the last receive failed
	told   bool        // and the port is reported as down for that
}

// received notes how a receive went.
func (s *shard) received(now mono.Time, err error) {
	h := &s.health
	if err == nil {
		if h.deaf.Load() {
			s.recover()
		}
		return
	}
	before := h.errors
	if s.trouble(err); h.errors == before {
		return
	}
	if !h.deaf.Swap(true) {
		h.since = now
	}
	if !h.told && now.Sub(h.since) >= lasting {
		h.told = true
		s.dev.port.failing(s.dev, 1)
	}
}

// recover notes that the port receives again.
func (s *shard) recover() {
	h := &s.health
	h.deaf.Store(false)
	if h.told {
		h.told = false
		s.dev.port.failing(s.dev, -1)
	}
}

// rest waits at the port, for d at most if that is not negative, and reports whether the
// port is open. When the port cannot be waited at, or cannot receive what it would
// return for at once, rest is a pause of a tick: the caller polls the port as often.
func (s *shard) rest(d time.Duration) (open bool) {
	if !s.health.deaf.Load() {
		err := s.port.Wait(d)
		if err == nil {
			return true
		}
		if errors.Is(err, link.ErrClosed) {
			return false
		}
		s.mu.Lock()
		s.trouble(err)
		s.mu.Unlock()
	}
	if d < 0 || d > tick {
		d = tick
	}
	time.Sleep(d)
	return true
}

// portState is what the device reports of its port: it is active while the link is up
// and no shard fails to receive.
type portState struct {
	mu    sync.Mutex
	down  bool // the link is, as its driver said last
	fails int  // shards whose ports fail
}

// linkChanged is told by the first port, of those that are queues of one card.
// It may be called under any lock of the device.
func (d *Device) linkChanged(up bool) {
	p := &d.port
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = !up
	switch {
	case !up:
		d.raise(Event{Type: EventPortErr, Port: 1})
	case p.fails == 0: // otherwise later
		d.raise(Event{Type: EventPortActive, Port: 1})
	}
}

// failing adds shards whose port fails, or takes them away.
func (p *portState) failing(d *Device, shards int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.fails
	p.fails += shards
	switch {
	case p.down || before > 0 && p.fails > 0:
	case p.fails > 0:
		d.raise(Event{Type: EventPortErr, Port: 1})
	default:
		d.raise(Event{Type: EventPortActive, Port: 1})
	}
}

// works reports whether no shard's port fails.
func (p *portState) works() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fails == 0
}
