//go:build !race

package rstream_test

const raceEnabled = false
