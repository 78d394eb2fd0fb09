//go:build race

package linktest

// raceEnabled: the race detector's instrumentation moves values to the heap.
const raceEnabled = true
