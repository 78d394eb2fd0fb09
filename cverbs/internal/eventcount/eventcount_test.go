package eventcount

import (
	"encoding/binary"
	"math"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAdd(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_SEMAPHORE|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	waiting := func(on bool) {
		t.Helper()
		if err := unix.SetNonblock(fd, !on); err != nil {
			t.Fatal(err)
		}
	}
	b := make([]byte, 8)
	for _, c := range []struct {
		add  []int
		want int
	}{{[]int{1, 1, 1, -2}, 1}, {[]int{3, 0}, 3}, {[]int{2, -5}, 0}, {[]int{-1}, 0}} {
		for _, n := range c.add {
			Add(fd, n) // must not wait, though the descriptor would
		}
		waiting(false)
		got := 0
		for ; err == nil; got++ {
			_, err = unix.Read(fd, b)
		}
		if got--; err != syscall.EAGAIN || got != c.want {
			t.Errorf("added %v: %d events, %v; want %d", c.add, got, err, c.want)
		}
		err = nil
		waiting(true)
	}
	// A program could write to its descriptor, too.
	waiting(false)
	binary.NativeEndian.PutUint64(b, math.MaxUint64-1)
	unix.Write(fd, b)
	Add(fd, 1)
}
