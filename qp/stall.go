package qp

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mono"
)

// A software peer that gets no processor for a while answers nothing, and then everything in flight at once. On a
// busy machine such stalls last some milliseconds and repeat. A window of the usual size is then empty long before
// the time slice of the peer ends. A path with a long round trip has the same effect. So the window widens when it is
// full at a stall, up to the size of a peer's socket buffer. It stays wide if the rate of acknowledgements rises,
// which it does not if a slow link is the cause. It narrows after a loss, or after a while without stalls.

const (
	// A stall is a time of at least stallTime without progress although the window is full: many round trips of a
	// local network.
	stallTime = 500 * time.Microsecond

	// widest is the binary logarithm of the largest factor by which the window widens: a peer may handle so many
	// packets in one time slice.
	widest = 4

	// Rates are measured in spans of rateSpan in which packets were always outstanding. A wider window must raise the
	// rate by a part in gainPart.
	rateSpan = 20 * time.Millisecond
	gainPart = 4

	// After calmTime without a stall, the window narrows by half. If the last widening did not raise the rate, it
	// does not widen again for calmTime.
	calmTime = 50 * time.Millisecond

	// After a loss in a window that is wide it does not widen for lossCalm, and twice as long after each
	// further one: a driver's ring may have no room for more than a usual window.
	lossCalm    = time.Second
	lossDoubles = 7
)

// stalls is the state of a requester about the stalls of its peer.
type stalls struct {
	moved mono.Time // when there was progress last
	since mono.Time // wide window: the later of the last stall and the last narrowing; usual window: it does not widen before
	span  mono.Time // when the span of the rate began; 0: at the next progress
	count uint32    // packets acknowledged in it
	rate  uint32    // of the span before, in packets a second; 0: none was measured

	wide   uint8 // the window is 2^wide times as wide as it is otherwise
	trial  bool  // the last widening has not been judged yet
	losses uint8 // in windows that were wide
}

// noteStall notes an acknowledgement; before was the oldest outstanding PSN until then.
func (q *QP) noteStall(now mono.Time, before bth.PSN) {
	r := &q.requester
	if !q.autoWindow {
		return // the program has chosen the window
	}
	r.progressed(now, int32(r.acked.Sub(before)), r.full && !r.recovering && r.reads == 0, !r.acked.Less(r.max) && q.sq.cur == q.sq.tail, r.ackReqAt)
}

// progressed notes that n packets were acknowledged. full reports whether the window was full and no loss is known.
// since is when the last packet with AckReq was sent. idle reports whether nothing is left to be sent or
// acknowledged.
func (s *stalls) progressed(now mono.Time, n int32, full, idle bool, since mono.Time) {
	stall := full && now.Sub(max(since, s.moved)) >= stallTime
	s.moved = now
	s.judge(now, n)
	switch {
	case stall && s.rate > 0 && !s.trial && s.wide < widest && (s.wide > 0 || now >= s.since):
		s.wide, s.trial, s.since = s.wide+1, true, now
		s.span, s.count = now, 0
	case stall && s.wide > 0:
		s.since = now
	case s.wide > 0 && now.Sub(s.since) >= calmTime:
		s.narrow(now, 0)
	}
	if idle {
		s.span = 0
	}
}

// judge ends the span of the rate if it is long enough.
func (s *stalls) judge(now mono.Time, n int32) {
	if s.span == 0 {
		s.span, s.count = now, 0
		return
	}
	s.count += uint32(n)
	took := now.Sub(s.span)
	if took < rateSpan {
		return
	}
	rate := uint32(min(uint64(s.count)*uint64(time.Second)/uint64(took), 1<<31))
	if s.trial && rate < s.rate+s.rate/gainPart {
		s.narrow(now, calmTime)
	}
	s.trial = false
	s.rate, s.span, s.count = rate, now, 0
}

// narrow makes the window half as wide. If it then has its usual size, it does not widen before calm has passed.
func (s *stalls) narrow(now mono.Time, calm time.Duration) {
	s.wide--
	s.trial, s.since = false, now
	if s.wide == 0 {
		s.since = now.Add(calm)
	}
}

// lost notes a loss: the buffer of the peer may be too small for so many packets.
func (s *stalls) lost(now mono.Time) {
	if s.wide > 0 {
		s.wide, s.trial, s.since = 0, false, now.Add(lossCalm<<s.losses)
		s.losses = min(s.losses+1, lossDoubles)
	}
}
