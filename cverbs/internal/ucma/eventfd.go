package ucma

import (
	"encoding/binary"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Eventfd returns what CreateChannel calls to keep an eventfd of EFD_SEMAPHORE at the number of events.
// Takers of events take 1 off it, and then an event. One that finds no event has taken what belongs to
// an event that was dropped meanwhile.
func Eventfd(fd int) (notify func(n int)) {
	return func(n int) {
		switch {
		case n > 0:
			var add [8]byte
			binary.NativeEndian.PutUint64(add[:], uint64(n))
			// Not syscall.Write, which tells the scheduler: locks are held.
			syscall.RawSyscall(syscall.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&add)), uintptr(len(add)))
		case n < 0:
			for range -n {
				take(fd)
			}
		}
	}
}

// take takes 1 off an eventfd, unless it is at 0. The descriptor may be one that waits, so reading must
// say that it does not.
func take(fd int) {
	var b [8]byte
	iov := syscall.Iovec{Base: &b[0], Len: uint64(len(b))}
	const here = ^uintptr(0) // offset -1: that of the descriptor
	syscall.RawSyscall6(unix.SYS_PREADV2, uintptr(fd), uintptr(unsafe.Pointer(&iov)), 1, here, here, unix.RWF_NOWAIT)
}
