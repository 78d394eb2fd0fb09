package nic

import "github.com/goroce/roce/link"

// calls are functions that a goroutine calls without the lock of the shard, in order.
// Most of them are events of the connection manager.
type calls struct {
	waiting []func()
	running bool // a goroutine is making the calls
	left    bool // it made callsPerEntry calls, and left some
}

// One entry makes at most callsPerEntry calls and leaves the rest to the next one, because
// strangers may continuously cause more. When maxCalls calls wait, because handlers are
// slow, the device drops datagrams for QP 1.
const (
	callsPerEntry = link.Batch
	maxCalls      = 8 * link.Batch
)

// Call queues a call of f, which a goroutine makes without the lock of the shard after
// the calls that already wait. The caller has locked the shard.
func (s *Shard) Call(f func()) { s.calls.waiting = append(s.calls.waiting, f) }

// CallsFull reports whether maxCalls calls wait, so that the caller should cause no
// more. The caller has locked the shard.
func (s *Shard) CallsFull() bool { return len(s.calls.waiting) >= maxCalls }

// makeCalls makes the waiting calls. Only one goroutine makes calls at a time; others
// leave theirs to that goroutine. The caller has locked the shard; makeCalls unlocks
// it during a call.
func (s *Shard) makeCalls() {
	c := &s.calls
	if c.running {
		return
	}
	c.left = false
	for made := 0; len(c.waiting) > 0 && made < callsPerEntry; {
		batch := c.waiting
		if most := callsPerEntry - made; len(batch) > most {
			batch, c.waiting = batch[:most:most], batch[most:]
		} else {
			c.waiting = nil
		}
		made += len(batch)
		c.running = true
		s.mu.Unlock()
		for _, call := range batch {
			call()
			s.nic.Nudge()
		}
		s.mu.Lock()
		c.running = false
	}
	if len(c.waiting) > 0 {
		c.left = true
		s.wake()
	}
}

// makeAllCalls makes all waiting calls when the NIC is closed, unless another goroutine
// is making them.
func (s *Shard) makeAllCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.makeCalls(); s.calls.left && !s.calls.running; {
		s.makeCalls()
	}
}
