package qp

import (
	"time"

	"github.com/goroce/roce/mono"
)

// A software peer that has no processor for a while answers nothing, then all that is in flight at
// once. On a busy machine it stalls so for some milliseconds again and again, and then a window that is
// enough otherwise empties long before its turn is over: the requester's own turn may be over by
// then. A path with a long round trip does the same. So the window widens with each stall that it was full
// in, as far as a peer's socket buffer goes, unless packets are lost, and narrows when there have been no stalls for a while.

const (
	// A stall is a time without progress although the window is full. It is many round trips
	// of a local network.
	stallTime = 500 * time.Microsecond

	// widest is the binary logarithm of how many times its usual size the window has at most: as
	// much as one turn of a processor may carry.
	widest = 4

	// calmTime is after how long without a stall the window narrows by half.
	calmTime = 50 * time.Millisecond

	// After a loss the window does not widen for some time: lossCalm, and twice as long for
	// each loss in a window that is wide.
	lossCalm     = 100 * time.Millisecond
	lossCalmMost = 10 * time.Second
)

// stalls is what a requester knows of the stalls of its peer.
type stalls struct {
	wide     uint8     // the window is 2^wide times as wide as it is otherwise
	moved    mono.Time // when there was progress last
	stalled  mono.Time // when a stall ended last, or the window has narrowed since
	noWider  mono.Time // it does not widen before
	lossCalm time.Duration
}

// progressed notes progress. full is whether the window was full, since when its last packet was sent,
// and nothing known to be lost.
func (s *stalls) progressed(now mono.Time, full bool, since mono.Time) {
	since = max(since, s.moved)
	s.moved = now
	switch {
	case full && now.Sub(since) >= stallTime:
		s.stalled = now
		if s.wide < widest && now >= s.noWider {
			s.wide++
		}
	case s.wide > 0 && now.Sub(s.stalled) >= calmTime:
		s.wide--
		s.stalled = now
	}
}

// lost notes a loss: the buffer of the peer may be too small for so many packets.
func (s *stalls) lost(now mono.Time) {
	if s.wide > 0 {
		s.wide, s.lossCalm = 0, min(max(2*s.lossCalm, lossCalm), lossCalmMost)
		s.noWider = now.Add(s.lossCalm)
	}
}
