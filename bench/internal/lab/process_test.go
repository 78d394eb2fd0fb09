//go:build linux

package lab

import (
	"slices"
	"testing"
)

func TestChoose(t *testing.T) {
	none := func(int) []int { return nil }
	pairs := func(c int) []int { return []int{c &^ 1, c | 1} }
	for _, tt := range []struct {
		cores    []int
		siblings func(int) []int
		want     [2]int
	}{
		{[]int{0}, none, [2]int{0, 0}},
		{[]int{0, 1}, none, [2]int{0, 1}},
		{[]int{0, 1}, pairs, [2]int{0, 1}}, // better than one for both
		{[]int{0, 1, 2, 3}, pairs, [2]int{0, 2}},
		{[]int{3, 4}, pairs, [2]int{3, 4}},
	} {
		if got := choose(tt.cores, tt.siblings); got != tt.want {
			t.Errorf("choose(%v) = %v, want %v", tt.cores, got, tt.want)
		}
	}
}

func TestParseList(t *testing.T) {
	for s, want := range map[string][]int{"0\n": {0}, "0-1\n": {0, 1}, "0,4": {0, 4}, "0-1,6-7": {0, 1, 6, 7}, "": nil, "x-2": nil} {
		if got := parseList(s); !slices.Equal(got, want) {
			t.Errorf("parseList(%q) = %v, want %v", s, got, want)
		}
	}
}
