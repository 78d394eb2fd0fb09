package txpolicy

import (
	"testing"
	"time"

	"github.com/goroce/roce/bth"
)

var start = time.Unix(1000, 0)

func TestPatience(t *testing.T) {
	var p Patience
	for _, step := range []struct {
		after time.Duration
		went  bool
		keep  bool
	}{
		{0, false, true}, {Limit - 1, false, true}, {Limit, false, false}, {Limit, false, false}, {time.Hour, false, false},
		{time.Hour, true, true}, {time.Hour + Limit - 1, false, true}, {time.Hour + Limit, false, false},
	} {
		if step.went {
			p.Went()
		}
		if got := p.Refused(start.Add(step.after)); got != step.keep {
			t.Errorf("after %v: keep %v, want %v", step.after, got, step.keep)
		}
	}
}

func TestTrials(t *testing.T) {
	var all Trials
	peer, other := bth.GID{15: 1}, bth.GID{15: 2}
	fail := func(n int, at time.Time) {
		for range n {
			all.Failed(at, peer)
		}
	}
	want := func(at time.Time, allowed bool) {
		t.Helper()
		if all.Allowed(at, peer) != allowed || !all.Allowed(at, other) {
			t.Errorf("after %v: allowed %v, want %v; another peer: %v", at.Sub(start), !allowed, allowed, all.Allowed(at, other))
		}
	}
	fail(strikes-1, start)
	want(start, true)
	all.Worked(peer)
	fail(strikes-1, start)
	want(start, true) // not in a row
	fail(1, start)
	want(start.Add(shortest-1), false)
	if n := all.Paused(start); n != 1 || !all.Any() {
		t.Errorf("%d peers paused", n)
	}
	now := start
	for pause := shortest; ; pause = min(2*pause, longest) {
		now = now.Add(pause)
		want(now.Add(-1), false)
		want(now, true) // one more try
		if now.Sub(start) > time.Hour {
			break
		}
		fail(1, now)
	}
	all.Worked(peer)
	want(now, true)
	if all.Any() {
		t.Error("a peer that works is still remembered")
	}
	for i := range 10 * maxPeers {
		all.Failed(start, bth.GID{14: byte(i >> 8), 15: byte(i)})
	}
	if len(all.peers) > maxPeers {
		t.Errorf("%d peers are remembered", len(all.peers))
	}
}
