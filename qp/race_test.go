//go:build race

package qp_test

// raceEnabled makes simulations shorter under the race detector. A simulation is one goroutine, so the detector finds
// nothing in it.
const raceEnabled = true
