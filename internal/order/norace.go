//go:build !race

package order

// Sent is called before packets are given to the kernel.
func Sent() {}

// Received is called after packets came out of the kernel.
func Received() {}
