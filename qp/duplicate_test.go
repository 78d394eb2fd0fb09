package qp

import (
	"testing"

	"github.com/goroce/roce/bth"
)

// TestSavedRing: find returns the latest entry for a PSN, even if PSNs have wrapped and an older entry has the same
// PSN. It does not return entries that were overwritten.
func TestSavedRing(t *testing.T) {
	var r savedRing
	r.resize(4)
	at := func(psn bth.PSN) int {
		if s := r.find(psn); s != nil {
			return int(s.value)
		}
		return -1
	}
	put := func(first bth.PSN, n, value int) {
		*r.put() = saved{first: first, last: first.Add(n - 1), atomic: true, valid: true, value: uint64(value)}
	}
	if at(0) != -1 {
		t.Fatal("found something in an empty ring")
	}
	put(0xFFFFFE, 4, 1) // wraps
	put(2, 1, 2)
	put(0xFFFFFF, 1, 3) // 2^24 PSNs later
	for _, tt := range []struct {
		psn  bth.PSN
		want int
	}{{0xFFFFFD, -1}, {0xFFFFFE, 1}, {0xFFFFFF, 3}, {0, 1}, {1, 1}, {2, 2}, {3, -1}} {
		if got := at(tt.psn); got != tt.want {
			t.Errorf("PSN %#x: entry %d, want %d", uint32(tt.psn), got, tt.want)
		}
	}
	put(10, 1, 4)
	put(11, 1, 5) // in the place of the first
	if at(0xFFFFFE) != -1 || at(0xFFFFFF) != 3 || at(11) != 5 {
		t.Errorf("after going round: %d %d %d", at(0xFFFFFE), at(0xFFFFFF), at(11))
	}
}
