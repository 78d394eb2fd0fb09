package rsocket

import (
	"testing"

	"github.com/goroce/roce"
)

// A control message that fails says that the data behind it failed, too, before their completions come; those before it
// have arrived.
func TestLostBehindControl(t *testing.T) {
	for _, behind := range []bool{true, false} {
		cfg, err := Config{}.complete()
		if err != nil {
			t.Fatal(err)
		}
		e := &endpoint{cfg: cfg, over: make(chan struct{})}
		e.tx = sender{buffer: cfg.SendBuffer, free: cfg.SendBuffer, wrs: cfg.SendDepth - ctrlReserve, ctrl: ctrlReserve}
		data := func() {
			e.tx.hold(100)
			e.tx.quiet.bytes += 100
			e.tx.quiet.wrs++
			e.busy++
		}
		data()
		wc := roce.WC{Status: roce.StatusWRFlushErr, ID: sendID(opTable, 1, e.tx.takeQuiet())}
		e.tx.ctrl--
		e.busy++
		if behind {
			data()
		}
		e.finished(&wc)
		if e.lost != behind {
			t.Errorf("data behind it: %v, lost: %v", behind, e.lost)
		}
	}
}
