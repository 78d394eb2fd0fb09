//go:build race

package linktest

// raceEnabled: tests of allocations are skipped, because the race detector's instrumentation
// allocates.
const raceEnabled = true
