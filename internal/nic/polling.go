package nic

import (
	"sync/atomic"
	"time"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/notify"
	"github.com/goroce/roce/mono"
)

// A program that polls an empty completion queue in a loop does the work of its shard: that
// is quicker than to wait until the background goroutine has done it, and that goroutine,
// which each packet would wake, stays out of the way. It takes over when the program polls no more:
// within a tick, and at once when the program waits.

const (
	// pollsInRow is how many empty polls in a row make a program one that polls. Programs that
	// wait for completions poll once or twice before.
	pollsInRow = 16

	// pollGap is how long after its last poll a program still polls.
	pollGap = 50 * time.Microsecond
)

// polling is what a shard knows of the program that polls its completion queues.
type polling struct {
	polls  atomic.Uint32 // empty ones in a row
	last   atomic.Int64  // mono.Time of the last of them
	paused atomic.Bool   // the background goroutine is in pause
	resume notify.Chan   // ends the pause
}

// PollEmpty does the work that is waiting, for a program that has found a completion queue
// empty, unless another goroutine is at it. The NIC has background goroutines.
func (s *Shard) PollEmpty(q *cq.CQ) {
	if s.nic.lazy {
		s.nic.SendDeferred()
	}
	now := s.nic.Now()
	if last := s.polling.last.Swap(int64(now)); now.Sub(mono.Time(last)) >= pollGap {
		s.polling.polls.Store(0)
	}
	if s.polling.polls.Add(1) > 1 && q.Len() == 0 { // a program that is about to wait polls once
		s.TryProgress()
	}
}

// Waits notes that a program waits for completions or events: it polls no more.
func (s *Shard) Waits() {
	if s.polling.polls.Swap(0) >= pollsInRow && s.polling.paused.Load() {
		s.polling.resume.Notify()
	}
}

// polledAt reports whether a program polls the shard now.
func (s *Shard) polledAt(now mono.Time) bool {
	return s.polling.polls.Load() >= pollsInRow && now.Sub(mono.Time(s.polling.last.Load())) < pollGap
}

// pause lets the program that polls do the work of the background goroutine, for a tick or until it
// waits.
func (s *Shard) pause(timer *time.Timer) {
	s.polling.paused.Store(true)
	defer s.polling.paused.Store(false)
	if s.polling.polls.Load() < pollsInRow { // it has not seen that we pause
		return
	}
	timer.Reset(tick)
	select {
	case <-timer.C:
	case <-s.polling.resume:
	case <-s.nic.done:
	}
	timer.Stop()
}
