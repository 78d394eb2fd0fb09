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
	pollGap = 250 * time.Microsecond

	// A program that polls may then read its memory until a WRITE has changed it, and call nothing. When
	// packets have waited for the end of maxStalls pauses in a row, there are no more of them, until the program has
	// polled for trustAfter with gaps shorter than pollGap, and each time for twice as long as the time before. One
	// such pause means little: others may have had the processor.
	maxStalls  = 6
	trustAfter = 100 * time.Millisecond
	maxTrust   = 10 * time.Second

	// A program answers if it has called again within soon after promptly completions in a row.
	soon     = 10 * time.Microsecond
	promptly = 16

	// A poll lingers for lingerTime at most. When maxCredit more have done so in vain than not, none lingers for trustAfter.
	// What comes may be something else, as acknowledgements: after maxPoor stalls in a row, each with less than enoughHits
	// before, none lingers for a while, and each time for twice as long as the time before.
	lingerTime = 60 * time.Microsecond
	maxCredit  = 8
	enoughHits = 64
	maxPoor    = 4
)

// polling is what a shard knows of the program that polls its completion queues.
type polling struct {
	polls   atomic.Uint32 // empty ones in a row
	last    atomic.Int64  // mono.Time of the last of them
	paused  atomic.Bool   // the background goroutine is in pause
	resume  notify.Chan   // ends the pause
	stalls  atomic.Int32  // pauses in a row in which packets waited
	lingers atomic.Bool   // the program finds what it waits for in its polls, see linger

	// Of the background goroutine.
	since mono.Time     // when the program began to poll; 0: it does not poll
	trust time.Duration // for how long it must poll until there are pauses again

	// With the shard locked.
	handed mono.Time     // when a poll received a message for the program; mono.Never: it has called since
	prompt int           // times in a row that it called again soon
	credit int           // of linger: for polls that had what the program waits for, less for those that had not
	notYet mono.Time     // no poll lingers before
	hits   int           // polls that lingered and had something, since the last stall
	poor   int           // stalls in a row with few hits before
	lapsed time.Duration // for how long none has lingered after that
}

// pauses reports whether the background goroutine leaves the work to the program now.
func (s *Shard) pauses(now mono.Time) bool {
	p := &s.polling
	switch {
	case !s.polledAt(now):
		p.since = 0
		return false
	case p.lingers.Load():
		return true
	case p.since == 0:
		p.since = now
	case now.Sub(p.since) > max(p.trust, trustAfter):
		p.stalls.Store(0)
	}
	return p.stalls.Load() < maxStalls
}

// stalled notes that packets waited for the end of a pause.
func (s *Shard) stalled() {
	p := &s.polling
	if p.stalls.Add(1) == maxStalls {
		p.trust = min(2*max(p.trust, trustAfter), maxTrust)
	}
	p.lingers.Store(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case p.hits >= enoughHits:
		p.poor = 0
	case p.hits > 0:
		p.poor++
	}
	p.credit, p.hits = 0, 0
	if p.poor == maxPoor {
		p.poor, p.lapsed = 0, min(2*max(p.lapsed, trustAfter), maxTrust)
		s.lapse(s.nic.Now(), p.lapsed)
	}
}

// unstalled notes that no packets waited for the end of a pause.
func (s *Shard) unstalled() {
	if !s.watched() {
		s.polling.stalls.Store(0)
	}
}

// watched reports whether the program waits for changes of its memory.
func (s *Shard) watched() bool { return s.polling.stalls.Load() >= maxStalls }

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
		s.drive(q, now)
	}
}

// drive does the work of the background goroutine for a program that polls q.
func (s *Shard) drive(q *cq.CQ, now mono.Time) {
	if !s.lockForPoll() {
		return
	}
	s.called(now)
	held := s.deferred // the program has polled again instead of answering
	before := s.counters.RDMARecvs
	found := s.work(now) > 0
	received := s.counters.RDMARecvs - before
	if received > 0 {
		s.polling.handed = now
	}
	switch {
	case q.Len() > 0 && s.watched():
		s.finish(now)
		s.linger(q)
	case received == 1 && !held && s.answers(): // in q or in another queue, which the program polls next
		s.deferred = true // it leaves with what the program posts next
		s.conclude(now)
	default:
		s.finish(now)
	}
	s.polled(found)
}

// lockForPoll locks the shard, unless another goroutine has the lock or the shard has stopped.
func (s *Shard) lockForPoll() bool {
	if !s.mu.TryLock() {
		return false
	}
	if s.nic.stopped {
		s.mu.Unlock()
		return false
	}
	return true
}

// called notes a call of the program, with the shard locked.
func (s *Shard) called(now mono.Time) {
	p := &s.polling
	if p.handed == mono.Never {
		return
	}
	if now.Sub(p.handed) > soon {
		p.prompt = 0
	} else if p.prompt < promptly {
		p.prompt++
	}
	p.handed = mono.Never
}

// answers reports whether the program calls again soon after a completion. Then the acknowledgement waits for that
// call, and leaves with the program's own answer. If the call does not come, the background goroutine sends it.
func (s *Shard) answers() bool { return s.polling.prompt >= promptly && s.asleepUntil == 0 }

// linger stays in a poll that has a completion, for a program that is about to read its memory until a WRITE of
// its peer has changed it: it calls nothing then, and on a machine with one processor keeps the background goroutine
// from what it waits for.
func (s *Shard) linger(q *cq.CQ) {
	p := &s.polling
	now := s.nic.Now()
	before, end := mono.Never, now.Add(lingerTime)
	for first := true; ; first = false {
		if !s.lockForPoll() {
			s.lingeredInVain()
			return
		}
		if first && now < p.notYet {
			s.mu.Unlock()
			return
		}
		packets, n := s.counters.RcvdPkts, q.Len()
		s.work(now)
		came := s.counters.RcvdPkts != packets && q.Len() == n
		over := came || now >= end || now == before // a clock that stands still must not be waited for
		switch {
		case !over:
		case came:
			p.hits++
			p.credit = min(p.credit+1, maxCredit)
			p.lingers.Store(p.credit == maxCredit)
		default:
			if p.credit--; p.credit < -maxCredit {
				s.lapse(now, trustAfter)
			}
			s.lingeredInVain()
		}
		s.finish(now)
		if over {
			return
		}
		before, now = now, s.nic.Now()
	}
}

// lapse has no poll linger for some time. The caller has locked the shard.
func (s *Shard) lapse(now mono.Time, d time.Duration) {
	s.polling.credit, s.polling.notYet = 0, now.Add(d)
}

// lingeredInVain has the background goroutine receive what the program is about to wait for.
func (s *Shard) lingeredInVain() {
	if s.polling.lingers.Swap(false) && s.polling.paused.Load() {
		s.polling.resume.Notify()
	}
}

// Waits notes that a program waits for completions or events: it polls no more.
func (s *Shard) Waits() {
	s.polling.polls.Store(0)
	if s.polling.paused.Load() {
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
