package ucma

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestEventfd: the eventfd counts, and taking off more than there is does not wait, though the descriptor
// would.
func TestEventfd(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_SEMAPHORE|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	notify := Eventfd(fd)
	notify(1)
	notify(1)
	notify(1)
	notify(-2)
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	if _, err := unix.Read(fd, b); err != nil {
		t.Errorf("read: %v", err)
	}
	if _, err := unix.Read(fd, b); err != syscall.EAGAIN {
		t.Errorf("read: %v, want nothing there", err)
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	notify(-1)
}
