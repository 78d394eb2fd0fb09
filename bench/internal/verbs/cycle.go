//go:build linux

package verbs

import (
	"github.com/goroce/roce/bench/internal/stats"
	"github.com/goroce/roce/bench/internal/trial"
)

// cycle is what a contest has measured while each end posted once: the rates of the two
// directions in which READs and WRITEs move data.
type cycle [2]rates

// minCycles is how many there are at least: the first and the last have a neighbour.
const minCycles = 3

// cycleOf makes a cycle of what was posted by either end. The data of a READ goes the
// other way than that of a WRITE.
func cycleOf(here, there rates) cycle {
	return cycle{
		{reads: there[reads], writes: here[writes]},
		{reads: here[reads], writes: there[writes]},
	}
}

// compare makes the median of the ratios of READs to WRITEs in one direction: the one in
// which WRITEs are slower for the moment, as the cycles before and after have it.
//
// A READ keeps both ends busy, a small WRITE only the one that posts it. Where one end's
// processor is slower than the other's, as on a shared machine one always is, small
// READs are as fast as it allows in either direction, and so are the WRITEs in one. The
// ratio of both directions together, which is Extra["both"], is then below that of two
// equal processors. Of large messages both have the same bottleneck in each direction.
func compare(cycles []cycle) (m trial.Measure) {
	var ratios, both []float64
	var each [contenders][]float64
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

// slower is the direction in which WRITEs are slower in the cycles next to one: to choose
// by what is then compared would prefer the unlucky WRITEs. It is not known if they
// disagree, as where a processor's speed changes, which it does after seconds or after a
// tenth of one.
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
