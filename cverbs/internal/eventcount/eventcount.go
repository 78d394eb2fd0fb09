// Package eventcount keeps an eventfd of EFD_SEMAPHORE, which a C library owns, at the number of pending
// events. A thread of the library takes 1 from it, and then an event. If it finds no event, that event was
// dropped meanwhile.
package eventcount

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Add adds n; if n is negative, it takes -n away for dropped events. It waits only if the program has filled
// the eventfd.
func Add(fd, n int) {
	var number [8]byte
	if n > 0 {
		binary.NativeEndian.PutUint64(number[:], uint64(n))
		unix.Write(fd, number[:])
	}
	for ; n < 0; n++ {
		// read would wait if the descriptor is blocking.
		if _, err := unix.Preadv2(fd, [][]byte{number[:]}, -1, unix.RWF_NOWAIT); err != nil {
			return // threads of the library have been faster
		}
	}
}
