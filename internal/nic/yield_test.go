package nic

import (
	"testing"
	"time"

	"github.com/goroce/roce/mono"
)

func TestYieldPolicy(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name    string
		took    time.Duration
		packets int
		again   bool
	}{
		{"nobody there", 0, 0, true},
		{"a round trip", 20 * time.Microsecond, 1, true},
		{"at the limit", shortYield, 0, true},
		{"someone computes", 3 * ms, 0, false},
		{"someone computes, and the peer answers", 3 * ms, 1, false},
		{"someone computes, and the peer sends", 3 * ms, 64, true},
		{"an emulated peer", 6 * ms, 32, true},
	} {
		var c yieldPolicy
		now := mono.Time(0).Add(time.Second)
		if !c.allows(now) {
			t.Fatal("none at first")
		}
		c.yielded(test.took)
		c.received(test.packets, now)
		if got := c.allows(now); got != test.again {
			t.Errorf("%s: due: %v, want %v", test.name, got, test.again)
		}
		c.received(0, now) // counted already
		if end := now.Add(minPause); !test.again && (c.allows(end-1) || !c.allows(end)) {
			t.Errorf("%s: the pause is not %v", test.name, minPause)
		}
	}
}

// TestYieldPolicyPause: bad yields make the pause longer, good ones shorter.
func TestYieldPolicyPause(t *testing.T) {
	var c yieldPolicy
	now := mono.Time(0)
	yield := func(took time.Duration, want time.Duration) {
		t.Helper()
		c.yielded(took)
		c.received(0, now)
		if got := max(0, c.next.Sub(now)); got != want {
			t.Fatalf("a pause of %v, want %v", got, want)
		}
		now = max(now, c.next)
	}
	const bad, good = 3 * time.Millisecond, time.Microsecond
	for want := minPause; want < maxPause; want *= 2 {
		yield(bad, want)
	}
	yield(bad, maxPause)
	yield(bad, maxPause)
	yield(good, 0)
	yield(good, 0)
	yield(bad, maxPause/2)
	for range 10 {
		yield(good, 0)
	}
	yield(bad, minPause)
}
