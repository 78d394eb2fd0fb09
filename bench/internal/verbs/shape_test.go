//go:build linux

package verbs

import (
	"testing"

	"github.com/goroce/roce/bench/internal/harness"
)

func TestShape(t *testing.T) {
	for _, tt := range []struct {
		size, burst          int
		wantBurst, wantDepth int
	}{
		{64, 0, 64, 2048},
		{64, 16, 16, 2048},
		{1024, 0, 64, 2048},
		{64 << 10, 0, 1, 64},
		{1 << 20, 0, 1, 4},
		{8 << 20, 0, 1, 2},
		{3 << 20, 0, 1, 2},
	} {
		sh := shapeOf(harness.Spec{Size: tt.size, Burst: tt.burst})
		if sh.burst != tt.wantBurst || sh.depth != tt.wantDepth {
			t.Errorf("%d bytes: %d a list, %d in flight, want %d, %d", tt.size, sh.burst, sh.depth, tt.wantBurst, tt.wantDepth)
		}
		if sh.depth%sh.burst != 0 || sh.places%sh.burst != 0 || sh.places*sh.stride != sh.memory() || sh.memory() < tt.size {
			t.Errorf("%d bytes: %+v", tt.size, sh)
		}
		for _, qps := range []int{1, 16, 10_000} {
			if n := sh.perQP(qps); n%sh.burst != 0 || n < sh.burst {
				t.Errorf("%d bytes, %d queue pairs: %d in flight of each", tt.size, qps, n)
			}
		}
	}
}

// verify detects a missing message, and a message in the wrong place.
func TestVerify(t *testing.T) {
	sh := shapeOf(harness.Spec{Size: 4096})
	b := make([]byte, sh.memory())
	sh.fill(b, 1)
	if at, ok := sh.verify(b, 1); !ok {
		t.Fatalf("byte %d differs at once", at)
	}
	copy(b[sh.stride:], b[:sh.stride])
	if _, ok := sh.verify(b, 1); ok {
		t.Error("a message in the wrong place is not seen")
	}
	sh.fill(b, 16)
	clear(b[:sh.stride])
	if at, ok := sh.verify(b, 16); ok || at != 0 {
		t.Errorf("a missing message is not seen: %d, %v", at, ok)
	}
}
