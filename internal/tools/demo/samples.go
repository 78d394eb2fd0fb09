package demo

import (
	"slices"
	"time"
)

// samples are measured times.
type samples []time.Duration

// percentile returns the smallest sample that at least p percent of them do not
// exceed, 0 if there are none.
func (s samples) percentile(p int) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[(len(sorted)*p+99)/100-1]
}
