package verbs

import (
	"encoding/binary"
	"syscall"
	"unsafe"
)

// signal adds 1 to an eventfd. It does not wait: an eventfd that is full stays readable.
func signal(fd int) {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	// Not syscall.Write, which tells the scheduler: signal is called with the lock of a shard held.
	syscall.RawSyscall(syscall.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), uintptr(len(one)))
}
