package impair

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/link"
)

// reserve returns an error if another bridge has the interface. Two bridges would forward each frame twice, and with BPF programs they
// would redirect each other's frames for ever. The reservation is the name of an abstract Unix socket. Such names belong to the network
// namespace, as interface indices do, and the kernel frees them when the process ends.
func reserve(i Interface, index int) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, link.Fail("impair", "socket", i.String(), nil, err, "")
	}
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@rocectl impair %d", index)})
	if err == nil {
		return fd, nil
	}
	unix.Close(fd)
	if errors.Is(err, unix.EADDRINUSE) {
		return -1, link.Fail("impair", "open", i.String(), unix.EBUSY, errors.New("another rocectl impair has it, and each frame would be forwarded twice"), "end that one first")
	}
	return -1, link.Fail("impair", "reserve", i.String(), nil, err, "")
}

// unfit returns an error if two interfaces cannot be the ends of a bridge: they are the same interface, or a veth pair.
func unfit(a, b Interface) error {
	var of [2]netlink.Link
	var spaces [2]*os.File
	for n, i := range [2]Interface{a, b} {
		err := i.entered(func() (err error) {
			if of[n], err = netlink.LinkByName(i.Name); err == nil {
				spaces[n], err = os.Open("/proc/thread-self/ns/net")
			}
			return err
		})
		if spaces[n] != nil {
			defer spaces[n].Close()
		}
		if err != nil {
			return nil // open returns a better error for this
		}
	}
	var x, y unix.Stat_t
	if err := errors.Join(unix.Fstat(int(spaces[0].Fd()), &x), unix.Fstat(int(spaces[1].Fd()), &y)); err != nil {
		return fmt.Errorf("impair: network namespace: %w", err)
	}
	one := x.Ino == y.Ino && x.Dev == y.Dev
	l, m := of[0].Attrs(), of[1].Attrs()
	switch {
	case one && l.Index == m.Index:
		return fmt.Errorf("impair: %s and %s are one interface", a, b)
	case l.ParentIndex != m.Index || m.ParentIndex != l.Index: // interfaces of a pair are each other's parents
		return nil
	case l.NetNsID < 0 && !one: // the other end is in the same namespace
		return nil
	case l.NetNsID >= 0:
		id := -1
		err := a.entered(func() (err error) {
			id, err = netlink.GetNetNsIdByFd(int(spaces[1].Fd()))
			return err
		})
		if err != nil || id != l.NetNsID {
			return nil
		}
	}
	return fmt.Errorf("impair: %s and %s are the ends of one cable, so each frame would go round for ever: bridge the interfaces at the other ends of two cables", a, b)
}
