package nic

import "github.com/goroce/roce/link"

// calls are functions to be called without the lock of the shard, in order: events of the
// connection manager, most of them.
type calls struct {
	waiting []func()
	running bool // a goroutine makes them
	left    bool // it made as many as one entry makes, and left some
}

// One entry makes at most callsPerEntry calls and leaves the rest to the next one: strangers
// may cause more of them all the time. When maxCalls wait, because handlers are slow,
// datagrams for QP 1 are dropped.
const (
	callsPerEntry = link.Batch
	maxCalls      = 8 * link.Batch
)

// Call has f called without the lock of the shard, after the calls that wait already. The
// caller has locked the shard.
func (s *Shard) Call(f func()) { s.calls.waiting = append(s.calls.waiting, f) }

// CallsFull reports whether so many calls wait that no more should be caused. The caller
// has locked the shard.
func (s *Shard) CallsFull() bool { return len(s.calls.waiting) >= maxCalls }

// makeCalls makes the calls that wait. While one goroutine does that, the others leave
// theirs to it. The caller has locked the shard; makeCalls unlocks it meanwhile.
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

// makeAllCalls makes all calls that wait, unless another goroutine does, when the NIC is
// closed.
func (s *Shard) makeAllCalls() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.makeCalls(); s.calls.left && !s.calls.running; {
		s.makeCalls()
	}
}
