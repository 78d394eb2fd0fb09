package nic

import (
	"testing"
	"time"

	"github.com/goroce/roce/mono"
)

// TestEager: a goroutine is eager after some waits that each began soon after the one before. Some that began late end that.
func TestEager(t *testing.T) {
	var e eager
	now := mono.Time(0).Add(time.Second)
	wait := func(gap time.Duration) bool {
		now = now.Add(gap)
		eager := e.waits(now)
		now = now.Add(time.Millisecond)
		e.ended.Store(int64(now))
		return eager
	}
	for i := range 2 * answerScore {
		if got, want := wait(eagerGap), i > answerScore; got != want {
			t.Fatalf("after %d waits: eager %v", i, got)
		}
	}
	for i, want := range []bool{false, false, false} {
		if wait(eagerGap+1) != want {
			t.Errorf("late wait %d is eager", i)
		}
	}
	if wait(0) {
		t.Error("still eager after late waits")
	}
}

// TestSpinFor: an eager goroutine does the work of the shard until it has what it waits for, and the background goroutine
// pauses meanwhile. It blocks at once if others wait, or if another program uses the processor.
func TestSpinFor(t *testing.T) {
	for name, c := range map[string]struct {
		set   func(*Shard)
		polls int // until the program has what it waits for
		spins bool
	}{
		"eager":            {func(*Shard) {}, 40, true},
		"not eager":        {func(s *Shard) { s.eager.score.Store(answerScore - 1) }, 1, false},
		"waits late":       {func(s *Shard) { s.eager.ended.Store(0) }, 1, false},
		"another blocks":   {func(s *Shard) { s.Blocks() }, 1, false},
		"two block":        {func(s *Shard) { s.Blocks(); s.Blocks(); s.Waited(); s.Waited() }, 1, false},
		"another spins":    {func(s *Shard) { s.eager.mu.Lock() }, 1, false},
		"a processor less": {func(s *Shard) { s.vain.shared.Store(int64(mono.Never)) }, 1, false},
		"sleeps at once":   {func(s *Shard) { s.nic.spin = -1 }, 1, false},
		"in vain":          {func(s *Shard) { s.nic.spin = 10 * time.Millisecond }, 1 << 30, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestNIC(t, 0)
			b.polled, b.spin, b.epoch = false, time.Minute, b.epoch.Add(-time.Hour)
			s, polls, paused := b.shards[0], -1, false
			s.eager.score.Store(maxAnswerScore)
			s.eager.ended.Store(int64(b.Now().Add(time.Minute))) // so that the test may be slow
			c.set(s)
			got := s.SpinFor(b.recv, func() bool {
				polls++
				paused = paused || s.pauses(b.Now())
				return polls >= c.polls
			})
			if got != c.spins || paused != (c.polls > pollsInRow) {
				t.Errorf("%v after %d polls, the background goroutine pauses: %v", got, polls, paused)
			}
		})
	}
}
