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
			t.Fatal("the first yield is not allowed")
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

// A polling goroutine yields its processor until a program that computes takes it. While that
// continues, the goroutine yields less and less often. After a long time without such a
// program, the first pause is short again.
func TestOfferPolicy(t *testing.T) {
	var p offerPolicy
	now := mono.Time(0).Add(time.Second)
	yield := func(took time.Duration) {
		t.Helper()
		if !p.allows(now) {
			t.Fatalf("no yield at %v, the next one is at %v", time.Duration(now), time.Duration(p.next))
		}
		p.yielded(now, now.Add(took))
		now = now.Add(took)
	}
	for range 1000 {
		yield(time.Microsecond)
	}
	const bad = 3 * time.Millisecond
	last := time.Duration(0)
	for range 10 {
		yield(bad)
		pause := p.next.Sub(now)
		if want := min(max(2*last, minOffer), maxOffer); pause != want {
			t.Fatalf("a pause of %v behind one of %v, want %v", pause, last, want)
		}
		if now = now.Add(pause - 1); p.allows(now) {
			t.Error("a yield in the pause")
		}
		now, last = now.Add(1), pause
		for range 10 {
			yield(time.Microsecond)
		}
	}
	now = now.Add(calmOffers*last + 1)
	if yield(bad); p.next.Sub(now) != minOffer {
		t.Errorf("a pause of %v after quiet, want %v", p.next.Sub(now), minOffer)
	}
}
