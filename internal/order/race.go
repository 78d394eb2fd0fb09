//go:build race

// Package order tells the race detector about an order that it cannot see: memory accesses before a device gives a
// packet to the kernel happen before accesses after another device of the same process gets it from the kernel. Package
// net does the same. Without the detector this package does nothing.
package order

import "sync/atomic"

var packets atomic.Uint64

// Sent is called before packets are given to the kernel.
func Sent() { packets.Add(1) }

// Received is called after packets came out of the kernel.
func Received() { packets.Load() }
