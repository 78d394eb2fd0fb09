package nic

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/qp"
)

// packetsPerEntry is about the number of packets that one entry sends, before other
// goroutines get the lock and the shard handles packets that arrived meanwhile. The rest
// waits for the next entry. It is one packet more than a window: so a post of a whole window leaves no rest, and need
// not wake the background goroutine. Many more packets would overrun a peer that answers each.
const packetsPerEntry = qp.DefaultWindow + 1

// send builds packets and gives them to the port's driver.
func (s *Shard) send(now mono.Time) {
	var built span
	if len(s.ready) > 0 {
		built = begin(regionBuild, &s.counters)
	}
	s.build(now)
	built.end(&s.counters)
	s.flush()
}

// build lets ready queue pairs build packets until they have no more, packetsPerEntry is
// reached, or the port has no room.
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
			s.refused = false // packets without room are built again below
		}
		q := s.ready[i]
		s.crowded = false
		more := s.emit(now, q)
		s.timers.Set(&q.timer, q, q.engine.NextTimeout())
		if more && s.refused {
			if s.commits == last {
				break // no room even after a flush: Wait returns when there is room
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
		if more { // it has used its share of the packets: it goes to the end of the list
			s.ready = append(s.ready, q)
		} else {
			q.queued = false
		}
	}
	n := 0
	if i < len(s.ready) {
		n = copy(s.ready, s.ready[i:])
	}
	clear(s.ready[n:])
	s.ready = s.ready[:n]
}

// passGroup is the number of queue pairs that build requests which may overtake acknowledgements, before all of them build
// the acknowledgements. It is small enough that the queue pairs stay in the cache meanwhile.
const passGroup = 16

// emitPassing lets a group of ready queue pairs, beginning with index from, build the requests that may overtake
// acknowledgements. It returns the index of the first queue pair behind the group.
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
// and records when the port has no room.
func (s *Shard) Begin(p *frame.Path, n int) ([]byte, bth.CRC, bool) {
	body, crc, ok := s.port.Begin(p, n)
	if !ok {
		s.refused = true
	}
	return body, crc, ok
}

// inPlaceSink is the sink of queue pairs on a port that sends payload without copying it. If
// BeginInPlace has no room, the caller tries Begin, which records it.
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
// third post in a row suggests a burst: from then on the shard defers posts, and wakes the
// goroutine once to send them together.
const maxImmediate = 2

// defers reports whether a lazy NIC defers a post. It does not while the background goroutine pauses and the
// program has stopped polling, because nothing may send the post soon.
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

// post runs f, which posts n work requests, on a queue pair's engine and sends the packets that result: the doorbell. calls is how
// many calls of the program these are.
func (s *Shard) post(q *QP, n, calls int, f func(*qp.QP) error) (single bool, err error) {
	s.mu.Lock()
	if s.nic.closed || q.closed {
		s.mu.Unlock()
		return false, errs.ErrClosed
	}
	err = f(q.engine)
	s.touch(q)
	// A burst of posts of a polling program reads the clock only once: it is shorter than the pause, which ends
	// within a tick.
	now := s.busyAt
	if s.unbuilt == 0 || !s.polling.paused.Load() {
		now = s.nic.Now()
		s.busyAt = now
	}
	s.called(now)
	gathers := s.gathers(now)
	single = s.polling.posted(calls)
	if (gathers || s.nic.lazy && !single && s.defers(now)) && s.fits(now, n) {
		s.deferred = true
		s.conclude(now)
		return single, err
	}
	s.finish(now)
	return single, err
}

// PostAll runs f, which posts to several queue pairs of the shard, and sends the resulting packets
// with one doorbell. If a queue pair is closed, PostAll returns its index.
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
	s.polling.came = false
	s.finish(now)
	return bad, err
}

// maxUnbuilt is the number of deferred work requests whose packets are built together: building many packets at once
// is faster than one at a time, but with more work requests the first ones would have left the cache.
const maxUnbuilt = 16

// fits reports whether a deferred post of n work requests can still wait, because a batch of the port has
// room for it.
func (s *Shard) fits(now mono.Time, n int) bool {
	if s.unbuilt += n; s.unbuilt < maxUnbuilt {
		return true
	}
	s.build(now)
	return s.commits-s.flushed < link.Batch
}

// flush makes the driver send committed packets.
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
