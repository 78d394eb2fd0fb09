package linktest

import (
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link"
)

// QueuedBeforeDown checks that b does not report its link as up when Recv returns packets
// that arrived before the link went down. set brings the link of b down and up again.
func QueuedBeforeDown(t *testing.T, a, b link.Port, set func(up bool)) {
	t.Helper()
	path := Between(t, false, a, b)
	Send(t, a, path, 0, nil)
	flush(t, a)
	Collect(t, b, 1)
	const n = 8
	for i := range n {
		Send(t, a, path, bth.PSN(i), nil)
		flush(t, a)
	}
	if err := b.Wait(Patience); err != nil {
		t.Fatal(err)
	}
	set(false)
	if b.Stats().LinkUp {
		t.Fatal("the link is down, and reported as up")
	}
	b.OnLink(func(up bool) { t.Errorf("the link changed: up %v", up) })
	fr := make([]link.Frame, 1)
	got := 0
	for range n {
		k, _ := b.Recv(fr)
		got += k
	}
	if got == 0 {
		t.Error("nothing was queued")
	}
	back := Between(t, false, b, a)
	for i := range 3 { // b must not report the link as up for packets that it cannot send, either
		Send(t, b, back, bth.PSN(i), nil)
		b.Flush()
	}
	b.OnLink(nil)
	set(true)
	for deadline := time.Now().Add(Patience); !b.Stats().LinkUp; b.Wait(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the link is up, and reported as down")
		}
	}
}
