//go:build race

package rdmacm_test

// raceDetector is true under the race detector, whose own memory makes measurements of memory useless.
const raceDetector = true
