//go:build race

// Package order tells the race detector what it cannot see: that what was done
// before a packet was given to the kernel comes before what is done after it came
// out of the kernel, at another device of the same process. Package net does the
// same. Without the detector it does nothing.
package order

import "sync/atomic"

var packets atomic.Uint64

// Sent is called before packets are given to the kernel.
func Sent() { packets.Add(1) }

// Received is called after packets came out of the kernel.
func Received() { packets.Load() }
