// Package mmsg sends and receives messages of a socket, many with one call. After polls that found nothing it receives
// one message with a cheaper call.
package mmsg

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// patience is how many consecutive receives must find nothing before the Receiver requests one message instead of many.
// A caller that polls for an answer reaches this number long before the answer comes. With a smaller one, the first
// receive of a burst would often return one message only.
const patience = 4

// Receiver receives from one socket. It belongs to one goroutine at a time.
type Receiver struct {
	idle int // consecutive receives that found nothing
}

// Most returns how many messages the next Receive should request: most, or 1.
func (r *Receiver) Most(most int) int {
	if r.idle >= patience {
		return min(most, 1)
	}
	return most
}

// Receive receives up to len(msgs) messages, at least one, without waiting
// (recvmmsg(2), recvmsg(2)), and returns their number. It does not enter the Go scheduler.
func (r *Receiver) Receive(fd int, msgs []unix.Mmsghdr) (n int, errno unix.Errno) {
	r.idle++
	if len(msgs) > 1 {
		got, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd),
			uintptr(unsafe.Pointer(&msgs[0])), uintptr(len(msgs)), unix.MSG_DONTWAIT, 0, 0)
		if errno != 0 {
			return 0, errno
		}
		r.idle = 0
		return int(got), 0
	}
	size, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&msgs[0])), unix.MSG_DONTWAIT)
	if errno != 0 {
		return 0, errno
	}
	msgs[0].Len, r.idle = uint32(size), 0
	return 1, 0
}

// Send sends messages without waiting (sendmmsg(2)), and returns how many it has sent: at least one if errno is 0. It
// does not enter the Go scheduler.
func Send(fd int, msgs []unix.Mmsghdr) (n int, errno unix.Errno) {
	got, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&msgs[0])), uintptr(len(msgs)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(got), 0
}
