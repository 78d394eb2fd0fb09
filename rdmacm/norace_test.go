//go:build !race

package rdmacm_test

const raceDetector = false
