package hostnet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

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
	nl    *netlink.Handle
	probe [2]int // UDP sockets that make the kernel look for a neighbour: IPv4, IPv6; -1: none
}

// Open finds an interface by name.
func Open(name string) (*Interface, error) {
	fail := func(op string, err error) (*Interface, error) {
		return nil, &Error{op, name, "look it up by netlink", err}
	}
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fail("open", err)
	}
	link, err := nl.LinkByName(name)
	if err != nil {
		nl.Close()
		var missing netlink.LinkNotFoundError
		if errors.As(err, &missing) {
			err = syscall.ENODEV
		}
		return fail("open", err)
	}
	i := &Interface{Name: name, index: link.Attrs().Index, nl: nl, probe: [2]int{-1, -1}}
	copy(i.mac[:], link.Attrs().HardwareAddr)
	for k, family := range [...]int{unix.AF_INET, unix.AF_INET6} {
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			continue // no IPv6 here, for instance
		}
		if err := unix.BindToDevice(fd, name); err != nil {
			unix.Close(fd)
			i.Close()
			return fail("open", err)
		}
		i.probe[k] = fd
	}
	return i, nil
}

// Close releases the sockets.
func (i *Interface) Close() error {
	for k, fd := range i.probe {
		if fd >= 0 {
			unix.Close(fd)
			i.probe[k] = -1
		}
	}
	i.nl.Close()
	return nil
}

// Addrs returns the addresses of the interface in the order of a GID table:
// the link-local one made from the MAC address first.
func (i *Interface) Addrs() ([]netip.Addr, error) {
	link, err := i.nl.LinkByIndex(i.index)
	if err != nil {
		return nil, &Error{"addresses of", i.Name, "look it up by netlink", err}
	}
	list, err := i.nl.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, &Error{"addresses of", i.Name, "list them by netlink", err}
	}
	var addrs []netip.Addr
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP); ok && a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0 {
			addrs = append(addrs, ip.Unmap())
		}
	}
	return gidOrder(i.mac, addrs), nil
}

// Resolve finds the next hop from src to dst, asking the neighbour if the
// kernel does not know it. It gives up after three seconds or with ctx:
// ENETUNREACH when there is no route through this interface, ETIMEDOUT when
// nobody answers.
func (i *Interface) Resolve(ctx context.Context, src, dst netip.Addr) (Neighbour, error) {
	ask := netlink.RouteGetOptions{SrcAddr: src.AsSlice()}
	if dst.IsLinkLocalUnicast() {
		ask.OifIndex = i.index // for others the kernel would take "through this interface" for a route
	}
	routes, err := i.nl.RouteGetWithOptions(dst.AsSlice(), &ask)
	if err != nil || len(routes) == 0 {
		if err == nil {
			err = syscall.ENETUNREACH
		}
		return Neighbour{}, &Error{"route from", i.Name, "to " + dst.String() + " from " + src.String(), err}
	}
	r := routes[0]
	if r.LinkIndex != i.index {
		return Neighbour{}, &Error{"route from", i.Name, dst.String() + " is reached through another interface", syscall.ENETUNREACH}
	}
	n := Neighbour{HopLimit: defaultHopLimit}
	if r.Hoplimit > 0 && r.Hoplimit < 256 {
		n.HopLimit = uint8(r.Hoplimit)
	}
	hop := dst
	if gw, ok := netip.AddrFromSlice(r.Gw); ok {
		hop = gw.Unmap()
	}
	n.MAC, err = i.neighbour(ctx, hop)
	return n, err
}

// Waiting for a neighbour: how long, and how often to look.
const (
	neighbourWait = 3 * time.Second
	neighbourLook = 2 * time.Millisecond
)

// neighbour returns the Ethernet address of a host on the link.
func (i *Interface) neighbour(ctx context.Context, hop netip.Addr) (frame.MAC, error) {
	if mac, ok := i.known(hop); ok {
		return mac, nil
	}
	ctx, cancel := context.WithTimeout(ctx, neighbourWait)
	defer cancel()
	tick := time.NewTicker(neighbourLook)
	defer tick.Stop()
	var asked time.Time
	for {
		if time.Since(asked) > time.Second {
			asked = time.Now()
			i.ask(hop)
		}
		select {
		case <-ctx.Done():
			return frame.MAC{}, &Error{"neighbour of", i.Name, hop.String() + " does not answer", syscall.ETIMEDOUT}
		case <-tick.C:
		}
		if mac, ok := i.known(hop); ok {
			return mac, nil
		}
	}
}

// usable are the states in which an entry of the neighbour table has an
// address to send to.
const usable = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT | netlink.NUD_NOARP

// known looks into the kernel's neighbour table.
func (i *Interface) known(hop netip.Addr) (mac frame.MAC, ok bool) {
	family := netlink.FAMILY_V4
	if hop.Is6() {
		family = netlink.FAMILY_V6
	}
	list, err := i.nl.NeighList(i.index, family)
	if err != nil {
		return mac, false
	}
	for _, n := range list {
		if n.State&usable != 0 && len(n.HardwareAddr) == len(mac) && n.IP.Equal(net.IP(hop.AsSlice())) {
			copy(mac[:], n.HardwareAddr)
			return mac, true
		}
	}
	return mac, false
}

// ask makes the kernel look for a neighbour: it has to, to send an empty
// datagram to its discard port.
func (i *Interface) ask(hop netip.Addr) {
	if hop.Is4() {
		unix.Sendto(i.probe[0], nil, 0, &unix.SockaddrInet4{Port: 9, Addr: hop.As4()})
	} else {
		unix.Sendto(i.probe[1], nil, 0, &unix.SockaddrInet6{Port: 9, Addr: hop.As16(), ZoneId: uint32(i.index)})
	}
}
