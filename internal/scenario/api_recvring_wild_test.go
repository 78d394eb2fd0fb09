package scenario_test

import (
	"testing"
	"time"

	"github.com/goroce/roce"
)

// A program that overwrites the shared part of its ring costs the device at most as many receives as the ring has, not 2^31 with all
// locks held.
func TestRecvRingOverwritten(t *testing.T) {
	for _, state := range []roce.QPState{roce.StateReset, roce.StateErr} {
		t.Run(state.String(), func(t *testing.T) {
			n := newNetwork(t)
			p := newPeer(t, n.device("10.0.0.1"), 100)
			ring := &roce.RecvRing{RecvRingState: new(roce.RecvRingState), Slots: make([]roce.RecvSlot, 4)}
			q := ok(p.pd.CreateQP(roce.QPConfig{SendCQ: p.cq, Caps: deepCaps, RecvRing: ring}))(t)
			check(t, q.Init(roce.DefaultQPAccess, 0))
			ring.Added.Store(1 << 28)
			began := time.Now()
			check(t, q.Modify(&roce.Attr{State: state}, roce.AttrState))
			if d := time.Since(began); d > 200*time.Millisecond {
				t.Errorf("the change to %v took %v", state, d)
			}
		})
	}
}
