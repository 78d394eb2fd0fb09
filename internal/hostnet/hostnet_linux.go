package hostnet

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth/frame"
)

// Interface is a network interface of the host, in the network namespace of
// the thread that opened it. Its methods may be called from any goroutine.
type Interface struct {
	Name  string
	index int
	mac   frame.MAC

	mu     sync.Mutex // guards all below: one question at a time
	nl     *netlink.Handle
	closed bool
	probe  [2]int             // UDP sockets of the interface: IPv4, IPv6; -1: none
	groups map[netip.Addr]int // memberships, and how many times they were asked for
}

// Open finds an interface by name.
func Open(name string) (*Interface, error) {
	// All sockets must be of one namespace.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fail := func(err error) (*Interface, error) {
		return nil, &Error{"open", name, "look it up by netlink", err}
	}
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fail(err)
	}
	link, err := nl.LinkByName(name)
	if err != nil {
		nl.Close()
		return fail(missing(err))
	}
	i := &Interface{Name: name, index: link.Attrs().Index, nl: nl, probe: [2]int{-1, -1}, groups: map[netip.Addr]int{}}
	copy(i.mac[:], link.Attrs().HardwareAddr)
	for k, family := range [...]int{unix.AF_INET, unix.AF_INET6} {
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			continue // no IPv6 here, for instance
		}
		if err := unix.BindToDevice(fd, name); err != nil {
			unix.Close(fd)
			i.Close()
			return fail(err)
		}
		i.probe[k] = fd
	}
	return i, nil
}

// Close leaves all groups and releases the sockets.
func (i *Interface) Close() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return net.ErrClosed
	}
	i.closed = true
	for _, fd := range i.probe {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	i.nl.Close()
	return nil
}

// fail makes an error of what the kernel said.
func (i *Interface) fail(op, detail string, err error) error {
	return &Error{op, i.Name, detail, missing(err)}
}

// missing gives the netlink package's own kind of ENODEV its errno.
func missing(err error) error {
	var e netlink.LinkNotFoundError
	if errors.As(err, &e) {
		return syscall.ENODEV
	}
	return err
}

// lock begins a question; it fails once the interface is closed.
func (i *Interface) lock(op string) error {
	i.mu.Lock()
	if i.closed {
		i.mu.Unlock()
		return i.fail(op, "ask the kernel", net.ErrClosed)
	}
	return nil
}

// socket is the UDP socket of an address's IP version.
func (i *Interface) socket(a netip.Addr) (int, error) {
	fd := i.probe[0]
	if a.Is6() {
		fd = i.probe[1]
	}
	if fd < 0 {
		return 0, syscall.EAFNOSUPPORT
	}
	return fd, nil
}

// Addrs returns the addresses of the interface in the order of a GID table:
// the link-local one made from the MAC address first. Addresses that still wait
// for duplicate address detection, or have failed it, are left out.
func (i *Interface) Addrs() ([]netip.Addr, error) {
	if err := i.lock("addresses of"); err != nil {
		return nil, err
	}
	defer i.mu.Unlock()
	link, err := i.nl.LinkByIndex(i.index)
	if err != nil {
		return nil, i.fail("addresses of", "look it up by netlink", err)
	}
	var list []netlink.Addr
	err = again(func() error {
		list, err = i.nl.AddrList(link, netlink.FAMILY_ALL)
		return err
	})
	if err != nil {
		return nil, i.fail("addresses of", "list them by netlink", err)
	}
	var addrs []netip.Addr
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0 {
			addrs = append(addrs, ip.Unmap())
		}
	}
	return gidOrder(i.mac, addrs), nil
}

// State returns the interface's present state; ENODEV when it was removed.
func (i *Interface) State() (State, error) {
	if err := i.lock("state of"); err != nil {
		return State{}, err
	}
	defer i.mu.Unlock()
	link, err := i.nl.LinkByIndex(i.index)
	if err != nil {
		return State{}, i.fail("state of", "look it up by netlink", err)
	}
	a := link.Attrs()
	s := State{MTU: a.MTU, Up: a.RawFlags&unix.IFF_UP != 0 && a.RawFlags&unix.IFF_LOWER_UP != 0}
	copy(s.MAC[:], a.HardwareAddr)
	return s, nil
}

// again repeats a listing that the kernel says was disturbed by a change.
func again(list func() error) (err error) {
	for range 5 {
		if err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return err
}
