package nic

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/qp"
)

// packetsPerEntry is how many packets one entry sends, about, before other goroutines get the
// lock and packets that arrived meanwhile are handled. The rest waits for the next entry.
// A window fits, and one packet more, which shows whether there is a rest; so a post of a
// window wakes no goroutine. Many more packets would overrun a peer that answers each.
const packetsPerEntry = qp.DefaultWindow + 1

// send builds packets and hands them to the port's driver.
func (s *Shard) send(now mono.Time) {
	var built span
	if len(s.ready) > 0 {
		built = begin(regionBuild, &s.counters)
	}
	s.build(now)
	built.end(&s.counters)
	s.flush()
}

// build lets the queue pairs that are ready build packets until they have no more, there
// are packetsPerEntry, or the port has no room.
func (s *Shard) build(now mono.Time) {
	s.unbuilt = 0
	if s.qp1.post || s.qp1.blocked {
		s.postQP1(now)
	}
	s.refused = false
	end := s.commits + packetsPerEntry
	last := ^uint64(0) // commits at the last refusal
	i, passing := 0, 0
	for i < len(s.ready) && s.commits < end {
		if i == passing {
			passing = s.emitPassing(now, i)
			s.refused = false // what had no room is asked for again below
		}
		q := s.ready[i]
		s.crowded = false
		more := q.engine.Emit(now, q.sink)
		s.timers.Set(&q.timer, q, q.engine.NextTimeout())
		if more && s.refused {
			if s.commits == last {
				break // no room even after a flush: Wait returns when there is
			}
			last = s.commits
			s.flush()
			s.refused = false
			continue
		}
		i++
		if more && s.crowded {
			q.queued = false
			s.timers.Set(&q.timer, q, min(q.engine.NextTimeout(), now.Add(crowdPause)))
			continue
		}
		if more { // its share of the packets is used up: it goes to the end of the list
			s.ready = append(s.ready, q)
		} else {
			q.queued = false
		}
	}
	n := copy(s.ready, s.ready[i:])
	clear(s.ready[n:])
	s.ready = s.ready[:n]
}

// passGroup is how many queue pairs build the requests that pass acknowledgements before the acknowledgements: a cache holds
// them until these follow.
const passGroup = 16

// emitPassing lets the ready queue pairs from one on build the requests that pass acknowledgements. It returns the first that
// has not had its turn.
func (s *Shard) emitPassing(now mono.Time, from int) int {
	end := min(from+passGroup, len(s.ready))
	if end-from > 1 {
		for _, q := range s.ready[from:end] {
			q.engine.EmitPassing(now, q.sink)
		}
	}
	return end
}

// Begin and Commit make the shard the sink of its queue pairs. It passes packets to the port
// and notes when that has no room.
func (s *Shard) Begin(p *frame.Path, n int) ([]byte, bth.CRC, bool) {
	body, crc, ok := s.port.Begin(p, n)
	if !ok {
		s.refused = true
	}
	return body, crc, ok
}

// inPlaceSink is the sink of queue pairs on a port that sends payload without copying it. If
// BeginInPlace has no room, the caller tries Begin, which notes it.
type inPlaceSink struct {
	*Shard
	lender link.Lender
}

func (s inPlaceSink) BeginInPlace(p *frame.Path, n int, payload []byte, tail int) (head, trailer []byte, crc bth.CRC, ok bool) {
	return s.lender.BeginInPlace(p, n, payload, tail)
}

// Commit queues the packet at the port.
func (s *Shard) Commit() {
	s.commits++
	s.port.Commit()
}

// maxImmediate is how many posts a lazy NIC sends at once while its goroutine sleeps. A
// third post in a row suggests a burst: from then on posts wait, and the goroutine is woken
// once to send them together.
const maxImmediate = 2

// defers reports whether a post of a lazy NIC waits for others. It does not while the goroutine is in pause and
// the program that polled has stopped: nobody may come soon who sends it.
func (s *Shard) defers(now mono.Time) bool {
	if s.polling.paused.Load() && !s.polledAt(now) {
		return false
	}
	if s.asleepUntil == 0 || s.immediate == maxImmediate {
		s.immediate = 0
		return true
	}
	s.immediate++
	return false
}

// post runs f on a queue pair's engine and sends the packets that result: the doorbell.
func (s *Shard) post(q *QP, f func(*qp.QP) error) error {
	s.mu.Lock()
	if s.nic.closed || q.closed {
		s.mu.Unlock()
		return errs.ErrClosed
	}
	err := f(q.engine)
	s.touch(q)
	// A burst of a program that polls reads the clock once: it is shorter than the pause, which ends within a tick.
	now := s.busyAt
	if s.unbuilt == 0 || !s.polling.paused.Load() {
		now = s.nic.Now()
		s.busyAt = now
	}
	s.called(now)
	gathers := s.gathers(now)
	if (gathers || s.nic.lazy && s.defers(now)) && s.fits(now) {
		s.deferred = true
		s.conclude(now)
		return err
	}
	s.finish(now)
	return err
}

// PostAll runs f, which posts to several queue pairs of the shard, and sends what comes of it with one
// doorbell. If a queue pair is closed, it returns its index.
func (s *Shard) PostAll(qps []*QP, f func() (int, error)) (bad int, err error) {
	s.mu.Lock()
	for i, q := range qps {
		if s.nic.closed || q.closed {
			s.mu.Unlock()
			return i, errs.ErrClosed
		}
	}
	bad, err = f()
	for _, q := range qps {
		q.resume()
		s.touch(q)
	}
	now := s.nic.Now()
	s.busyAt = now
	s.called(now)
	s.finish(now)
	return bad, err
}

// maxUnbuilt is how many posts wait together until their packets are built: a queue pair builds many
// quicker than one by one.
const maxUnbuilt = 16

// fits reports whether a post that waits may wait on: a batch of the port has room for it.
func (s *Shard) fits(now mono.Time) bool {
	if s.unbuilt++; s.unbuilt < maxUnbuilt {
		return true
	}
	s.build(now)
	return s.commits-s.flushed < link.Batch
}

// flush hands what was committed to the driver.
func (s *Shard) flush() {
	var flush span
	if s.flushed != s.commits {
		flush = begin(regionFlush, nil)
	}
	s.flushed = s.commits
	if err := s.port.Flush(); err != nil {
		s.noteError(err)
	}
	flush.end(nil)
}
