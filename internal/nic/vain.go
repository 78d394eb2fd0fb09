package nic

import (
	"sync/atomic"
	"time"

	"github.com/goroce/roce/internal/sched"
	"github.com/goroce/roce/mono"
)

// A program that polls in vain keeps a processor from others, and its peer may be one of them. If it is
// one of several that want the processor it loses its turn in the end, and then waits for others'
// turns even though packets have come. A program that sleeps until they come gets the processor at once.
// So after some polls in vain a program lets others have a turn. If there was one who took it, polls that
// find nothing sleep at the port for a while.

const (
	// vainPolls is after how many polls in vain, in a row, a program offers its processor. If nobody
	// else wants it that takes as long as one poll or two.
	vainPolls = 200

	// A processor is shared if somebody took it for longer than sharedTurn: the kernel's own work
	// is shorter. It counts as shared for sharedFirst, and if it is still shared then for twice as long, and so on.
	sharedTurn  = 200 * time.Microsecond
	sharedFirst = 20 * time.Millisecond
	sharedMost  = time.Second

	// On a processor that is shared a poll sleeps if napPolls in a row have found nothing, for napTime
	// at most: that is shorter than pollGap, even if the kernel's timer is late.
	napPolls = 16
	napTime  = 150 * time.Microsecond
)

// vain is what a shard knows of the polls of programs that found nothing.
type vain struct {
	polls  atomic.Uint32 // in a row
	shared atomic.Int64  // mono.Time until when the processor counts as shared
	length atomic.Int64  // for how long, a time.Duration
}

// polled notes a poll of a program, and whether it found something to do. No lock is held.
func (s *Shard) polled(found bool) {
	v := &s.vain
	if found {
		if v.polls.Load() != 0 {
			v.polls.Store(0)
		}
		return
	}
	polls := v.polls.Add(1)
	if polls%napPolls != 0 {
		return
	}
	now := s.nic.Now()
	switch {
	case now < mono.Time(v.shared.Load()):
		s.nap()
	case polls >= vainPolls:
		v.polls.Store(0)
		sched.Yield()
		v.yielded(now, s.nic.Now())
	}
}

// yielded notes for how long others had the processor.
func (v *vain) yielded(from, to mono.Time) {
	if to.Sub(from) < sharedTurn {
		v.length.Store(0)
		return
	}
	length := min(max(2*time.Duration(v.length.Load()), sharedFirst), sharedMost)
	v.length.Store(int64(length))
	v.shared.Store(int64(to.Add(length)))
}

// nap sleeps at the port, unless another goroutine does.
func (s *Shard) nap() {
	n := s.nic
	if n.polled {
		select {
		case n.driver <- struct{}{}:
			defer func() { <-n.driver }()
		default:
			return
		}
		s = n.shards[0]
		n.napping.Store(true)
		defer n.napping.Store(false)
	} else {
		if !s.seat.TryLock() {
			return
		}
		defer s.seat.Unlock()
	}
	d := s.sleep()
	if d < 0 || d > napTime {
		d = napTime
	}
	s.waitAtPort(d)
	s.awake()
	s.polling.last.Store(int64(n.Now())) // it still polls
}
