package nic

import (
	"sync"
	"testing"
	"time"

	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// If other programs keep the processor for long during a yield, it counts as shared, for longer
// each time.
func TestSharedProcessor(t *testing.T) {
	const us, ms = time.Microsecond, time.Millisecond
	var v vain
	now := mono.Time(0).Add(time.Second)
	for _, test := range []struct {
		took, shared time.Duration
	}{
		{0, 0},
		{sharedTurn - us, 0},
		{3 * ms, sharedFirst},
		{3 * ms, 2 * sharedFirst},
		{20 * ms, 4 * sharedFirst},
		{sharedTurn, 8 * sharedFirst},
		{10 * us, 0},
		{3 * ms, sharedFirst},
	} {
		end := now.Add(test.took)
		v.yielded(now, end)
		if got := max(mono.Time(v.shared.Load()).Sub(end), 0); got != test.shared {
			t.Errorf("others had the processor for %v: it counts as shared for %v, want %v", test.took, got, test.shared)
		}
		now = end.Add(test.shared)
	}
	for range 20 {
		v.yielded(now, now.Add(ms))
	}
	if got := mono.Time(v.shared.Load()).Sub(now.Add(ms)); got != sharedMost {
		t.Errorf("at most %v, want %v", got, sharedMost)
	}
}

// With one processor a program yields after fewer polls if a poll right after a yield has found work, and after more if not.
// A long yield shows that others need the processor, and a poll after it shows nothing.
func TestTurns(t *testing.T) {
	const long, short = sharedTurn, sharedTurn - 1
	type yield struct {
		took  time.Duration
		found bool
		most  uint32
	}
	for _, test := range []struct {
		one    bool
		yields []yield
	}{
		{true, []yield{{short, true, 100}, {short, true, 50}, {0, true, 25}, {0, true, 12}, {0, true, 6}, {0, true, 3}, {0, true, 1}, {0, true, 1}, {0, false, 2}, {0, false, 4}}},
		{true, []yield{{short, false, vainPolls}, {short, true, 100}, {short, false, vainPolls}, {short, false, vainPolls}}},
		{true, []yield{{short, true, 100}, {short, true, 50}, {long, true, vainPolls}, {short, true, 100}, {long, false, vainPolls}}},
		{false, []yield{{short, true, vainPolls}, {0, true, vainPolls}, {long, true, vainPolls}}},
	} {
		s := newShard(&NIC{polled: true, epoch: time.Now()}, 0, new(sleepPort))
		s.vain.one = test.one
		for i, y := range test.yields {
			s.vain.askedFor(y.took, false)
			s.polled(y.found)
			if y.most > 1 { // otherwise this poll yields, too
				s.polled(!y.found) // only the first poll counts
			}
			if got := s.vain.most.Load(); got != y.most {
				t.Errorf("one processor %v, yield %d of %v, then found %v: it yields after %d polls, want %d", test.one, i, y.took, y.found, got, y.most)
			}
		}
	}
}

// A program yields after as many polls in vain as it may make, each time in a row, and counts as polling after the yield.
func TestYieldsAfter(t *testing.T) {
	for _, most := range []uint32{1, 3, napPolls + 1, vainPolls} {
		p := new(sleepPort)
		n := &NIC{polled: true, driver: make(chan struct{}, 1), epoch: time.Now().Add(-time.Hour)}
		s := newShard(n, 0, p)
		n.shards = []*Shard{s}
		for round := range 3 {
			s.vain.most.Store(most)
			s.vain.one = round == 2
			s.polling.last.Store(0)
			for i := range most {
				if s.polling.last.Load() != 0 {
					t.Fatalf("round %d: it has yielded after %d polls, want %d", round, i, most)
				}
				s.vain.shared.Store(0) // whatever this machine does meanwhile
				s.vain.looked.Store(int64(n.Now()))
				s.polled(false)
			}
			if s.polling.last.Load() == 0 {
				t.Errorf("round %d: it has not yielded after %d polls", round, most)
			}
		}
		if !s.vain.asked.Load() && s.vain.most.Load() != vainPolls {
			t.Errorf("after a yield of the only processor the next poll does not count, and %d polls do not say that the yield was long", s.vain.most.Load())
		}
		s.Waits()
		if s.vain.asked.Load() {
			t.Error("the poll after waiting counts as the one after a yield")
		}
		s.vain.shared.Store(int64(mono.Never))
		if most == 1 {
			for range 2 * napPolls {
				s.polled(false)
			}
			if len(p.naps) != 2 {
				t.Errorf("%d naps in %d polls in vain on a shared processor, want 2", len(p.naps), 2*napPolls)
			}
		}
	}
}

// yielder polls a shard without success. in runs during each yield: other threads have the processor then.
type yielder struct {
	s      *Shard
	yields int
	in     func()
}

func newYielder(one bool) *yielder {
	n := &NIC{polled: true, driver: make(chan struct{}, 1), epoch: time.Now().Add(-time.Hour)}
	y := &yielder{s: newShard(n, 0, new(sleepPort)), in: func() {}}
	n.shards = []*Shard{y.s}
	y.s.vain.one = one
	y.s.vain.yield = func() { y.yields++; y.in() }
	return y
}

// poll polls until the shard yields, and returns the number of polls.
func (y *yielder) poll() (polls int) {
	for before := y.yields; y.yields == before; polls++ {
		y.s.vain.shared.Store(0) // whatever this machine does meanwhile
		y.s.vain.looked.Store(int64(y.s.nic.Now()))
		y.s.polled(false)
	}
	return polls
}

// Two threads poll queues of a shard on one processor. One of them gets an answer during each yield of the other one, which gets none. So they
// yield early.
func TestYieldsOfTwo(t *testing.T) {
	y := newYielder(true)
	y.in = func() { y.s.polled(true) }
	for range 40 {
		y.poll()
	}
	if polls := y.poll(); polls > 4 {
		t.Errorf("a thread yields after %d polls although the peer answers the other one during each yield", polls)
	}
	y.in = func() {}
	for range 40 {
		y.poll()
	}
	if polls := y.poll(); polls != vainPolls {
		t.Errorf("a thread yields after %d polls although the peer answers none, want %d", polls, vainPolls)
	}
}

// A thread that has polled in vain for long yields, and another one has success meanwhile. The next yield is not late.
func TestYieldsAfterSuccessOfAnother(t *testing.T) {
	for _, one := range []bool{false, true} {
		y := newYielder(one)
		for range 100 {
			y.poll()
		}
		y.in = func() {
			y.s.polled(true)
			y.s.polled(false)
		}
		y.poll()
		y.in = func() {}
		if polls := y.poll(); polls > vainPolls {
			t.Errorf("one processor %v: the next yield comes after %d polls, want at most %d", one, polls, vainPolls)
		}
	}
}

// The time of a yield is no gap between polls, so the program still counts as polling.
func TestYieldIsNoGap(t *testing.T) {
	y := newYielder(false)
	n := y.s.nic
	var after mono.Time
	y.in = func() {
		n.epoch = n.epoch.Add(-time.Minute)
		after = n.Now()
	}
	y.s.polling.polls.Store(pollsInRow)
	y.s.polling.last.Store(int64(n.Now()))
	y.poll()
	if last := mono.Time(y.s.polling.last.Load()); last < after || !y.s.polledAt(after) {
		t.Errorf("the yield ended at %v, the last poll was at %v", after, last)
	}
	if looked := mono.Time(y.s.vain.looked.Load()); looked < after {
		t.Errorf("the yield counts as a standstill: it ended at %v, and the last look was at %v", after, looked)
	}
}

// A poll that finds the shard locked yields if only one thread or goroutine can run, because then the one that has the lock does not run. The
// program still counts as polling afterwards.
func TestYieldsToHolder(t *testing.T) {
	for _, one := range []bool{true, false} {
		b := newTestNIC(t, 0)
		b.polled = false
		s := b.shards[0]
		yields := 0
		s.vain.one = one
		s.vain.yield = func() {
			yields++
			b.epoch = b.epoch.Add(-time.Minute)
		}
		s.mu.Lock()
		for range 10 {
			s.PollEmpty(b.recv)
		}
		s.mu.Unlock()
		if one != (yields >= 9) || !one && yields > 0 {
			t.Errorf("one processor %v: %d yields in 10 polls of a shard that is locked", one, yields)
		}
		if polls := s.polling.polls.Load(); polls != 10 || one && s.vain.asked.Load() {
			t.Errorf("one processor %v: %d polls in a row, want 10; the next poll counts as the one after a yield: %v", one, polls, s.vain.asked.Load())
		}
	}
}

// On a shared processor only one goroutine at a time sleeps at the port. With one processor, another one that polls in vain meanwhile
// yields, and still counts as polling afterwards. It does not yield to the background goroutine that sleeps there, nor with several processors: a
// busy neighbour would keep its processor for a whole time slice.
func TestYieldsToNap(t *testing.T) {
	for _, c := range []struct {
		polled, one bool
		of          string // who sleeps at the port
		want        int
	}{
		{true, true, "poll", 3}, {false, true, "poll", 3},
		{true, true, "other", 0}, {false, true, "other", 0},
		{true, false, "poll", 0}, {false, false, "poll", 0},
	} {
		y := newYielder(c.one)
		n := y.s.nic
		n.polled = c.polled
		y.in = func() { n.epoch = n.epoch.Add(-time.Minute) }
		y.s.vain.shared.Store(int64(mono.Never))
		pollInVain := func() {
			for range 3 * napPolls {
				y.s.polled(false)
			}
		}
		if c.of == "poll" {
			y.s.port.(*sleepPort).during = sync.OnceFunc(pollInVain)
			y.s.nap()
		} else {
			n.driver <- struct{}{}
			y.s.seat.Lock()
			pollInVain()
		}
		if y.yields != c.want {
			t.Errorf("%+v: %d yields in %d polls in vain", c, y.yields, 3*napPolls)
		}
		if now := n.Now(); now.Sub(mono.Time(y.s.polling.last.Load())) >= pollGap {
			t.Errorf("%+v: a yield counts as a gap between polls", c)
		}
	}
}

// sleepPort is a port that records the requested durations of sleeps, and how often it was woken. It calls during in each sleep.
type sleepPort struct {
	link.Port
	naps   []time.Duration
	woken  int
	during func()
}

func (p *sleepPort) Wait(d time.Duration) error {
	p.naps = append(p.naps, d)
	if p.during != nil {
		p.during()
	}
	return nil
}

func (p *sleepPort) Wake() { p.woken++ }

// A poll without success sleeps at the port while the processor is shared, one goroutine at a time.
// Polls do not sleep while they find work, or while the processor is not shared.
func TestNap(t *testing.T) {
	for _, polled := range []bool{true, false} {
		p := new(sleepPort)
		n := &NIC{polled: polled, driver: make(chan struct{}, 1), epoch: time.Now()}
		s := newShard(n, 0, p)
		n.shards = []*Shard{s}
		polls := func(found bool, times int) (naps int) {
			p.naps = nil
			for range times {
				s.polled(found)
			}
			return len(p.naps)
		}
		if got := polls(false, vainPolls-1); got != 0 && s.vain.shared.Load() == 0 { // the next one would find out that this machine is shared
			t.Errorf("%d naps on a processor that is not known to be shared", got)
		}
		s.vain.shared.Store(int64(mono.Never))
		s.polled(true)
		if got := polls(false, 3*napPolls); got != 3 {
			t.Errorf("%d naps in %d polls in vain, want 3", got, 3*napPolls)
		}
		for _, nap := range p.naps {
			if nap <= 0 || nap > napTime {
				t.Errorf("a nap of %v, want %v at most", nap, napTime)
			}
		}
		if got := polls(true, 10*napPolls); got != 0 {
			t.Errorf("%d naps although there is work", got)
		}
		if polled {
			n.driver <- struct{}{}
		} else {
			s.seat.Lock()
		}
		if got := polls(false, 3*napPolls); got != 0 {
			t.Errorf("%d naps where another goroutine sleeps", got)
		}
		if s.asleepUntil != 0 || n.napping.Load() != nil {
			t.Error("counts as asleep after a nap")
		}
	}
}

// A poll without success on a shared processor sleeps at the port of its queue's shard, where the packets come, and Nudge ends that sleep.
func TestNapAtOwnPort(t *testing.T) {
	n := &NIC{polled: true, driver: make(chan struct{}, 1), epoch: time.Now()}
	ports := []*sleepPort{new(sleepPort), new(sleepPort), new(sleepPort)}
	for i, p := range ports {
		p.during = n.Nudge
		n.shards = append(n.shards, newShard(n, i, p))
		n.shards[i].vain.shared.Store(int64(mono.Never))
	}
	for i, s := range n.shards {
		for range napPolls {
			s.polled(false)
		}
		for j, p := range ports {
			if want := map[bool]int{true: 1}[i == j]; len(p.naps) != want || p.woken != want {
				t.Errorf("a poll of shard %d: %d naps at port %d, %d ended; want %d", i, len(p.naps), j, p.woken, want)
			}
			p.naps, p.woken = nil, 0
		}
	}
}

// TestStandstill: a program that stood still between two polls without success naps for some time. One that had success
// meanwhile does not.
func TestStandstill(t *testing.T) {
	p := new(sleepPort)
	n := &NIC{polled: true, driver: make(chan struct{}, 1), epoch: time.Now().Add(-time.Hour)}
	s := newShard(n, 0, p)
	n.shards = []*Shard{s}
	naps := func(before ...bool) int {
		s.vain.shared.Store(0)
		s.vain.polls.Store(0)
		for _, found := range before {
			s.polled(found)
		}
		s.vain.looked.Store(int64(n.Now().Add(-standstill)))
		p.naps = nil
		for range napPolls {
			s.polled(false)
		}
		return len(p.naps)
	}
	row := make([]bool, napPolls) // without success
	if got := naps(row...); got != 1 {
		t.Errorf("%d naps after a standstill, want 1", got)
	}
	if left := mono.Time(s.vain.shared.Load()).Sub(n.Now()); left <= 0 || left > quotaPeriods {
		t.Errorf("it naps for %v more, want %v", left, quotaPeriods)
	}
	if got := naps(append(row, true)...); got != 0 {
		t.Errorf("%d naps of a program that has had work", got)
	}
	s.vain.most.Store(1)
	if got := naps(row...); got != 1 {
		t.Errorf("%d naps after a standstill of a program that yields after each poll, want 1", got)
	}
	s.vain.most.Store(vainPolls)
	if got := naps(); got != 0 {
		t.Errorf("%d naps of a program that has just begun to poll", got)
	}
	naps(row...)
	if s.Waits(); s.vain.polls.Load() != 0 {
		t.Error("a program that waits still polls")
	}
}
