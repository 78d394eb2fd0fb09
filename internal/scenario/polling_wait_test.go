package scenario_test

import (
	"testing"
	"time"

	"github.com/goroce/roce"
)

// A program that has polled for long, and then waits, is woken by a later message at once.
func TestWaitAfterLongPolling(t *testing.T) {
	eagerLazy(t, func(t *testing.T, lazy bool) {
		p := newProgram(t, lazy)
		p.b.recv(0, 64)
		p.pollsFor(100 * time.Millisecond)
		var sent time.Time
		time.AfterFunc(500*time.Microsecond, func() {
			sent = time.Now()
			p.a.post(roce.Send, 0, 64, nil, 0)
		})
		p.b.wait()
		if d := time.Since(sent); d != 0 {
			t.Errorf("woken %v after the message", d)
		}
	})
}
