package hostnet

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

// Route returns the kernel's route from src to dst. If src is not valid, the kernel chooses the source. The error is
// ENETUNREACH, EHOSTUNREACH or similar if there is no route through this interface.
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
	// If a request names an interface, the kernel treats an address without a route as on the link. So name the
	// interface only for addresses that are on the link.
	ask := netlink.RouteGetOptions{SrcAddr: src.AsSlice()}
	if dst.IsLinkLocalUnicast() || dst.IsMulticast() {
		ask.OifIndex = i.index
	}
	var routes []netlink.Route
	var err error
	i.deep(func() { routes, err = i.nl.RouteGetWithOptions(dst.AsSlice(), &ask) })
	if err == nil && len(routes) == 0 {
		err = syscall.ENETUNREACH
	}
	if err != nil {
		return Route{}, i.fail("look up route", detail+refusal(err), err)
	}
	r := routes[0]
	switch {
	case r.Type == unix.RTN_LOCAL && !i.loopback:
		return Route{}, i.fail("look up route", detail+": the host itself has the address", syscall.ENETUNREACH)
	case r.LinkIndex != i.index:
		return Route{}, i.fail("look up route", detail+": it is reached through another interface", syscall.ENETUNREACH)
	}
	out := Route{Src: src, NextHop: dst, HopLimit: defaultHopLimit}
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

// refusal explains the errno of a route lookup; "": the errno is clear. The kernel returns the errno with which sending
// would fail.
func refusal(err error) string {
	switch err {
	case syscall.EACCES:
		return ": prohibited by a route of this host"
	case syscall.EINVAL:
		return ": dropped by a blackhole route of this host, or the source is not an address of it"
	case syscall.EHOSTUNREACH:
		return ": unreachable by a route of this host"
	}
	return ""
}

// Resolve finds the next hop from src to dst. If the kernel does not know the neighbour, Resolve makes it ask. It fails
// when the kernel gives up, after about three seconds, or when ctx ends: ENETUNREACH if there is no route through this
// interface, ETIMEDOUT if there is no answer. A multicast group needs no request.
func (i *Interface) Resolve(ctx context.Context, src, dst netip.Addr) (Neighbour, error) {
	if mac, ok := frame.MulticastMAC(bth.GIDFrom(dst)); ok {
		return Neighbour{Addr: dst, MAC: mac, HopLimit: defaultHopLimit}, nil
	}
	r, err := i.Route(src, dst)
	if err != nil {
		return Neighbour{}, err
	}
	mac, err := i.neighbour(ctx, r.NextHop)
	return Neighbour{Addr: r.NextHop, MAC: mac, HopLimit: r.HopLimit}, err
}

// Known is Resolve without a request to the neighbour. usable is false if the kernel knows the route but not the
// neighbour's Ethernet address.
func (i *Interface) Known(src, dst netip.Addr) (n Neighbour, usable bool, err error) {
	r, err := i.Route(src, dst)
	if err != nil {
		return Neighbour{}, false, err
	}
	n = Neighbour{Addr: r.NextHop, HopLimit: r.HopLimit}
	e, err := i.known(r.NextHop)
	if err != nil {
		return n, false, i.fail("look up neighbour", "look up "+r.NextHop.String()+" by netlink", err)
	}
	n.MAC = e.mac
	return n, e.usable() && !e.alien, nil
}

// How long to wait for a neighbour, and how often to poll the kernel. The kernel asks three times, a second apart, and
// then gives up.
const (
	neighbourWait  = 5 * time.Second
	neighbourFirst = 100 * time.Microsecond // then twice as long each time
	neighbourLook  = 20 * time.Millisecond  // up to this
	neighbourAgain = 250 * time.Millisecond // pause before a repeated request, if the kernel has forgotten the first

	// Each of many waiting callers polls less often: a stranger that makes a server look for
	// neighbours that do not exist must neither keep a core busy nor delay other callers.
	neighbourFirstShare = 20 * time.Microsecond
	neighbourShare      = time.Millisecond
)

// nextLook returns the pause before the next poll for a neighbour. pause is the previous one, 0 if there was none;
// waiting is the number of waiting calls.
func nextLook(pause time.Duration, waiting int) time.Duration {
	n := time.Duration(waiting)
	if pause == 0 {
		return max(neighbourFirst, n*neighbourFirstShare)
	}
	return min(2*pause, max(neighbourLook, n*neighbourShare))
}

// neighbour returns the Ethernet address of a host on the link.
func (i *Interface) neighbour(ctx context.Context, hop netip.Addr) (frame.MAC, error) {
	const op = "neighbour of"
	ctx, cancel := context.WithTimeout(ctx, neighbourWait)
	defer cancel()
	asked, silent := false, hop.String()+" does not answer"
	var askedAt time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	i.waiting.Add(1)
	defer i.waiting.Add(-1)
	for pause := time.Duration(0); ; {
		e, err := i.known(hop)
		switch {
		case err != nil:
			return e.mac, i.fail(op, "look up "+hop.String()+" by netlink", err)
		case e.usable() && e.alien:
			return e.mac, i.fail(op, "the address of "+hop.String()+" is not Ethernet", syscall.EPROTONOSUPPORT)
		case e.usable():
			if e.state == unix.NUD_STALE {
				// Use the entry now. Meanwhile the kernel verifies it, and finds a neighbour that has moved.
				i.ask(hop)
			}
			return e.mac, nil
		case asked && e.state == unix.NUD_FAILED:
			return e.mac, i.fail(op, silent, syscall.ETIMEDOUT)
		case !asked || e.state == unix.NUD_NONE && time.Since(askedAt) > neighbourAgain:
			// When the carrier is lost, for instance while an XDP program is attached, the kernel forgets the neighbour
			// that it was looking for.
			asked, askedAt = true, time.Now()
			if err := i.ask(hop); err != nil {
				// A firewall is the usual reason. The kernel may still learn the neighbour from other traffic.
				silent = hop.String() + " is not known, and this program may not look for it (" + err.Error() + "): let UDP port 4791 out, or give it CAP_NET_ADMIN"
			}
		}
		pause = nextLook(pause, int(i.waiting.Load()))
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return frame.MAC{}, i.fail(op, silent, fmt.Errorf("%w: %w", syscall.ETIMEDOUT, ctx.Err()))
		}
	}
}
