package scenario_test

import (
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce"
)

// A stranger that knows the numbers of some queue pairs, shared receive queues or memory keys cannot predict the next:
// they are random.
func TestNumbersAreRandom(t *testing.T) {
	const count = 256
	d := newNetwork(t).device("10.0.0.1")
	pd, cq := d.AllocPD(), ok(d.CreateCQ(1))(t)
	kinds := map[string]func() uint32{
		"queue pair": func() uint32 {
			return uint32(ok(pd.CreateQP(roce.QPConfig{SendCQ: cq, Caps: roce.Caps{MaxSendWR: 1, MaxRecvWR: 1}}))(t).Num())
		},
		"shared receive queue": func() uint32 { return uint32(ok(pd.CreateSRQ(roce.SRQConfig{MaxWR: 1}))(t).Num()) },
		"memory key":           func() uint32 { return uint32(ok(pd.RegMR(make([]byte, 8), 0))(t).RKey()) >> 8 },
	}
	for kind, create := range kinds {
		var numbers, steps []uint32
		for range count {
			n := create()
			if k := len(numbers); k > 0 {
				steps = append(steps, (n-numbers[k-1])&0xFFFFFF)
			}
			numbers = append(numbers, n)
		}
		for what, list := range map[string][]uint32{"numbers": numbers, "steps from one to the next": steps} {
			slices.Sort(list)
			if different := len(slices.Compact(slices.Clone(list))); different < count*9/10 {
				t.Errorf("%s: %d different %s of %d", kind, different, what, count)
			}
			// Each eighth of the space has some 32 of them; fewer than 8 has a probability below 2^-20.
			var eighths [8]int
			for _, n := range list {
				eighths[n>>21]++
			}
			if slices.Min(eighths[:]) < 8 {
				t.Errorf("%s: %s are spread like %v over the space", kind, what, eighths)
			}
		}
	}
}

// The number of a closed queue pair or shared receive queue rests while packets to it may still arrive. No new object
// gets it before, even if the source of randomness returns only this number.
func TestNumbersRest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		c := n.config("10.0.0.1")
		c.Rand = func() uint64 { return 0x123456 }
		d := n.open(c)
		pd, cq := d.AllocPD(), ok(d.CreateCQ(1))(t)
		kinds := map[string]func() uint32{
			"queue pair": func() uint32 {
				q := ok(pd.CreateQP(roce.QPConfig{SendCQ: cq}))(t)
				check(t, q.Close())
				return uint32(q.Num())
			},
			"shared receive queue": func() uint32 {
				s := ok(pd.CreateSRQ(roce.SRQConfig{MaxWR: 1}))(t)
				check(t, s.Close())
				return uint32(s.Num())
			},
		}
		for kind, one := range kinds {
			first := one()
			time.Sleep(69 * time.Second)
			if second := one(); second == first {
				t.Errorf("%s: number %#x again after 69 s", kind, first)
			}
			time.Sleep(2 * time.Second)
			if third := one(); third != first {
				t.Errorf("%s: number %#x after 71 s, want %#x, which does not rest any more", kind, third, first)
			}
		}
	})
}
