package roce_test

import (
	"testing"
	"time"

	"github.com/goroce/roce"
)

// TestAckTimeoutFor: the code is the first whose time is long enough.
func TestAckTimeoutFor(t *testing.T) {
	for d, want := range map[time.Duration]uint8{
		-1: 0, 0: 0, 1: 1, 8192: 1, 8193: 2, 67 * time.Millisecond: 14, 68 * time.Millisecond: 15, 1 << 62: 31,
	} {
		if got := roce.AckTimeoutFor(d); got != want {
			t.Errorf("AckTimeoutFor(%v) = %d, want %d", d, got, want)
		}
	}
}
