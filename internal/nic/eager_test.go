package nic

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// TestEager: a goroutine is eager after some waits that each began soon after the one before. Some that began late end that.
// If it has polled in vain, it takes twice as many waits.
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
	wait(time.Second)
	for i := range 2 * eagerWaits {
		if got, want := wait(eagerGap), i >= eagerWaits; got != want {
			t.Fatalf("after %d waits: eager %v", i, got)
		}
	}
	for i := range 3 {
		if wait(eagerGap + 1) {
			t.Errorf("late wait %d is eager", i)
		}
	}
	if wait(0) {
		t.Error("still eager after late waits")
	}
	for e.vain = range mostVain + 1 {
		e.score.Store(0)
		waits := 0
		for !wait(0) {
			waits++
		}
		if want := eagerWaits << e.vain; waits != want {
			t.Errorf("in vain %d times: eager after %d waits, want %d", e.vain, waits, want)
		}
	}
}

// busyQueue is a port that pushes a completion into a queue at the given number of calls of Recv.
type busyQueue struct {
	link.Port
	q     *cq.CQ
	after int
	calls int
}

func (p *busyQueue) Recv([]link.Frame) (int, error) {
	if p.calls++; p.calls == p.after {
		p.q.Push(&cq.WC{}, false)
	}
	return 0, nil
}

// TestSpinFor: an eager goroutine does the work of the shard until there is a completion, and the background goroutine may
// pause meanwhile. It blocks at once if others wait, or if another program uses the processor, and leaves if its caller
// has given up.
func TestSpinFor(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	closed := make(chan struct{})
	close(closed)
	for name, c := range map[string]struct {
		set   func(*Shard)
		ctx   context.Context
		done  chan struct{}
		spins bool // to the completion
		polls bool // at all
	}{
		"eager":            {spins: true, polls: true},
		"not eager":        {set: func(s *Shard) { s.eager.score.Store(eagerWaits - 1) }},
		"waits late":       {set: func(s *Shard) { s.eager.ended.Store(0) }},
		"another blocks":   {set: func(s *Shard) { s.Blocks() }},
		"two blocked":      {set: func(s *Shard) { s.Blocks(); s.Blocks(); s.Waited(); s.Waited() }},
		"another spins":    {set: func(s *Shard) { s.eager.mu.Lock() }},
		"a processor less": {set: func(s *Shard) { s.vain.shared.Store(int64(mono.Never)) }},
		"long yields":      {set: func(s *Shard) { s.eager.offers.next = mono.Never }},
		"sleeps at once":   {set: func(s *Shard) { s.nic.spin = -1 }},
		"in vain":          {set: func(s *Shard) { s.nic.spin = 1 }, polls: true},
		"was in vain":      {set: func(s *Shard) { s.eager.vain = 1; s.eager.score.Store(eagerWaits) }},
		"ctx canceled":     {ctx: canceled, polls: true},
		"queue closed":     {done: closed, polls: true},
		"NIC closing":      {set: func(s *Shard) { s.nic.closing.Store(true) }, polls: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestNIC(t, 0)
			b.polled, b.spin, b.epoch = false, time.Minute, b.epoch.Add(-time.Hour)
			s := b.shards[0]
			port := &busyQueue{Port: s.port, q: b.recv, after: 3 * eagerPolls}
			s.port = port
			s.eager.score.Store(eagerWaits)
			s.eager.ended.Store(int64(b.Now().Add(time.Minute))) // so that the test may be slow
			if c.set != nil {
				c.set(s)
			}
			before := s.eager.offers.next
			got := s.SpinFor(cmp.Or(c.ctx, t.Context()), b.recv, c.done)
			if s.eager.offers.next != before {
				t.Logf("another program has used the processor: %v after %d polls", got, port.calls)
				return
			}
			if got != c.spins || got != (port.calls >= port.after) || (port.calls > 0) != c.polls && name != "in vain" {
				t.Errorf("%v after %d polls", got, port.calls)
			}
			if got && !s.polledAt(b.Now()) {
				t.Error("the background goroutine does not pause")
			}
			if s.eager.score.Load() < 2 != (name == "in vain" || name == "two blocked") {
				t.Errorf("score %d", s.eager.score.Load())
			}
		})
	}
}

// TestSpinForWaiting: a goroutine that waits although there are completions neither polls nor keeps the background
// goroutine from its work.
func TestSpinForWaiting(t *testing.T) {
	b := newTestNIC(t, 0)
	b.polled, b.spin = false, time.Minute
	s := b.shards[0]
	s.eager.score.Store(eagerWaits)
	for range 2 * pollsInRow {
		s.PollEmpty(b.recv)
	}
	b.recv.Push(&cq.WC{}, false)
	if s.eager.ended.Store(int64(b.Now())); !s.SpinFor(t.Context(), b.recv, nil) || s.polledAt(b.Now()) {
		t.Error("the background goroutine pauses")
	}
}
