//go:build race

package cm

// raceEnabled makes long simulations shorter under the race detector.
const raceEnabled = true
