package main

import (
	"context"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/lab"
	"github.com/goroce/roce/interop/child"
)

// measureBusy measures one round beside programs that compute. These take turns on the cores, or
// may use all that the ends may use.
func (r *runner) measureBusy(ctx context.Context, s harness.Spec, pair *lab.Pair, mtu int) (m harness.Measure, err error) {
	both := r.lab.Cores[:]
	var ends [2]*child.Process
	if s.Free {
		ends, err = r.another("free", 0, func(int) []int { return both })
	} else if err = r.startEnds(); err == nil {
		ends = r.ends
	}
	if err != nil {
		return m, err
	}
	for i := range s.Loops {
		cores := both
		if !s.Free {
			cores = both[i%2:][:1]
		}
		loop, err := r.lab.Child(0, cores, loopVariable+"=1")
		if err != nil {
			return m, err
		}
		defer loop.Close()
	}
	measures, err := r.lead(ctx, ends, s, pair, mtu, 0)
	m = measures[0]
	m.Retrans += measures[1].Retrans
	return m, err
}
