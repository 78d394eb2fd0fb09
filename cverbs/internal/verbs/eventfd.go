package verbs

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// count adds n to an eventfd, or takes -n from it.
func count(fd, n int) {
	for range n {
		signal(fd)
	}
	unsignal(fd, -n)
}

// signal adds 1 to an eventfd. It waits only if the program has made the eventfd full.
func signal(fd int) {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	unix.Write(fd, one[:])
}

// unsignal takes n times 1 from an eventfd of EFD_SEMAPHORE, for events that are dropped. What the program has
// read already it finds no event for.
func unsignal(fd, n int) {
	var one [8]byte
	for range n {
		// Not read, which waits if the program has been faster.
		if _, err := unix.Preadv2(fd, [][]byte{one[:]}, -1, unix.RWF_NOWAIT); err != nil {
			return
		}
	}
}
