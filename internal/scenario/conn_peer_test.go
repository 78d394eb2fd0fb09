package scenario_test

import (
	"testing"

	"github.com/goroce/roce"
)

// The numbers of READs and atomics in each direction may differ.
func TestPeerDestRdAtomic(t *testing.T) {
	for _, tt := range []struct{ sends, dest, answers uint8 }{{3, 7, 7}, {3, 0, 3}, {0, 5, 5}} {
		n := newNetwork(t)
		a, b := newPeer(t, n.device("10.0.0.1"), 64), newPeer(t, n.device("10.0.0.2"), 64)
		check(t, a.qp.Connect(t.Context(), roce.Peer{
			AHAttr: roce.AHAttr{DGID: b.dev.GIDs()[0]}, QPN: b.qp.Num(), PSN: b.psn, MTU: a.dev.Query().PathMTU,
			RdAtomic: tt.sends, DestRdAtomic: tt.dest,
		}, a.psn))
		if got, _ := a.qp.Query(); got.MaxRdAtomic != tt.sends || got.MaxDestRdAtomic != tt.answers {
			t.Errorf("%+v: sends %d, answers %d", tt, got.MaxRdAtomic, got.MaxDestRdAtomic)
		}
	}
}
