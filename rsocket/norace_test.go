//go:build !race

package rsocket

// raceEnabled says that the race detector is on.
const raceEnabled = false
