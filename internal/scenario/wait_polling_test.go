package scenario_test

import (
	"testing"
	"time"

	"github.com/goroce/roce"
)

// TestPolling: a program that polls in a loop does the work of its device. The background
// goroutine takes it over at once when the program waits, and within a tick when it just stops.
func TestPolling(t *testing.T) {
	const tick = time.Millisecond
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		a, b := newPeer(t, n.device("10.0.0.1"), 4096), newPeer(t, n.device("10.0.0.2"), 4096)
		connect(t, a, b)
		poll := func() {
			t.Helper()
			var wcs [1]roce.WC
			for range 1000 {
				if b.cq.Poll(wcs[:]) != 0 {
					t.Fatalf("completion %v out of nothing", wcs[0])
				}
			}
		}
		took := func(do func()) time.Duration {
			began := time.Now()
			do()
			return time.Since(began)
		}
		write := func() {
			a.post(roce.Write, 0, 64, b, 0)
			a.wait()
		}

		poll()
		if d := took(write); d == 0 || d > 2*tick {
			t.Errorf("after polls the peer waited %v, want a tick", d)
		}
		if d := took(write); d != 0 {
			t.Errorf("without polls the peer waited %v", d)
		}

		poll()
		b.recv(0, 64)
		a.post(roce.Send, 0, 64, nil, 0)
		if d := took(func() { b.wait() }); d != 0 {
			t.Errorf("a program that waits after it has polled got its message %v later", d)
		}
	})
}
