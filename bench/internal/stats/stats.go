// Package stats takes figures together.
package stats

import (
	"math"
	"slices"
)

// Median is the middle of v, or the mean of the two that are; 0 of none.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	mid := len(s) / 2
	if len(s)%2 == 1 {
		return s[mid]
	}
	return (s[mid-1] + s[mid]) / 2
}

// Quantile is the smallest of the sorted v that at least the share q of all do not
// exceed; 0 of none.
func Quantile[T ~uint32 | ~uint64 | ~float64](sorted []T, q float64) T {
	if len(sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// Ratio is a/b, and 0, which stands for unknown, if either is unknown.
func Ratio(a, b float64) float64 {
	if a <= 0 || b <= 0 {
		return 0
	}
	return a / b
}
