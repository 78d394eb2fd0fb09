package nic

import (
	"runtime"
	"time"

	"github.com/goroce/roce/internal/sched"
	"github.com/goroce/roce/mono"
)

// As long as the last traffic was less than quiet ago, the goroutine sleeps at most a tick at a time. A post that
// starts a timer then need not wake the goroutine: the timer may be a tick late. Later, posts are so rare that waking
// the goroutine for each costs less than the ticks.
const (
	tick  = time.Millisecond
	quiet = 10 * time.Millisecond
)

// run is the background goroutine of a shard. It pauses while a program polls, and sleeps at the port when it has found no work
// for a while. Before it sleeps, it yields to other goroutines and, on a machine with one processor, to other programs.
func (s *Shard) run() {
	var last, now mono.Time // last: time of the last work
	var policy yieldPolicy
	var offers offerPolicy
	yielded := false // since the last work
	// With more threads than processors, Gosched moves this goroutine to another thread. That gains time only after
	// this goroutine has woken another one, which this thread then runs at once. So an idle poll calls Gosched only if
	// there are not more threads than processors.
	crowded := runtime.GOMAXPROCS(0) > runtime.NumCPU()
	for {
		stopped := false
		if s.pauses(s.nic.Now()) && !s.nic.Closing() {
			if stopped = s.pause(); !stopped {
				s.unstalled()
				s.sendForgotten()
				continue
			}
		}
		n, woke, open := s.backgroundBatch()
		if !open {
			return
		}
		if woke {
			sched.Gosched() // the goroutines that we woke post now; then we send
		}
		before := now
		now = s.nic.Now()
		policy.received(n, now)
		if n > 0 {
			if stopped {
				s.stalled()
			}
			last, yielded = now, false
			continue
		}
		spin := s.nic.spin
		if sched.OneProcessor && s.watched() {
			spin = 0 // the program, which watches its memory, could not run meanwhile
		}
		if now.Sub(last) < spin && now != before { // do not wait for a clock that stands still
			if !crowded {
				sched.Gosched() // goroutines that we woke run now
			}
			if !sched.OneProcessor && offers.allows(now) {
				sched.Yield()
				offers.yielded(now, s.nic.Now())
			}
			if sched.OneProcessor && !yielded && policy.allows(now) {
				yielded = true // once: a local peer that is still silent is blocked
				began := s.nic.Now()
				sched.Yield()
				policy.yielded(s.nic.Now().Sub(began))
			}
			continue
		}
		s.seat.Lock()
		if open = s.waitAtPort(s.sleep()); open {
			s.awake()
		}
		s.seat.Unlock()
		if !open {
			return
		}
	}
}

// sleep decides how long to wait for packets and records the time. The caller
// then calls the port's Wait, and awake afterwards.
func (s *Shard) sleep() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.nic.Now()
	next := s.nextDeadline()
	s.ticking = false
	if end := now.Add(tick); now.Sub(s.busyAt) < quiet && end < next {
		next, s.ticking = end, true
	}
	s.asleepUntil = next
	if next == mono.Never {
		return -1
	}
	return max(next.Sub(now), 0)
}

func (s *Shard) awake() {
	s.mu.Lock()
	s.asleepUntil = 0
	s.mu.Unlock()
}

// wake ends the sleep of the goroutine at the port, if there is work or the sleep
// would last longer than a new deadline. The port itself ends the sleep when it has
// room again.
func (s *Shard) wake() {
	if s.asleepUntil == 0 {
		return
	}
	if next := s.nextDeadline(); next == 0 || next < s.asleepUntil && !s.ticking {
		s.asleepUntil = 0
		s.port.Wake()
	}
}
