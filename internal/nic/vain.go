package nic

import (
	"sync/atomic"
	"time"

	"github.com/goroce/roce/internal/sched"
	"github.com/goroce/roce/mono"
)

// A program that polls without success occupies a processor that other programs, perhaps its peer, need.
// If several programs compete for the processor, the kernel preempts the polling program at the end of
// its time slice, and it then waits for the time slices of others even though packets have arrived. A
// program that sleeps until packets arrive gets the processor at once. So after some polls without
// success the program yields the processor. If another program used it, polls that find nothing sleep at
// the port for some time.
//
// On a machine with one processor a peer on the same machine can answer only while the program does not run: polls
// between a request and a yield are in vain. So if a poll right after a yield finds work, the program yields after
// half as many polls the next time, otherwise after twice as many. If several threads poll, one may find work while another one
// yields: this counts, too.
//
// If only one goroutine of the program runs at a time (GOMAXPROCS is 1), the peer may be in the program itself, and goroutines
// that it needs cannot run while it polls. So it yields to them, too, and lets those run that wait for descriptors.

const (
	// vainPolls is the number of polls without success, in a row, after which a program yields its
	// processor; with one processor the most. If no other program needs it, yielding takes as long as one or two polls.
	vainPolls = 200

	// A processor is shared if a yield took longer than sharedTurn: the kernel's own work is shorter. It counts as
	// shared for sharedFirst. If it is still shared after that, this time doubles.
	sharedTurn  = 200 * time.Microsecond
	sharedFirst = 20 * time.Millisecond
	sharedMost  = time.Second

	// If a program stood still for standstill between two polls without success, the kernel has taken its processor away:
	// for another program, or because a quota is used up. Polls in vain use up the quota while the peer, which has one, too,
	// stands still. So the processor then counts as shared for two periods of a quota.
	standstill   = 5 * time.Millisecond
	quotaPeriods = 200 * time.Millisecond

	// On a shared processor a poll sleeps if napPolls in a row have found nothing, for napTime at
	// most, which is shorter than pollGap even if the kernel's timer is late.
	napPolls = 16
	napTime  = 150 * time.Microsecond

	// If only one goroutine of the program runs at a time, one that polls lets the others run every letRunGap. If they then run for
	// longer than letRunLong, they compute, and it polls as long, letRunMost at most, before it lets them run again.
	letRunGap  = 200 * time.Microsecond
	letRunLong = time.Millisecond
	letRunMost = 20 * time.Millisecond
)

// vain is a shard's record of polls that found nothing.
type vain struct {
	polls  atomic.Uint32 // in a row
	next   atomic.Uint32 // the poll in this row after which the program yields
	looked atomic.Int64  // mono.Time of the last of them at which the clock was read
	shared atomic.Int64  // mono.Time: the processor counts as shared until then
	length atomic.Int64  // time.Duration of the present sharing period
	most   atomic.Uint32 // polls before a yield; fewer than vainPolls only with one processor
	yield  func()        // sched.Yield, or that of a test

	// Used with one processor or one thread.
	one   bool
	asked atomic.Bool   // the last poll has yielded, and the peer may have run
	finds atomic.Uint32 // polls that found work
	naps  atomic.Bool   // a poll sleeps at the port: others yield instead
}

// letting records when programs that poll let other goroutines run. All devices of the process share its only thread, so they share
// this, too.
var letting struct {
	next  atomic.Int64 // processTime when a poll lets them run
	keeps atomic.Int64 // processTime before which no poll does
}

var processStart = time.Now()

// processTime converts a time of the NIC to one that is the same for all devices of the process.
func (n *NIC) processTime(t mono.Time) int64 { return int64(n.epoch.Sub(processStart)) + int64(t) }

// polled records a poll of a program, and whether it found work. No lock is held.
func (s *Shard) polled(found bool) {
	v := &s.vain
	if v.asked.Load() {
		v.answered(found)
	}
	if found {
		if v.polls.Load() != 0 {
			v.polls.Store(0)
		}
		if v.one {
			v.finds.Add(1)
		}
		return
	}
	polls := v.polls.Add(1)
	if most := v.most.Load(); polls == 1 && v.next.Load() != most { // a store takes longer
		v.next.Store(most)
	}
	// It yields at poll next, and also if next is far away: another thread has begun a new row of polls meanwhile.
	yields := v.next.Load()-polls-1 >= vainPolls
	if polls%napPolls != 0 && !yields {
		return
	}
	now := s.nic.Now()
	if last := mono.Time(v.looked.Swap(int64(now))); polls > napPolls && now.Sub(last) >= standstill {
		v.shared.Store(max(v.shared.Load(), int64(now.Add(quotaPeriods))))
	}
	switch {
	case v.sharedAt(now):
		if yields { // not now
			v.next.Store(polls + v.most.Load())
		}
		if polls%napPolls == 0 {
			s.gosched(now) // the nap keeps the thread
			if !s.nap() && v.one && v.naps.Load() {
				v.yield()
			}
			s.polling.last.Store(int64(s.nic.Now())) // the program still polls
		}
	case yields:
		began, finds := now, v.finds.Load()
		now = s.gosched(now)
		v.yield()
		after := s.nic.Now()
		s.polling.last.Store(int64(after)) // the program still polls
		v.looked.Store(int64(after))
		v.yielded(now, after)
		v.askedFor(after.Sub(began), v.finds.Load() != finds)
		v.next.Store(polls + v.most.Load())
	}
}

// yieldToHolder yields because another thread or goroutine has the lock of the shard. If only one can run at a time, the holder does not
// run: the kernel or the runtime has taken the processor away from it.
func (s *Shard) yieldToHolder() {
	if !s.vain.one {
		return
	}
	if sched.OneThread() {
		sched.Gosched()
	}
	s.vain.yield()
	s.polling.last.Store(int64(s.nic.Now())) // the program still polls
}

// letOthersRun lets other goroutines of the program run, if only one goroutine runs at a time and the others could not run for
// some time. It returns the time afterwards. The program has found a queue empty; no lock is held.
func (s *Shard) letOthersRun(now mono.Time) mono.Time {
	at := s.nic.processTime(now)
	if at < letting.next.Load() {
		return now
	}
	letting.next.Store(at + int64(letRunGap))
	if !sched.OneThread() {
		return now
	}
	now = s.letRun(now, sched.LetRun)
	letting.next.Store(s.nic.processTime(now.Add(letRunGap)))
	return now
}

// gosched lets other goroutines that can run do so, if only one runs at a time. It returns the time afterwards.
func (s *Shard) gosched(now mono.Time) mono.Time {
	if !sched.OneThread() {
		return now
	}
	return s.letRun(now, sched.Gosched)
}

// letRun calls yield, which lets other goroutines run. If they have run for long the last time, the caller first polls as long. It
// returns the time afterwards.
func (s *Shard) letRun(now mono.Time, yield func()) mono.Time {
	if s.nic.processTime(now) < letting.keeps.Load() {
		return now
	}
	yield()
	after := s.nic.Now()
	s.polling.last.Store(int64(after)) // the program still polls
	if took := after.Sub(now); took > letRunLong {
		letting.keeps.Store(s.nic.processTime(after.Add(min(took, letRunMost))))
		s.vain.looked.Store(int64(after)) // this was no standstill
	}
	return after
}

// askedFor records a yield of the only processor, for a time, and whether another thread has found work meanwhile. After a long yield other
// programs need the processor, and the next poll does not say whether the peer does.
func (v *vain) askedFor(d time.Duration, found bool) {
	switch {
	case !v.one:
	case d >= sharedTurn:
		v.asked.Store(false)
		v.most.Store(vainPolls)
	case found:
		v.answered(true)
	default:
		v.asked.Store(true)
	}
}

// answered records whether a poll after a short yield, or during it, found work.
func (v *vain) answered(found bool) {
	v.asked.Store(false)
	if found {
		v.most.Store(max(v.most.Load()/2, 1))
	} else {
		v.most.Store(min(2*v.most.Load(), vainPolls))
	}
}

// sharedAt reports whether the processor counts as shared.
func (v *vain) sharedAt(now mono.Time) bool { return now < mono.Time(v.shared.Load()) }

// yielded records a yield from one time to another.
func (v *vain) yielded(from, to mono.Time) {
	if to.Sub(from) < sharedTurn {
		v.length.Store(0)
		return
	}
	length := min(max(2*time.Duration(v.length.Load()), sharedFirst), sharedMost)
	v.length.Store(int64(length))
	v.shared.Store(int64(to.Add(length)))
}

// nap sleeps at the port, unless another goroutine does. It reports whether it has slept.
func (s *Shard) nap() bool {
	n := s.nic
	if s.collecting != nil {
		s.collecting.Until.Store(0) // the next poll is not soon
	}
	if n.polled {
		select {
		case n.driver <- struct{}{}:
			defer func() { <-n.driver }()
		default:
			return false
		}
		n.napping.Store(s)
		defer n.napping.Store(nil)
	} else {
		if !s.seat.TryLock() {
			return false
		}
		defer s.seat.Unlock()
	}
	d := s.sleep()
	if d < 0 || d > napTime {
		d = napTime
	}
	s.vain.naps.Store(true)
	s.waitAtPort(d)
	s.vain.naps.Store(false)
	s.awake()
	return true
}
