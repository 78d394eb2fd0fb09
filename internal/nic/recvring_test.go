package nic

import (
	"runtime"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mr"
)

// TestRecvRing: the program adds receives while the queue pair takes them. Each is taken once, whole, in order.
func TestRecvRing(t *testing.T) {
	const slots, n = 4, 2000
	r := &RecvRing{RecvRingState: new(RecvRingState), Slots: make([]RecvSlot, slots)}
	go func() {
		for i := uint32(0); i < n; {
			if r.Added.Load()-r.Taken.Load() == slots {
				runtime.Gosched()
				continue
			}
			r.Slots[i%slots] = RecvSlot{ID: uint64(i), SG: [1]mr.SGE{{Addr: uint64(i), Length: i, LKey: bth.LKey(i)}}, Elements: i % 3}
			i++
			r.Added.Store(i)
		}
	}()
	take := r.engine()
	for i := uint32(0); i < n; {
		id, sg, elements, ok := take.Next()
		if !ok {
			runtime.Gosched()
			continue
		}
		if want := (mr.SGE{Addr: uint64(i), Length: i, LKey: bth.LKey(i)}); id != uint64(i) || sg[0] != want || elements != int(min(i%3, 1)) {
			t.Fatalf("receive %d: ID %d, %v, %d elements", i, id, sg, elements)
		}
		i++
	}
	take.Done(3)
	take.Done(-1)
	if r.Done.Load() != 2 {
		t.Errorf("%d are done, want 2", r.Done.Load())
	}
	if take.Len() != 0 {
		t.Errorf("%d receives are left", take.Len())
	}
}
