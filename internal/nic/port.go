package nic

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// failingFor is how long a port must fail to receive before it is reported as down.
const failingFor = time.Second

// health is what the errors of a shard's port amount to. The shard's lock guards it, but
// for failing.
type health struct {
	errors   uint64      // calls that failed
	since    mono.Time   // of the first of the receives that fail, in a row
	failing  atomic.Bool // the last receive failed
	reported bool        // and the port is reported as down for that
}

// noteError looks at an error of the port. A link that is down is a condition. A network
// interface that was removed ends the NIC, once the lock is free. Other errors are counted.
func (s *Shard) noteError(err error) {
	switch {
	case errors.Is(err, link.ErrNoDevice):
		if !s.nic.removed.Load() {
			s.Call(s.nic.interfaceRemoved)
		}
	case errors.Is(err, link.ErrDown), errors.Is(err, link.ErrClosed):
	default:
		s.health.errors++
	}
}

// noteReceive notes how a receive ended.
func (s *Shard) noteReceive(now mono.Time, err error) {
	h := &s.health
	if err == nil {
		if h.failing.Load() {
			s.noteRecovery()
		}
		return
	}
	before := h.errors
	if s.noteError(err); h.errors == before {
		return
	}
	if !h.failing.Swap(true) {
		h.since = now
	}
	if !h.reported && now.Sub(h.since) >= failingFor {
		h.reported = true
		s.nic.port.addFailing(s.nic, 1)
	}
}

// noteRecovery notes that the port receives again.
func (s *Shard) noteRecovery() {
	h := &s.health
	h.failing.Store(false)
	if h.reported {
		h.reported = false
		s.nic.port.addFailing(s.nic, -1)
	}
}

// waitAtPort waits at the port, for d at most if that is not negative, and reports whether
// the port is open. When the port cannot be waited at, or cannot receive what it would
// return for at once, waitAtPort is a pause of a tick: the caller polls the port as often.
func (s *Shard) waitAtPort(d time.Duration) (open bool) {
	if !s.health.failing.Load() {
		wait := begin(regionWait, nil)
		err := s.port.Wait(d)
		wait.end(nil)
		if err == nil {
			return true
		}
		if errors.Is(err, link.ErrClosed) {
			return false
		}
		s.mu.Lock()
		s.noteError(err)
		s.mu.Unlock()
	}
	if d < 0 || d > tick {
		d = tick
	}
	time.Sleep(d)
	return true
}

// portState is what the NIC reports of its port: it is active while the link is up and no
// shard fails to receive.
type portState struct {
	mu      sync.Mutex
	down    bool // the link is, as its driver said last
	failing int  // shards whose ports fail
}

// linkChanged is called by the driver of the first port, of those that are queues of one
// card. It may be called under any lock of the NIC.
func (n *NIC) linkChanged(up bool) {
	p := &n.port
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = !up
	switch {
	case !up:
		n.notify(Event{Type: EventPortErr, Port: 1})
	case p.failing == 0: // otherwise when the shards receive again
		n.notify(Event{Type: EventPortActive, Port: 1})
	}
}

// addFailing adds shards whose port fails, or takes them away.
func (p *portState) addFailing(n *NIC, shards int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.failing
	p.failing += shards
	switch {
	case p.down || before > 0 && p.failing > 0:
	case p.failing > 0:
		n.notify(Event{Type: EventPortErr, Port: 1})
	default:
		n.notify(Event{Type: EventPortActive, Port: 1})
	}
}

// PortUp reports whether the link is up and all shards receive.
func (n *NIC) PortUp() bool {
	if !n.shards[0].port.Stats().LinkUp {
		return false
	}
	n.port.mu.Lock()
	defer n.port.mu.Unlock()
	return n.port.failing == 0
}
