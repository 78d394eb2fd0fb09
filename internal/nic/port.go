package nic

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// failingFor is the time that a port must fail to receive before the NIC reports it
// as down.
const failingFor = time.Second

// health summarizes the errors of a shard's port. The shard's lock guards all fields but
// failing.
type health struct {
	errors   uint64      // failed calls
	since    mono.Time   // time of the first failed receive in a row
	failing  atomic.Bool // the last receive failed
	reported bool        // the NIC has reported the port as down for it
}

// noteError handles an error of the port. It ignores the error of a link that is down. If
// the network interface was removed, it ends the NIC once the lock is free. It counts other
// errors.
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

// noteReceive records the result of a receive that failed, or of the first one that has not failed since.
func (s *Shard) noteReceive(now mono.Time, err error) {
	h := &s.health
	if err == nil {
		s.noteRecovery()
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

// noteRecovery records that the port receives again.
func (s *Shard) noteRecovery() {
	h := &s.health
	h.failing.Store(false)
	if h.reported {
		h.reported = false
		s.nic.port.addFailing(s.nic, -1)
	}
}

// waitAtPort waits at the port, for at most d if d is not negative, and reports whether
// the port is open. If Wait fails, or would return at once for packets that the port fails
// to receive, waitAtPort sleeps for a tick instead, and the caller polls the port at this
// interval.
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

// portState is the reported state of the port: active while the link is up and no shard
// fails to receive.
type portState struct {
	mu      sync.Mutex
	down    bool // the link is down, by the last report of the driver
	failing int  // shards whose ports fail
}

// The driver of the first port calls linkChanged; the ports are queues of one card. The
// caller may hold any lock of the NIC.
func (n *NIC) linkChanged(up bool) {
	p := &n.port
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = !up
	switch {
	case !up:
		n.notify(Event{Type: EventPortErr, Port: 1})
	case p.failing == 0: // otherwise report it when the shards receive again
		n.notify(Event{Type: EventPortActive, Port: 1})
	}
}

// addFailing changes the number of shards whose ports fail.
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
