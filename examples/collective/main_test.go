package main

import "testing"

// TestCollective runs each operation in both ways with one number, with vectors of several
// packets, and under load. The program itself compares every result with a plain loop.
func TestCollective(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	for _, numbers := range []int{1, 2000} {
		if err := run(t.Context(), rounds, numbers, 1); err != nil {
			t.Errorf("%d numbers: %v", numbers, err)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, c := range [][3]int{{0, 1, 0}, {1, 0, 0}, {1, 1, -1}} {
		if run(t.Context(), c[0], c[1], c[2]) == nil {
			t.Errorf("%v: no error", c)
		}
	}
}
