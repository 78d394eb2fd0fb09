package scenario_test

import (
	"bytes"
	"runtime/trace"
	"testing"

	"github.com/goroce/roce"
)

// A trace of the Go runtime shows the work of devices, and changes of their counters.
func TestRuntimeTrace(t *testing.T) {
	n := newNetwork(t)
	a, b := n.connected(n.config("10.0.0.1"))
	var out bytes.Buffer
	if err := trace.Start(&out); err != nil {
		t.Skipf("another trace is taken: %v", err)
	}
	err := a.qp.PostSend(&roce.SendWR{Opcode: roce.Write, Flags: roce.Signaled})
	if err == nil {
		_, err = a.qp.SendCQ().Next(t.Context())
	}
	b.dev.Close() // its goroutine has ended its regions
	a.dev.Close()
	trace.Stop()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"roce receive", "roce build", "roce flush", "sent_pkts+", "rcvd_pkts+"} {
		if !bytes.Contains(out.Bytes(), []byte(text)) {
			t.Errorf("the trace has no %q", text)
		}
	}
}
