package qp

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goroce/roce/mono"
)

// TestFollowIsJudge: the fast path for packets that follow changes the state as judge does, and trusts no packet that
// judge does not trust.
func TestFollowIsJudge(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	followed, now := 0, mono.Time(1)
	var s idents
	for range 1_000_000 {
		if rng.IntN(8) == 0 {
			now = now.Add(time.Duration(rng.IntN(1 << (10 + rng.IntN(14)))))
		}
		if rng.IntN(1000) == 0 {
			s.run = []uint16{0, identRun - 1, identRun, identMax, identForget - 2, identForget - 1}[rng.IntN(6)]
			s.need = []uint16{0, identRun, 2 * identRun, identMax}[rng.IntN(4)]
			s.doubt = s.run < max(s.need, identRun) && rng.IntN(2) == 0
		}
		id := s.last + uint16(rng.IntN(identBehind+identAhead)) - identBehind
		switch rng.IntN(200) {
		case 0:
			id = uint16(rng.IntN(1 << 16))
		case 1:
			id = s.last + identAhead + uint16(rng.IntN(3)) - 1
		case 2:
			id = s.last - identBehind + uint16(rng.IntN(3)) - 1
		}
		long, short := s, s
		trust := long.judge(now, id)
		if s.follows(now, id) {
			followed++
			if short.follow(id); trust != full || short != long {
				t.Fatalf("%+v, Identification %d at %d: judge says %v and leaves %+v, follow leaves %+v", s, id, now, trust, long, short)
			}
		}
		s = long
	}
	if followed < 100_000 {
		t.Errorf("only %d of the packets follow", followed)
	}
}
