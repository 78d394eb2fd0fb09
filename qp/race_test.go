//go:build race

package qp_test

// raceEnabled makes simulations shorter under the race detector: a simulation is one
// goroutine, and what they find is found without it.
const raceEnabled = true
