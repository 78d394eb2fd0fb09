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

	// A program that polls may then read its memory until a WRITE has changed it, and call nothing. When
	// packets have waited for the end of maxStalls pauses in a row, there are no more of them, until the program has
	// polled for trustAfter with gaps shorter than pollGap. One such pause means little: others may have had the
	// processor.
	maxStalls  = 6
	trustAfter = 100 * time.Millisecond
)

// polling is what a shard knows of the program that polls its completion queues.
type polling struct {
	polls  atomic.Uint32 // empty ones in a row
	last   atomic.Int64  // mono.Time of the last of them
	paused atomic.Bool   // the background goroutine is in pause
	resume notify.Chan   // ends the pause

	// Of the background goroutine.
	stalls int       // pauses in a row in which packets waited
	since  mono.Time // when the program began to poll; 0: it does not poll
}

// pauses reports whether the background goroutine leaves the work to the program now.
func (s *Shard) pauses(now mono.Time) bool {
	p := &s.polling
	switch {
	case !s.polledAt(now):
		p.since = 0
		return false
	case p.since == 0:
		p.since = now
	case now.Sub(p.since) > trustAfter:
		p.stalls = 0
	}
	return p.stalls < maxStalls
}

// watched reports whether the program waits for changes of its memory.
func (s *Shard) watched() bool { return s.polling.stalls >= maxStalls }

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
// waits. It reports whether the program has stopped to poll, but does not wait.
func (s *Shard) pause(timer *time.Timer) (stopped bool) {
	s.polling.paused.Store(true)
	defer s.polling.paused.Store(false)
	if s.polling.polls.Load() < pollsInRow { // it has not seen that we pause
		return false
	}
	timer.Reset(tick)
	select {
	case <-timer.C:
		stopped = !s.polledAt(s.nic.Now())
	case <-s.polling.resume:
	case <-s.nic.done:
	}
	timer.Stop()
	return stopped
}
