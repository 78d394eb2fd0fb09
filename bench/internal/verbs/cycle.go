//go:build linux

package verbs

import (
	"github.com/goroce/roce/bench/internal/stats"
	"github.com/goroce/roce/bench/internal/trial"
)

// cycle is what a contest has measured while each end posted once: the rates of the two
// directions in which READs and WRITEs move data.
type cycle [2]rates

// minCycles is how many there are at least, so that there are others than the one at hand.
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
// which WRITEs are slower for the moment, as the other cycles have it.
//
// A READ keeps both ends busy, a small WRITE only the one that posts it. Where one end's
// processor is slower than the other's, as on a shared machine one always is, small
// READs are as fast as it allows in either direction, and so are the WRITEs in one. The
// ratio of both directions together, which is Extra["both"], is then below that of two
// equal processors. Of large messages both have the same bottleneck in each direction.
func compare(cycles []cycle) (m trial.Measure) {
	var ratios, both []float64
	var each [contenders][]float64
	for i := range cycles {
		c := cycles[i][slower(cycles, i)]
		for k := range each {
			each[k] = append(each[k], c[k])
		}
		ratios = append(ratios, stats.Ratio(c[reads], c[writes]))
		all := cycles[i]
		both = append(both, stats.Ratio(all[0][reads]+all[1][reads], all[0][writes]+all[1][writes]))
	}
	m.Value = stats.Median(ratios)
	m.Extra = map[string]float64{"cycles": float64(len(cycles)), "both": stats.Median(both),
		"READ": stats.Median(each[reads]), "WRITE": stats.Median(each[writes])}
	return m
}

// slower is the direction in which WRITEs are slower, of all cycles but one: to choose by
// what is then compared would prefer the unlucky WRITEs.
func slower(cycles []cycle, but int) int {
	var sum [2]float64
	for i, c := range cycles {
		if i != but {
			sum[0] += c[0][writes]
			sum[1] += c[1][writes]
		}
	}
	if sum[0] <= sum[1] {
		return 0
	}
	return 1
}
