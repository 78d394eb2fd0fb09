//go:build race

package rdmacm_test

// raceDetector keeps memory of its own, which no test can count.
const raceDetector = true
