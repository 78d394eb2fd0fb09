//go:build linux

package verbs

import (
	"math"
	"math/rand/v2"
	"testing"
)

// On unequal processors compare computes the same ratio of 0.95 as on equal ones, even if the slower one changes, and
// with random noise.
func TestCompare(t *testing.T) {
	const ratio = 0.95
	for _, tt := range []struct {
		name        string
		small       bool
		here, there float64 // speeds of the processors
		change      int     // cycles after which they are exchanged; 0: never
		both        float64
	}{
		{"equal, small", true, 1, 1, 0, ratio},
		{"equal, large", false, 1, 1, 0, ratio},
		{"unequal, small", true, 0.7, 1, 0, ratio * 0.7 / 0.85},
		{"unequal the other way, small", true, 1, 0.7, 0, ratio * 0.7 / 0.85},
		{"unequal alternating, small", true, 0.55, 1, 7, ratio * 0.55 / 0.775},
		{"unequal, large", false, 0.7, 1, 0, ratio},
		{"unequal alternating, large", false, 0.55, 1, 7, ratio},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		noise := func() float64 { return 1 + 0.1*r.NormFloat64() }
		var cycles []cycle
		for i := range 2000 {
			var here, there rates
			if tt.change > 0 && i%tt.change == 0 {
				tt.here, tt.there = tt.there, tt.here
			}
			if slow := min(tt.here, tt.there); tt.small { // both ends work equally for a READ, only the posting end for a WRITE
				here = rates{reads: ratio * slow * noise(), writes: tt.here * noise()}
				there = rates{reads: ratio * slow * noise(), writes: tt.there * noise()}
			} else { // the end that sends the data does the work
				here = rates{reads: ratio * tt.there * noise(), writes: tt.here * noise()}
				there = rates{reads: ratio * tt.here * noise(), writes: tt.there * noise()}
			}
			cycles = append(cycles, cycleOf(here, there))
		}
		m := compare(cycles)
		if math.Abs(m.Value-ratio) > 0.02 || math.Abs(m.Extra["both"]-tt.both) > 0.02 {
			t.Errorf("%s: %.3f, of both directions %.3f; want %.3f, %.3f", tt.name, m.Value, m.Extra["both"], ratio, tt.both)
		}
	}
}
