package scenario_test

import (
	"runtime"
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

// TestAnswering: the acknowledgement of what a polling program received waits for the program's answer, once the
// program has shown that it answers at once; and no longer than a tick if no answer comes.
func TestAnswering(t *testing.T) {
	const tick = time.Millisecond
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		a, b := newPeer(t, n.device("10.0.0.1"), 4096), newPeer(t, n.device("10.0.0.2"), 4096)
		connect(t, a, b)
		take := func() {
			var wcs [1]roce.WC
			for b.cq.Poll(wcs[:]) == 0 {
				runtime.Gosched()
			}
		}
		// ping has b receive a message, in polls.
		ping := func() {
			t.Helper()
			var wcs [1]roce.WC
			for range 100 {
				if b.cq.Poll(wcs[:]) != 0 {
					t.Fatalf("completion %v out of nothing", wcs[0])
				}
			}
			b.recv(0, 64)
			a.recv(64, 64)
			a.post(roce.Send, 0, 64, nil, 0)
			take()
		}
		answer := func() {
			t.Helper()
			b.post(roce.Send, 64, 64, nil, 0)
			a.wait() // its own SEND
			a.wait() // and the answer
			take()
		}
		// acked is how long the acknowledgement takes when no answer comes.
		acked := func() time.Duration {
			t.Helper()
			ping()
			began := time.Now()
			a.wait()
			d := time.Since(began)
			b.post(roce.Send, 64, 64, nil, 0)
			a.wait()
			take()
			return d
		}
		for range 100 {
			ping()
			answer()
		}
		if d := acked(); d == 0 || d > 2*tick {
			t.Errorf("a program that answers at once did not: acknowledged %v later, want a tick", d)
		}
		if d := acked(); d != 0 {
			t.Errorf("a program that has not answered at once was waited for: %v", d)
		}
		for range 100 {
			ping()
			time.Sleep(100 * time.Microsecond)
			answer()
		}
		if d := acked(); d != 0 {
			t.Errorf("a program that answers late was waited for: %v", d)
		}
	})
}
