package scenario_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/goroce/roce"
)

// TestRecvRing: a program adds receives to the ring of a queue pair, and messages take them. What it adds while the queue pair
// fails is flushed by EndRecvs.
func TestRecvRing(t *testing.T) {
	n := newNetwork(t)
	a, b := newPeer(t, n.device("10.0.0.1"), 100), newPeer(t, n.device("10.0.0.2"), 100)
	caps := deepCaps
	caps.MaxRecvWR = 4
	for _, slots := range []int{0, 3} {
		ring := &roce.RecvRing{RecvRingState: new(roce.RecvRingState), Slots: make([]roce.RecvSlot, slots)}
		if _, err := b.pd.CreateQP(roce.QPConfig{SendCQ: b.cq, Caps: caps, RecvRing: ring}); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a ring of %d: %v", slots, err)
		}
	}
	ring := &roce.RecvRing{RecvRingState: new(roce.RecvRingState), Slots: make([]roce.RecvSlot, 4)}
	b.qp = ok(b.pd.CreateQP(roce.QPConfig{SendCQ: b.cq, Caps: caps, RecvRing: ring}))(t)
	if ring.Open.Load() != 0 {
		t.Error("the ring is open in RESET")
	}
	check(t, b.qp.Init(roce.DefaultQPAccess, 0))
	connect(t, a, b)
	add := func(id uint64) {
		added := ring.Added.Load()
		ring.Slots[added%4] = roce.RecvSlot{ID: id, SG: [1]roce.SGE{b.mr.SGE(0, 100)}, Elements: 1}
		ring.Added.Store(added + 1)
	}
	for id := range uint64(10) {
		add(id)
		if out := ring.Added.Load() - ring.Done.Load(); out != 1 {
			t.Fatalf("%d receives are outstanding", out)
		}
		if ring.Open.Load() != 1 {
			t.Fatal("the ring is closed")
		}
		fill(a.buf, int(id))
		a.post(roce.Send, 0, 100, nil, 0)
		a.wait()
		if wc := b.wait(); wc.ID != id || wc.ByteLen != 100 || string(b.buf) != string(a.buf) {
			t.Errorf("receive %d: ID %d, %d bytes", id, wc.ID, wc.ByteLen)
		}
	}
	add(10)
	check(t, b.qp.Modify(&roce.Attr{State: roce.StateErr}, roce.AttrState))
	add(11)
	check(t, b.qp.EndRecvs())
	for id := uint64(10); id < 12; id++ {
		if wc := b.waitFor(roce.StatusWRFlushErr); wc.ID != id {
			t.Errorf("receive %d was flushed instead of %d", wc.ID, id)
		}
	}
	if ring.Added.Load() != ring.Done.Load() {
		t.Errorf("%d receives were added, %d are done", ring.Added.Load(), ring.Done.Load())
	}
	check(t, b.qp.Close())
	wantErr(t, "EndRecvs of a closed queue pair", b.qp.EndRecvs(), roce.ErrClosed)
}
