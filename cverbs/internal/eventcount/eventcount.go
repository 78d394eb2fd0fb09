// Package eventcount keeps an eventfd of EFD_SEMAPHORE, which a C library gave, at the number of events that
// wait. The library's takers take 1 off it, and then an event. One that finds no event has taken what
// belongs to an event that was dropped meanwhile.
package eventcount

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Add adds n, or takes -n away for events that are dropped. It waits only if the program has made the
// eventfd full.
func Add(fd, n int) {
	switch {
	case n > 0:
		var add [8]byte
		binary.NativeEndian.PutUint64(add[:], uint64(n))
		unix.Write(fd, add[:])
	case n < 0:
		take(fd, -n)
	}
}

// take takes n times 1 away, or less if takers have been faster.
func take(fd, n int) {
	var one [8]byte
	for range n {
		// Not read, which would wait then.
		if _, err := unix.Preadv2(fd, [][]byte{one[:]}, -1, unix.RWF_NOWAIT); err != nil {
			return
		}
	}
}
