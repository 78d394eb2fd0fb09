package nic

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/sched"
	"github.com/goroce/roce/mono"
)

// A goroutine that waits for completions on a NIC with background goroutines can block at once. The background goroutine
// then receives the packet and wakes the other one, usually on another thread: this takes longer than the packet's way
// through the stack. A goroutine that usually waits again soon after a wait is eager: it first polls for some time, and
// the background goroutine pauses, as for a program that polls. A goroutine blocks at once
//   - if it is not eager: packets for which the program need not do anything would wait for the end of the pause;
//   - if others wait, too: the background goroutine must not pause;
//   - if another program uses the processor.

const (
	// An eager goroutine waits again within eagerGap after a wait. Its score works like that of a prompt program.
	eagerGap = 100 * time.Microsecond

	// After eagerPolls polls without success it lets other goroutines of the program run.
	eagerPolls = 32
)

// eager is a shard's record of the goroutines that wait for completions.
type eager struct {
	ended   atomic.Int64 // mono.Time of the end of the last wait
	blocked atomic.Int32 // goroutines that block
	score   atomic.Int32 // of waits that began soon after another one

	mu     sync.Mutex // held by the goroutine that polls
	offers offerPolicy
}

// SpinFor polls q for a short time, if that is promising, and reports whether the program has what it waits for. If not,
// the caller blocks, between [Shard.Blocks] and [Shard.Waited].
func (s *Shard) SpinFor(q *cq.CQ, ready func() bool) bool {
	if s.nic.polled {
		return s.nic.SpinFor(ready)
	}
	e := &s.eager
	if s.nic.spin <= 0 || e.blocked.Load() > 0 || !e.mu.TryLock() {
		return false
	}
	defer e.mu.Unlock()
	if !e.waits(s.nic.Now()) || !s.spin(q, ready) {
		return false
	}
	e.ended.Store(int64(s.nic.Now()))
	return true
}

// waits records the begin of a wait, and reports whether the goroutine is eager. Only the goroutine with the lock calls it.
func (e *eager) waits(now mono.Time) bool {
	score := e.score.Load()
	if now.Sub(mono.Time(e.ended.Load())) > eagerGap {
		e.score.Store(max(score-lateScore, 0))
		return false
	}
	e.score.Store(min(score+1, maxAnswerScore))
	return score >= answerScore
}

// spin polls q until ready returns true, as long as that is promising. The caller has locked s.eager.
func (s *Shard) spin(q *cq.CQ, ready func() bool) bool {
	e, n := &s.eager, s.nic
	runtime.Gosched() // goroutines that the program has woken since the last wait
	begin := n.Now()
	last := begin
	for polls := 1; e.blocked.Load() == 0 && last >= mono.Time(s.vain.shared.Load()); polls++ {
		if s.PollEmpty(q); ready() {
			return true
		}
		now := n.Now()
		if now == last || now.Sub(begin) >= n.spin { // do not wait for a clock that stands still
			return false
		}
		last = now
		if polls%eagerPolls == 0 {
			runtime.Gosched()
		}
		if e.offers.allows(now) {
			sched.Yield()
			e.offers.yielded(now, n.Now())
		}
	}
	return ready()
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
