package roce

import (
	"testing"
	"time"

	"github.com/goroce/roce/mono"
)

func TestTurns(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name    string
		took    time.Duration
		packets int
		again   bool
	}{
		{"nobody there", 0, 0, true},
		{"a round trip", 20 * time.Microsecond, 1, true},
		{"at the limit", shortTurn, 0, true},
		{"someone computes", 3 * ms, 0, false},
		{"someone computes, and the peer answers", 3 * ms, 1, false},
		{"someone computes, and the peer sends", 3 * ms, 64, true},
		{"an emulated peer", 6 * ms, 32, true},
	} {
		var c turns
		now := mono.Time(0).Add(time.Second)
		if !c.due(now) {
			t.Fatal("none at first")
		}
		c.over(test.took)
		c.brought(test.packets, now)
		if got := c.due(now); got != test.again {
			t.Errorf("%s: due: %v, want %v", test.name, got, test.again)
		}
		c.brought(0, now) // counted already
		if end := now.Add(minPause); !test.again && (c.due(end-1) || !c.due(end)) {
			t.Errorf("%s: the pause is not %v", test.name, minPause)
		}
	}
}

// TestTurnsPause: bad turns make the pause longer, good ones shorter.
func TestTurnsPause(t *testing.T) {
	var c turns
	now := mono.Time(0)
	turn := func(took time.Duration, want time.Duration) {
		t.Helper()
		c.over(took)
		c.brought(0, now)
		if got := max(0, c.later.Sub(now)); got != want {
			t.Fatalf("a pause of %v, want %v", got, want)
		}
		now = max(now, c.later)
	}
	const bad, good = 3 * time.Millisecond, time.Microsecond
	for want := minPause; want < maxPause; want *= 2 {
		turn(bad, want)
	}
	turn(bad, maxPause)
	turn(bad, maxPause)
	turn(good, 0)
	turn(good, 0)
	turn(bad, maxPause/2)
	for range 10 {
		turn(good, 0)
	}
	turn(bad, minPause)
}
