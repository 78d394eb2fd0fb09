package qp

import (
	"testing"
	"unsafe"
)

// TestSize: a device may have hundreds of thousands of idle queue pairs. The runtime adds 8 bytes to an object of this
// size, and has room of 1024 or 1152 bytes for the two.
func TestSize(t *testing.T) {
	if n := unsafe.Sizeof(QP{}); n > 1024-8 {
		t.Errorf("a queue pair has %d bytes, so it takes 1152", n)
	}
}
