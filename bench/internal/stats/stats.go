// Package stats computes medians, quantiles and ratios.
package stats

import (
	"cmp"
	"math"
	"slices"
)

// Median returns the median of v, or 0 if v is empty.
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

// Quantile returns the smallest of the sorted values that at least the share q of all do not
// exceed, or the zero value if there are none.
func Quantile[T cmp.Ordered](sorted []T, q float64) T {
	if len(sorted) == 0 {
		return *new(T)
	}
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// Ratio returns a/b, or 0, which stands for unknown, if either is not above 0.
func Ratio(a, b float64) float64 {
	if a <= 0 || b <= 0 {
		return 0
	}
	return a / b
}
