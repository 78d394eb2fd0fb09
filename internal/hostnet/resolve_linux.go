package hostnet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

// Route returns how the kernel would send from src to dst; from the source it
// prefers if src is not valid. The error is ENETUNREACH, EHOSTUNREACH or the
// like when there is no route, or none through this interface.
func (i *Interface) Route(src, dst netip.Addr) (Route, error) {
	if err := i.lock("route from"); err != nil {
		return Route{}, err
	}
	defer i.mu.Unlock()
	src, dst = src.Unmap(), dst.Unmap()
	detail := "to " + dst.String()
	if src.IsValid() {
		detail += " from " + src.String()
	}
	// With an interface given, the kernel takes an address it has no route to
	// for one on the link: only where that is right it is given.
	ask := netlink.RouteGetOptions{SrcAddr: src.AsSlice()}
	if dst.IsLinkLocalUnicast() || dst.IsMulticast() {
		ask.OifIndex = i.index
	}
	routes, err := i.nl.RouteGetWithOptions(dst.AsSlice(), &ask)
	if err == nil && len(routes) == 0 {
		err = syscall.ENETUNREACH
	}
	if err != nil {
		return Route{}, i.fail("route from", detail, err)
	}
	r := routes[0]
	switch {
	case r.Type == unix.RTN_LOCAL:
		return Route{}, i.fail("route from", detail+": the host itself has the address", syscall.ENETUNREACH)
	case r.LinkIndex != i.index:
		return Route{}, i.fail("route from", detail+": it is reached through another interface", syscall.ENETUNREACH)
	}
	out := Route{Src: src, NextHop: dst, HopLimit: defaultHopLimit, MTU: r.MTU}
	if r.Hoplimit > 0 && r.Hoplimit < 256 {
		out.HopLimit = uint8(r.Hoplimit)
	}
	if a, ok := netip.AddrFromSlice(r.Src); ok && !src.IsValid() {
		out.Src = a.Unmap()
	}
	if gw, ok := netip.AddrFromSlice(r.Gw); ok {
		out.NextHop = gw.Unmap()
	} else if via, ok := r.Via.(*netlink.Via); ok { // an IPv6 gateway of an IPv4 route
		if gw, ok := netip.AddrFromSlice(via.Addr); ok {
			out.NextHop = gw.Unmap()
		}
	}
	return out, nil
}

// Resolve finds the next hop from src to dst, asking the neighbour if the
// kernel does not know it. It gives up when the kernel does, after about three
// seconds, or with ctx: ENETUNREACH when there is no route through this
// interface, ETIMEDOUT when nobody answers. A multicast group needs no asking.
func (i *Interface) Resolve(ctx context.Context, src, dst netip.Addr) (Neighbour, error) {
	if mac, ok := frame.MulticastMAC(bth.GIDFrom(dst)); ok {
		return Neighbour{MAC: mac, HopLimit: defaultHopLimit}, nil
	}
	r, err := i.Route(src, dst)
	if err != nil {
		return Neighbour{}, err
	}
	mac, err := i.neighbour(ctx, r.NextHop)
	return Neighbour{MAC: mac, HopLimit: r.HopLimit}, err
}

// Waiting for a neighbour: how long, and how often to look. The kernel asks
// three times, a second apart, and then gives up itself.
const (
	neighbourWait  = 5 * time.Second
	neighbourFirst = 100 * time.Microsecond // then twice as long each time
	neighbourLook  = 20 * time.Millisecond  // up to this
)

// usable are the states in which an entry of the neighbour table has an
// address to send to.
const usable = netlink.NUD_REACHABLE | netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE | netlink.NUD_PERMANENT | netlink.NUD_NOARP

// neighbour returns the Ethernet address of a host on the link.
func (i *Interface) neighbour(ctx context.Context, hop netip.Addr) (frame.MAC, error) {
	const op = "neighbour of"
	ctx, cancel := context.WithTimeout(ctx, neighbourWait)
	defer cancel()
	asked := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause := neighbourFirst; ; pause = min(2*pause, neighbourLook) {
		mac, state, err := i.known(hop)
		switch {
		case err != nil:
			return mac, i.fail(op, "look up "+hop.String()+" by netlink", err)
		case state&usable != 0:
			if state == netlink.NUD_STALE {
				// Good enough to begin with. The kernel verifies it meanwhile,
				// so that a neighbour that has moved does not stay lost.
				i.ask(hop)
			}
			return mac, nil
		case asked && state == netlink.NUD_FAILED:
			return mac, i.fail(op, hop.String()+" does not answer", syscall.ETIMEDOUT)
		case !asked:
			asked = true
			if err := i.ask(hop); err != nil {
				return mac, i.fail(op, "look for "+hop.String()+" by a datagram to its discard port", err)
			}
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return mac, i.fail(op, hop.String()+" does not answer", fmt.Errorf("%w: %w", syscall.ETIMEDOUT, ctx.Err()))
		}
	}
}

// known looks into the kernel's neighbour table.
func (i *Interface) known(hop netip.Addr) (mac frame.MAC, state int, err error) {
	if err := i.lock("neighbour of"); err != nil {
		return mac, 0, err
	}
	defer i.mu.Unlock()
	family := netlink.FAMILY_V4
	if hop.Is6() {
		family = netlink.FAMILY_V6
	}
	var list []netlink.Neigh
	if err := again(func() error {
		list, err = i.nl.NeighList(i.index, family)
		return err
	}); err != nil {
		return mac, 0, err
	}
	for _, n := range list {
		if !n.IP.Equal(net.IP(hop.AsSlice())) {
			continue
		}
		if n.State&usable != 0 && len(n.HardwareAddr) != len(mac) {
			return mac, 0, fmt.Errorf("its address %q is not Ethernet: %w", n.HardwareAddr, syscall.EPROTONOSUPPORT)
		}
		copy(mac[:], n.HardwareAddr)
		return mac, n.State, nil
	}
	return mac, netlink.NUD_NONE, nil
}

// ask makes the kernel look for a neighbour: it has to, to send an empty
// datagram to its discard port. This needs no privilege, unlike asking by
// netlink.
func (i *Interface) ask(hop netip.Addr) error {
	if err := i.lock("neighbour of"); err != nil {
		return err
	}
	defer i.mu.Unlock()
	fd, err := i.socket(hop)
	if err != nil {
		return err
	}
	const discard = 9
	var to unix.Sockaddr = &unix.SockaddrInet6{Port: discard, Addr: hop.As16(), ZoneId: uint32(i.index)}
	if hop.Is4() {
		to = &unix.SockaddrInet4{Port: discard, Addr: hop.As4()}
	}
	if err := unix.Sendto(fd, nil, 0, to); err != nil && err != unix.EAGAIN && err != unix.ENOBUFS {
		return err
	}
	return nil
}
