//go:build linux

package verbs

import (
	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/stats"
)

// cycle is the result of one slot of each operation by each end: the rates by the direction in
// which READs and WRITEs move data.
type cycle [2]rates

// minCycles is the least number of cycles: each needs a neighbour.
const minCycles = 3

// cycleOf makes a cycle of what either end posted. The data of a READ moves in the opposite
// direction of a WRITE's.
func cycleOf(here, there rates) cycle {
	return cycle{
		{reads: there[reads], writes: here[writes]},
		{reads: here[reads], writes: there[writes]},
	}
}

// compare computes the median of the ratios of READs to WRITEs in one direction: the direction in which WRITEs were
// slower in the cycles before and after.
//
// A READ keeps both ends busy, a small WRITE mostly the end that posts it. On a shared machine
// one processor is always slower than the other. Small READs then run at the speed of the slower
// one in both directions, but WRITEs in one direction only, so the ratio of both directions
// together, Extra["both"], is lower than on equal processors. Large messages have the same
// bottleneck in each direction.
func compare(cycles []cycle) (m harness.Measure) {
	var ratios, both []float64
	var each [operations][]float64
	for i, c := range cycles {
		both = append(both, stats.Ratio(c[0][reads]+c[1][reads], c[0][writes]+c[1][writes]))
		d, known := slower(cycles, i)
		if !known {
			continue
		}
		ratios = append(ratios, stats.Ratio(c[d][reads], c[d][writes]))
		for k := range each {
			each[k] = append(each[k], c[d][k])
		}
	}
	m.Value = stats.Median(ratios)
	m.Extra = map[string]float64{"cycles": float64(len(cycles)), "both": stats.Median(both),
		"READ": stats.Median(each[reads]), "WRITE": stats.Median(each[writes])}
	return m
}

// slower returns the direction in which WRITEs were slower in the cycles next to one. A choice
// by the cycle itself would prefer the WRITEs that were slow by chance. known is false if the
// neighbours disagree: the speed of a processor has just changed.
func slower(cycles []cycle, at int) (direction int, known bool) {
	for _, i := range []int{at - 1, at + 1} {
		if i < 0 || i >= len(cycles) {
			continue
		}
		d := 0
		if cycles[i][1][writes] < cycles[i][0][writes] {
			d = 1
		}
		if known && d != direction {
			return 0, false
		}
		direction, known = d, true
	}
	return direction, known
}
