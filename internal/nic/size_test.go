package nic

import (
	"testing"
	"unsafe"
)

// TestSize: a device may have hundreds of thousands of idle queue pairs. The runtime has room of 112 or 128 bytes for
// an object of this size.
func TestSize(t *testing.T) {
	if n := unsafe.Sizeof(QP{}); n > 112 {
		t.Errorf("a queue pair has %d bytes, so it takes 128", n)
	}
}
