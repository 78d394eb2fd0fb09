package nic

import (
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goroce/roce/mono"
)

// pollers are the ways in which a program polls without success, each on a NIC of its own.
func pollers(t *testing.T) map[string]func() {
	background, polled, lazy := newTestNIC(t, 0), newTestNIC(t, 0), newTestNIC(t, 0)
	background.polled = false
	lazy.lazy = true
	return map[string]func(){
		"background": func() { background.shards[0].PollEmpty(background.recv) },
		"polled":     func() { polled.shards[0].Poll(polled.recv) },
		"lazy":       func() { lazy.shards[0].Poll(lazy.recv) },
		"Progress":   func() { polled.Progress() },
	}
}

// oneThread lets only one goroutine run at a time.
func oneThread(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	letting.next.Store(0)
	letting.keeps.Store(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// TestPollsLetOthersRun: while a program polls without success, its other goroutines run even if GOMAXPROCS is 1.
func TestPollsLetOthersRun(t *testing.T) {
	oneThread(t)
	for name, poll := range pollers(t) {
		const rounds = 50
		polls := 0
		for range rounds {
			var ran atomic.Bool
			go ran.Store(true)
			for !ran.Load() {
				poll()
				polls++
			}
		}
		if polls > 4*rounds*vainPolls {
			t.Errorf("%s: another goroutine ran after %d polls, want at most about %d", name, polls/rounds, vainPolls)
		}
	}
}

// TestPollsLetReadersRun: while a program polls without success, a goroutine that waits for a descriptor runs soon after the descriptor
// becomes readable, even if GOMAXPROCS is 1. It does, too, if the program computes for a millisecond between two polls.
func TestPollsLetReadersRun(t *testing.T) {
	oneThread(t)
	for name, poll := range pollers(t) {
		for _, gap := range []time.Duration{0, time.Millisecond} {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			var reads atomic.Int32
			var readAt time.Time
			go func() {
				defer r.Close()
				for b := make([]byte, 1); ; reads.Add(1) {
					if _, err := r.Read(b); err != nil {
						return
					}
					readAt = time.Now()
				}
			}()
			var took []time.Duration
			for i := range int32(50) {
				for range 3 {
					runtime.Gosched() // the reader waits
				}
				began := time.Now()
				if _, err := w.Write([]byte{1}); err != nil {
					t.Fatal(err)
				}
				for reads.Load() == i {
					poll()
					compute(gap)
				}
				took = append(took, readAt.Sub(began))
			}
			w.Close()
			slices.Sort(took)
			if median, want := took[len(took)/2], 6*gap+2*time.Millisecond; median > want {
				t.Errorf("%s, %v between polls: a reader ran %v later, want at most %v", name, gap, median, want)
			}
		}
	}
}

// compute keeps the processor for some time.
func compute(d time.Duration) {
	for end := time.Now().Add(d); d > 0 && time.Now().Before(end); {
	}
}

// TestLetRunFair: after other goroutines have run for long, the program polls as long before it lets them run again. The time in which they
// run is neither a gap between polls nor a standstill.
func TestLetRunFair(t *testing.T) {
	oneThread(t)
	b, other := newTestNIC(t, 0), newTestNIC(t, 0)
	b.epoch = b.epoch.Add(-time.Hour)
	s := b.shards[0]
	defer letting.keeps.Store(0)
	for _, test := range []struct{ took, least, most time.Duration }{
		{0, 0, 0},
		{letRunLong, letRunLong, letRunMost},
		{5 * time.Millisecond, 5 * time.Millisecond, letRunMost},
		{2 * letRunMost, letRunMost, letRunMost},
	} {
		letting.keeps.Store(0)
		var after mono.Time
		now := s.letRun(b.Now(), func() { compute(test.took); after = b.Now() })
		if last := mono.Time(s.polling.last.Load()); now < after || last != now {
			t.Errorf("others ran until %v: the time is %v, the last poll at %v", after, now, last)
		}
		if looked := mono.Time(s.vain.looked.Load()); test.took > 0 && looked != now {
			t.Errorf("others ran until %v: the last look was at %v, so the time counts as a standstill", after, looked)
		}
		left := time.Duration(letting.keeps.Load() - b.processTime(now))
		if test.took == 0 && now.Sub(after) < letRunLong && left > 0 || test.took > 0 && (left < test.least || left > test.most) {
			t.Errorf("others ran for %v: the program then polls for %v, want %v to %v", test.took, left, test.least, test.most)
		}
		if left <= 0 {
			continue
		}
		if got := s.letRun(now, func() { t.Error("lets others run again at once") }); got != now {
			t.Errorf("the time is %v, want %v", got, now)
		}
		if left >= letRunMost {
			other.shards[0].letRun(other.Now(), func() { t.Error("another device lets others run again at once") })
		}
	}
}

// TestLetRunSlowPolls: a program that polls once a millisecond lets others run, but does not count as one that polls in a loop.
func TestLetRunSlowPolls(t *testing.T) {
	oneThread(t)
	b := newTestNIC(t, 0)
	b.polled, b.epoch = false, b.epoch.Add(-time.Hour)
	defer letting.next.Store(0)
	s := b.shards[0]
	for range 2 * pollsInRow {
		s.PollEmpty(b.recv)
		s.polling.last.Add(-int64(pollGap))
		letting.next.Store(0)
	}
	if polls := s.polling.polls.Load(); polls > 1 {
		t.Errorf("%d polls in a row, want 1", polls)
	}
}

// TestLetRunAfterStandstill: a program that lets other goroutines run after a standstill still sees the standstill.
func TestLetRunAfterStandstill(t *testing.T) {
	oneThread(t)
	p := new(sleepPort)
	n := &NIC{polled: true, driver: make(chan struct{}, 1), epoch: time.Now().Add(-time.Hour)}
	s := newShard(n, 0, p)
	for range napPolls {
		s.polled(false)
	}
	s.vain.looked.Store(int64(n.Now().Add(-standstill)))
	letting.next.Store(0)
	s.letOthersRun(n.Now())
	for range napPolls {
		s.polled(false)
	}
	if len(p.naps) == 0 {
		t.Error("no nap after a standstill")
	}
}
