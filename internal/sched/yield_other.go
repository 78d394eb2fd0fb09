//go:build !linux

package sched

const canYield = false

// Yield does nothing here.
func Yield() {}
