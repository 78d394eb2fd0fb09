package qp_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/qp"
)

// castDCQCN makes pairs, or initiators of XRC, with congestion control. Their network also marks packets.
func castDCQCN(t testing.TB, seed uint64, rng *rand.Rand, imp impairment, c pairConfig) (w *network, pairs [][2]*actor) {
	line := qp.Rate(1+rng.IntN(20)) * qp.Gbps
	c.cc = &qp.DCQCN{LineRate: line, MinRate: 200 * qp.Mbps, IncreaseBytes: uint64(10_000 + rng.IntN(1_000_000)), FastRecovery: 1 + rng.IntN(5)}
	with, share := castRC, rng.Float64()/2
	if rng.IntN(4) == 0 {
		with = castXRC
	}
	w, pairs = with(t, seed, rng, imp, c)
	w.drop = func(p *frame.Packet) bool {
		if w.rng.Float64() < share {
			markIP(p.IP)
		}
		return false
	}
	var nodes []*node
	for _, p := range pairs {
		nodes = append(nodes, p[0].node, p[1].node)
	}
	w.verdict = func() error {
		for _, p := range pairs {
			for _, a := range p {
				if got := a.Congestion(w.now); !got.On || got.Rate < 200*qp.Mbps || got.Rate > line {
					return fmt.Errorf("rate of %v: %+v", a.addr, got)
				}
			}
		}
		return quiet(imp, nodes...)
	}
	return w, pairs
}

// TestSimDCQCN: on every simulated network, congestion control costs only time.
func TestSimDCQCN(t *testing.T) {
	var handled uint64
	runSeeds(t, func(t testing.TB, seed uint64, rng *rand.Rand, imp impairment, c pairConfig) (*network, [][2]*actor) {
		w, pairs := castDCQCN(t, seed, rng, imp, c)
		verdict := w.verdict
		w.verdict = func() error {
			for _, p := range pairs {
				handled += p[0].cnt.CNPsHandled + p[1].cnt.CNPsHandled
			}
			return verdict()
		}
		return w, pairs
	}, *simSeeds/3)
	if handled == 0 {
		t.Error("no queue pair was slowed down")
	}
	t.Logf("%d CNPs", handled)
}
