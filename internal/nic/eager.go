package nic

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/notify"
	"github.com/goroce/roce/internal/sched"
	"github.com/goroce/roce/mono"
)

// A goroutine that waits for completions on a NIC with background goroutines can block at once. The background goroutine
// then receives the packet and wakes the other one, usually on another thread: this takes longer than the packet's way
// through the stack. A goroutine that usually waits again soon after a wait is eager: it first polls for some time, and
// the background goroutine pauses, as for a program that polls. A goroutine blocks at once
//   - if it is not eager: packets for which the program need not do anything would wait for the end of the pause;
//   - if it has polled in vain before: the peer needs longer, and perhaps this processor;
//   - if others wait, too: the background goroutine must not pause;
//   - if another program uses the processor.

const (
	// An eager goroutine waits again within eagerGap after a wait, eagerWaits times in a row. A later wait takes
	// lateWaits off. After each time that it has polled in vain, it needs twice as many waits, mostVain times at most;
	// after each winsInRow successes in a row, half as many.
	eagerGap   = 100 * time.Microsecond
	eagerWaits = 16
	lateWaits  = 8
	mostVain   = 6
	winsInRow  = 8

	// After eagerPolls polls without success it lets other goroutines of the program run, and looks whether the caller
	// has given up. With one thread it lets them run after each poll; with more threads than processors never, because
	// Gosched then moves it to another thread, and the others have threads enough.
	eagerPolls = 32
)

// eager is a shard's record of the goroutines that wait for completions.
type eager struct {
	ended   atomic.Int64 // mono.Time of the end of the last wait
	blocked atomic.Int32 // goroutines that block
	score   atomic.Int32 // of waits that began soon after another one

	mu     sync.Mutex  // held by the goroutine that polls
	vain   int         // how often the number of waits was doubled, up to mostVain
	wins   int         // successes in a row, up to winsInRow
	offers offerPolicy // of yields between polls
}

// SpinFor polls q for a short time, if that is promising, and reports whether q has completions. If not, the caller
// blocks, between [Shard.Blocks] and [Shard.Waited]. done is closed with q.
func (s *Shard) SpinFor(ctx context.Context, q *cq.CQ, done <-chan struct{}) bool {
	e := &s.eager
	switch {
	case s.nic.polled || s.nic.spin <= 0:
		return false
	case q.Len() > 0:
		s.Waits() // polls of a queue that is not empty do no work
		return true
	case e.blocked.Load() > 0 || !e.mu.TryLock():
		return false
	}
	defer e.mu.Unlock()
	if now := s.nic.Now(); !e.waits(now) || s.shared(now) {
		return false
	}
	switch s.spin(ctx, q, done) {
	case spinGot:
		if e.wins++; e.wins == winsInRow {
			e.vain, e.wins = max(e.vain-1, 0), 0
		}
		e.ended.Store(int64(s.nic.Now()))
		return true
	case spinVain:
		e.vain, e.wins = min(e.vain+1, mostVain), 0
		e.score.Store(0)
	}
	return false
}

// waits records the begin of a wait, and reports whether the goroutine is eager. The caller has locked e.
func (e *eager) waits(now mono.Time) bool {
	score := e.score.Load()
	if now.Sub(mono.Time(e.ended.Load())) > eagerGap {
		e.score.Store(max(score-lateWaits, 0))
		return false
	}
	need := int32(eagerWaits) << e.vain
	e.score.Store(min(score+1, need+lateWaits))
	return score >= need
}

// spun is the outcome of a spin.
type spun uint8

const (
	spinGot  spun = iota // the queue has completions
	spinVain             // it has not, after the time for that
	spinLeft             // it has not; polling was not promising any more
)

// spin polls q until it has completions, as long as that is promising. The caller has locked s.eager.
func (s *Shard) spin(ctx context.Context, q *cq.CQ, done <-chan struct{}) spun {
	e, n := &s.eager, s.nic
	threads := runtime.GOMAXPROCS(0)
	alone, crowded := threads == 1, threads > runtime.NumCPU()
	if !crowded {
		sched.Gosched() // goroutines that the program has woken since the last wait
	}
	begin := n.Now()
	last := begin
	for polls := 1; ; polls++ {
		if s.PollEmpty(q); q.Len() > 0 {
			return spinGot
		}
		now := n.Now()
		switch {
		case e.blocked.Load() > 0, s.shared(now):
			return spinLeft
		case now == last: // do not wait for a clock that stands still
			return spinLeft
		case now.Sub(begin) >= n.spin:
			return spinVain
		case polls%eagerPolls == 0 && (ctx.Err() != nil || notify.Closed(done) || n.Closing()):
			return spinLeft
		}
		last = now
		sched.Yield()
		e.offers.yielded(now, n.Now())
		if alone || polls%eagerPolls == 0 && !crowded {
			sched.Gosched()
		}
	}
}

// shared reports whether another program has used the processor a short time ago. The caller has locked s.eager.
func (s *Shard) shared(now mono.Time) bool {
	return !s.eager.offers.allows(now) || s.vain.sharedAt(now)
}

// Blocks records that a goroutine is about to block until there are completions.
func (s *Shard) Blocks() {
	if s.eager.blocked.Add(1) > 1 {
		s.eager.score.Store(0)
	}
}

// Waited records that the goroutine has blocked.
func (s *Shard) Waited() {
	s.eager.blocked.Add(-1)
	s.eager.ended.Store(int64(s.nic.Now()))
}
