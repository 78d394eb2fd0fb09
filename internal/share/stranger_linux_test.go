package share

import (
	"errors"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
)

// squat binds the name of a slot as another user.
func squat(t *testing.T, k string, s Slot) (fd int) {
	t.Helper()
	if unix.Geteuid() != 0 {
		t.Skip("needs root, to act as another user")
	}
	runtime.LockOSThread() // what follows is the thread's
	defer runtime.UnlockOSThread()
	if _, err := unix.SetfsuidRetUid(65534); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if _, err := unix.SetfsuidRetUid(0); err != nil {
		t.Fatal(err)
	}
	if err == nil {
		err = unix.Bind(fd, slotName(k, s))
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// Another user binds the name of a slot when its owner dies. The keeper does not take this user
// for the owner: it cleans up, and grants the slot to no process while the user has the name.
func TestStrangerAfterDeath(t *testing.T) {
	d := new(fakeMedium)
	k := key(t)
	a, b := join(t, k, 1, d), join(t, k, 1, d)
	told := make(chan []Conn, 4)
	a.OnOrphans(func(list []Conn) { told <- list })
	keep := Conn{1, 2, 3, bth.GID{4}, bth.GID{5}}
	b.Connected(keep)
	if err := b.Claim(9); err != nil {
		t.Fatal(err)
	}
	s := b.Slots()[0]
	kill(t, b)
	fd := squat(t, k, s)
	defer unix.Close(fd)
	b.line.Close()
	eventually(t, "the slot is free", func() bool { return !a.board.owned(s) })
	if got := <-told; !slices.Equal(got, []Conn{keep}) {
		t.Errorf("told %+v", got)
	}
	if err := a.Claim(9); err != nil {
		t.Error(err)
	}
	if _, err := Join(Config{Key: k, Slots: Slots - 1, Medium: d}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a slot is granted whose name another user has: %v", err)
	}
}

// If a process has the name of the keeper but accepts no connections, Join fails at once.
func TestKeeperDeaf(t *testing.T) {
	k := key(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: keeperName(k).Name}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	l := dialAs(t, k) // the queue is full
	if _, err := Join(Config{Key: k, Slots: 1, Medium: new(fakeMedium)}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v, want EADDRINUSE", err)
	}
	l.Close()
}
