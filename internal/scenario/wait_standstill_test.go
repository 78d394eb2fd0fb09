package scenario_test

import (
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link"
)

// TestAnswerBeforeTimer: a device that nobody has driven for some time first handles the
// answer that waits in the port, behind many other packets, and only then its ACK timer, which
// has expired meanwhile.
func TestAnswerBeforeTimer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const size = 64
		n := newNetwork(t)
		c := n.config("10.0.0.1")
		c.Polled = true // the device does nothing while no goroutine polls
		a, b := newPeer(t, n.open(c), size), newPeer(t, n.device("10.0.0.2"), size)
		connectOne(t, b, a)
		check(t, a.qp.Connect(patient(t), roce.Peer{AHAttr: roce.AHAttr{DGID: b.dev.GIDs()[0]}, QPN: b.qp.Num(), PSN: b.psn, MTU: a.dev.Query().PathMTU,
			Timeout: 14, RetryCnt: 0, RNRRetry: 7, MinRNRTimer: 12, RdAtomic: 16}, a.psn))
		for range 3 * link.Batch {
			b.post(roce.Write, 0, size, a, 0)
		}
		time.Sleep(time.Millisecond)
		a.post(roce.Write, 0, size, b, 0)
		time.Sleep(200 * time.Millisecond) // longer than the ACK timer may run without a retry
		a.wait()
	})
}
