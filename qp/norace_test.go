//go:build !race

package qp_test

const raceEnabled = false
