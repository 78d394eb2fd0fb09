package scenario_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/goroce/roce"
)

// joinWith connects a to b, with a's timeout and retries.
func joinWith(t *testing.T, a, b *peer, timeout, retries uint8) {
	t.Helper()
	for _, end := range [][2]*peer{{a, b}, {b, a}} {
		x, y := end[0], end[1]
		check(t, x.qp.Connect(context.Background(), roce.Peer{
			AHAttr: roce.AHAttr{DGID: y.dev.GIDs()[0]}, QPN: y.qp.Num(), PSN: y.psn, MTU: roce.MTU1024,
			Timeout: timeout, RetryCnt: retries, RNRRetry: 7, MinRNRTimer: 12, RdAtomic: 16,
		}, x.psn))
	}
}

// pollsFor polls in a loop for some time.
func (p *program) pollsFor(d time.Duration) {
	p.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Microsecond) {
		p.empty(1)
	}
}

// impatient are timeouts of peers that have waited for no longer than a pause of a millisecond.
var impatient = []struct{ timeout, retries uint8 }{
	{9, 0},  // 2.1 ms
	{10, 0}, // 4.2 ms
	{8, 3},  // 4 times 1.05 ms
}

// A program that has polled for long computes for 20 ms. Its peer's WRITE succeeds, although the peer has a short timeout.
func TestHostilePauseAndTimeout(t *testing.T) {
	for _, peer := range impatient {
		for _, polled := range []time.Duration{time.Millisecond, 100 * time.Millisecond} {
			t.Run(fmt.Sprintf("timeout %d, %d retries, polled %v", peer.timeout, peer.retries, polled), func(t *testing.T) {
				for phase := range time.Duration(10) {
					eagerLazy(t, func(t *testing.T, lazy bool) {
						n := newNetwork(t)
						c := n.config("10.0.0.2")
						c.Lazy = lazy
						p := &program{t, newPeer(t, n.device("10.0.0.1"), 4096), newPeer(t, n.open(c), 4096)}
						joinWith(t, p.a, p.b, peer.timeout, peer.retries)
						p.pollsFor(polled + phase*time.Millisecond)
						began := time.Now()
						p.a.post(roce.Write, 0, 64, p.b, 64)
						wc, err := p.a.cq.Next(within(t, time.Second))
						check(t, err)
						if wc.Status != roce.StatusSuccess {
							t.Errorf("the WRITE ends with %v after %v", wc.Status, time.Since(began))
						}
						time.Sleep(20 * time.Millisecond) // the program computes
					})
				}
			})
		}
	}
}

// A program that has answered at once, and polled for long, does not answer the next message. The peer's SEND succeeds.
func TestHostileDeferredAndTimeout(t *testing.T) {
	for _, peer := range impatient {
		for _, polled := range []time.Duration{time.Millisecond, 100 * time.Millisecond} {
			t.Run(fmt.Sprintf("timeout %d, %d retries, polled %v", peer.timeout, peer.retries, polled), func(t *testing.T) {
				for phase := range time.Duration(10) {
					eagerLazy(t, func(t *testing.T, lazy bool) {
						n := newNetwork(t)
						c := n.config("10.0.0.2")
						c.Lazy = lazy
						p := &program{t, newPeer(t, n.device("10.0.0.1"), 4096), newPeer(t, n.open(c), 4096)}
						joinWith(t, p.a, p.b, peer.timeout, peer.retries)
						p.trusted()
						p.pollsFor(polled + phase*time.Millisecond)
						p.ping()
						began := time.Now()
						wc, err := p.a.cq.Next(within(t, time.Second))
						check(t, err)
						if wc.Status != roce.StatusSuccess {
							t.Errorf("the SEND ends with %v after %v", wc.Status, time.Since(began))
						}
						time.Sleep(20 * time.Millisecond) // the program computes
					})
				}
			})
		}
	}
}
