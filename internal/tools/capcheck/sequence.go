package capcheck

import (
	"slices"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/psngap"
)

// verdict says how the PSN of a request relates to the PSNs before it.
type verdict uint8

const (
	inOrder verdict = iota
	jumped          // PSNs before it were skipped
	late            // it fills a gap
	again           // it is a retransmission
)

// sequence follows the PSNs of the requests to one queue pair.
type sequence struct {
	// next has the PSNs that the next request may have. That is one PSN, but after a READ while the path MTU is not known it is one
	// for each possible path MTU. It is nil before the first request.
	next []bth.PSN
	mtu  uint32 // path MTU in bytes, 0 while unknown
	gaps psngap.List
}

// maxGaps bounds the memory a hostile or very long capture can take. The oldest
// gap is forgotten first; its PSNs then count as neither late nor missing.
const maxGaps = 4096

// onePSN is the argument ends of add for a request with one PSN.
var onePSN = []int{0}

// readEnds returns how far after its first PSN the last PSN of a READ may be.
func (s *sequence) readEnds(length uint32) []int {
	if s.mtu != 0 {
		return []int{lastPacket(length, s.mtu)}
	}
	var ends []int
	for m := bth.MTU4096; m >= bth.MTU256; m-- {
		if e := lastPacket(length, uint32(m.Bytes())); len(ends) == 0 || ends[len(ends)-1] != e {
			ends = append(ends, e)
		}
	}
	return ends
}

// lastPacket returns the index of the last packet of a message.
func lastPacket(length, mtu uint32) int {
	if length == 0 {
		return 0
	}
	return int((length - 1) / mtu)
}

// add adds the next request. ends says how far after psn its last PSN may be, in ascending order.
func (s *sequence) add(psn bth.PSN, ends []int) verdict {
	if s.next == nil || slices.Contains(s.next, psn) {
		s.gaps.Limit = maxGaps
		s.advance(psn, ends)
		return inOrder
	}
	// Only a PSN after the largest one that may be next shows a gap: a READ whose last PSN is not known may end
	// there.
	expected := s.next[len(s.next)-1]
	switch d := psn.Sub(expected); {
	case d > 0:
		s.gaps.Skip(expected, psn.Add(-1))
		s.advance(psn, ends)
		return jumped
	case s.gaps.Fill(psn):
		return late
	case !psn.Less(s.next[0]): // in the uncertain range after a READ
		s.advance(psn, ends)
		return inOrder
	}
	// A retransmitted READ may reach further than next, because its last PSN was not known the first time.
	if s.next[0].Less(psn.Add(ends[0] + 1)) {
		s.advance(psn, ends)
	}
	return again
}

func (s *sequence) advance(psn bth.PSN, ends []int) {
	s.next = s.next[:0]
	for _, e := range ends {
		s.next = append(s.next, psn.Add(e+1))
	}
}
