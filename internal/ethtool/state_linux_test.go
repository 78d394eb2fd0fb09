package ethtool

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/netlab"
)

// TestState renames an interface, takes its carrier, sets it down and removes it.
func TestState(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	fd := -1
	a.Do(t, func() {
		var err error
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
	})
	defer unix.Close(fd)
	index := a.Link().Attrs().Index
	want := func(name string, state unix.Errno) {
		t.Helper()
		if got, _ := Name(fd, index); got != name {
			t.Errorf("the name is %q, want %q", got, name)
		}
		if got := State(fd, index); got != state {
			t.Errorf("%s: %v, want %v", name, got, state)
		}
	}
	want(a.Interface, 0)
	if err := a.Netlink().LinkSetName(a.Link(), "other"); err != nil {
		t.Fatal(err)
	}
	want("other", 0)
	b.SetUp(t, false)
	want("other", unix.ENETDOWN) // no carrier
	a.SetUp(t, false)
	want("other", unix.ENETDOWN)
	if err := a.Netlink().LinkDel(a.Link()); err != nil {
		t.Fatal(err)
	}
	want("", unix.ENODEV)
}
