package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/lab"
	"github.com/goroce/roce/interop/child"
	"github.com/goroce/roce/interop/quota"
)

// measureBusy measures one round while other programs compute. These programs are pinned to the two cores in turn, or
// may all use both cores.
func (r *runner) measureBusy(ctx context.Context, s harness.Spec, pair *lab.Pair, mtu int) (m harness.Measure, err error) {
	var ends [2]*child.Process
	if s.By == "" {
		if ends, err = r.busyEnds(s); err != nil {
			return m, err
		}
	}
	if s.Quota > 0 {
		free, err := limit(ends, s.Quota)
		if err != nil {
			return m, err
		}
		defer free()
	}
	both := r.lab.Cores[:]
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
	if s.By != "" {
		return r.suite.Measure(ctx, s, pair)
	}
	measures, err := r.lead(ctx, ends, s, pair, mtu, 0)
	m = measures[0]
	m.Retrans += measures[1].Retrans
	return m, err
}

// busyEnds returns the processes of the two ends.
func (r *runner) busyEnds(s harness.Spec) ([2]*child.Process, error) {
	both := func(int) []int { return r.lab.Cores[:] }
	switch {
	case s.Procs > 0:
		return r.another(fmt.Sprintf("procs %d", s.Procs), 0, both, fmt.Sprintf("GOMAXPROCS=%d", s.Procs))
	case s.Quota > 0:
		return r.another("quota", 0, r.ownCore)
	case s.Free:
		return r.another("free", 0, both)
	}
	return r.ends()
}

// limit gives each end a quota, until free is called.
func limit(ends [2]*child.Process, share float64) (free func(), err error) {
	var groups []*quota.Group
	free = func() {
		for _, g := range groups {
			g.Close()
		}
	}
	for _, end := range ends {
		g, err := quota.New(share)
		if err == nil {
			groups = append(groups, g)
			err = g.Add(end.Pid())
		}
		if err != nil {
			free()
			return nil, err
		}
	}
	return free, nil
}

// missingQuota returns why no process can have a quota here, if one of the cases needs it.
func missingQuota(cases []testCase) error {
	if !slices.ContainsFunc(cases, hasQuota) {
		return nil
	}
	g, err := quota.New(0.5)
	if err != nil {
		return err
	}
	return g.Close()
}

func hasQuota(c testCase) bool { return c.spec.Quota > 0 }
