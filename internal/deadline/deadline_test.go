package deadline

import (
	"math/rand/v2"
	"testing"

	"github.com/goroce/roce/mono"
)

// TestHeap sets deadlines at random and compares with a list of them.
func TestHeap(t *testing.T) {
	type owner struct {
		Timer
		want mono.Time
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var h Heap[*owner]
	owners := make([]*owner, 50)
	for i := range owners {
		owners[i] = &owner{want: mono.Never}
	}
	for range 50_000 {
		o := owners[rng.IntN(len(owners))]
		o.want = mono.Time(rng.IntN(100)) // many are equal
		if rng.IntN(3) == 0 {
			o.want = mono.Never
		}
		h.Set(&o.Timer, o, o.want)

		now := mono.Time(rng.IntN(100))
		due, ok := h.Due(now)
		if ok && rng.IntN(10) == 0 {
			if popped, _ := h.Pop(now); popped != due {
				t.Fatalf("Pop(%v) = %v, Due said %v", now, popped, due)
			}
			if due.Timer != (Timer{}) {
				t.Fatalf("popped timer %+v", due.Timer)
			}
			due.want = mono.Never
			due, ok = h.Due(now)
		}
		earliest, n := mono.Never, 0
		for _, o := range owners {
			earliest = min(earliest, o.want)
			if o.want == mono.Never {
				if o.Timer != (Timer{}) {
					t.Fatalf("an idle timer: %+v", o.Timer)
				}
				continue
			}
			n++
			if o.At != o.want || h[o.pos-1] != (entry[*owner]{o.want, &o.Timer, o}) {
				t.Fatalf("a timer for %v is %+v", o.want, o.Timer)
			}
		}
		if h.Next() != earliest || len(h) != n {
			t.Fatalf("Next() = %v of %d, want %v of %d", h.Next(), len(h), earliest, n)
		}
		if ok != (earliest <= now) || ok && due.want != earliest {
			t.Fatalf("Due(%v) = %v, %v; the earliest is at %v", now, due, ok, earliest)
		}
	}
}

// TestAllocs: a heap that once had as many timers allocates nothing.
func TestAllocs(t *testing.T) {
	var h Heap[int]
	timers := make([]Timer, 100)
	if n := testing.AllocsPerRun(10, func() {
		for i := range timers {
			h.Set(&timers[i], i, mono.Time(1000-i))
		}
		for len(h) > 0 {
			h.Pop(mono.Never)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
