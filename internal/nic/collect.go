package nic

import (
	"sync/atomic"
	"time"
)

// A front end, such as the libraries for C, may collect the work requests of a program that polls, and post them together: its calls
// of this package are expensive. It collects only while the background goroutine pauses, since the polls of the program then
// come soon, and it posts before each of them. The background goroutine ends the pause when the program polls no more, and calls
// Config.Collect, by which the front end posts what it still has for queue pairs of the shard.

// Collecting tells a front end whether it may collect work requests for the queue pairs of a shard. A front end first adds a work request to
// those it has, then reads On again, and posts them if it is 0. So either the front end or Config.Collect sees the
// work request. Collecting has a cache line of its own, without pointers: memory of C may refer to it.
type Collecting struct {
	On       atomic.Uint32 // 1: it may
	Until    atomic.Int64  // but not begin after this time: the program's last poll is too old. In nanoseconds, on the clock of Shard.Collecting
	FrontEnd uint64        // for the front end
	_        [40]byte
}

// Collecting returns the shard's; nil if no front end collects. now is the present time on the clock of Until.
func (s *Shard) Collecting() (c *Collecting, now time.Duration) {
	return s.collecting, time.Duration(s.nic.Now())
}

// letCollect allows the front end to collect, or ends this. No lock is held.
func (s *Shard) letCollect(on bool) {
	switch c := s.collecting; {
	case c == nil:
	case on:
		c.On.Store(1)
	default:
		c.On.Store(0)
		if !s.nic.Closing() { // otherwise posts fail, and the front end may be stuck in a handler of a signal
			s.nic.collect(c)
		}
	}
}
