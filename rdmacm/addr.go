package rdmacm

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"syscall"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/gsi"
	"github.com/goroce/roce/internal/inside"
)

// Bind binds an ID to an address of the host (rdma_bind_addr), and so to a device. With "0.0.0.0" or
// "::", or a loopback address that no device has, it binds to any address, and to no device yet. For
// port 0 it chooses a port.
//
// It fails with EADDRNOTAVAIL if no device has the address, or if the port is
// taken and either side is a wildcard; with EADDRINUSE if the port of this
// address is taken; with EINVAL if the ID is already bound.
func (id *ID) Bind(addr netip.AddrPort) error { return id.bind("bind", addr, netip.AddrPort{}) }

// plain removes the parts of an address that a packet does not have: the zone, and the form of
// IPv4 in IPv6.
func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

func (id *ID) bind(op string, addr, dst netip.AddrPort) error {
	addr = plain(addr)
	if !addr.Addr().IsValid() {
		return id.fail(op, syscall.EAFNOSUPPORT, "no address")
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state != idle {
		return id.stateError(op)
	}
	var dev *roce.Device
	if addr.Addr().IsLoopback() && id.host.deviceOf(addr.Addr()) == nil { // Linux: cma_any_addr
		addr = netip.AddrPortFrom(unspecified(addr.Addr()), addr.Port())
	}
	if !addr.Addr().IsUnspecified() {
		if dev = id.host.deviceOf(addr.Addr()); dev == nil {
			return id.fail(op, syscall.EADDRNOTAVAIL, "%v is not an address of a device", addr.Addr())
		}
	}
	b := &binding{key: portKey{id.ps, addr.Port()}, addr: addr.Addr(), dst: dst, afOnly: id.opts.afOnly, reuse: id.opts.reuse}
	if err := id.host.bind(b, rand.Uint64()); err != nil {
		return id.named(op, err)
	}
	id.binding, id.dev, id.local, id.state = b, dev, netip.AddrPortFrom(addr.Addr(), b.key.port), addrBound
	return nil
}

// ResolveAddr finds the route to a peer or multicast group (rdma_resolve_addr). It
// binds the ID to src, if src is valid and the ID is not yet bound, and to a device
// that reaches dst. timeout bounds the time for this; 0: the device's resolver
// decides. An unspecified destination means the host itself, and so does a loopback
// address unless a device has one.
//
// The event is AddrResolved or AddrError; after AddrError it may be called
// again. It fails with ENETUNREACH at once if no device has a source address for
// dst.
func (id *ID) ResolveAddr(ctx context.Context, src, dst netip.AddrPort, timeout time.Duration) error {
	const op = "resolve address"
	dst = plain(dst)
	if !dst.Addr().IsValid() {
		return id.fail(op, syscall.EAFNOSUPPORT, "no destination")
	}
	if err := id.prepareResolve(op, src, dst); err != nil {
		return err
	}
	s := id.snapshot()
	from := s.local.Addr()
	dst = id.host.ownAddr(dst)
	candidates, err := id.candidates(op, from, dst.Addr(), s.dev)
	if err != nil {
		id.transition(op, addrQuery, addrBound)
		return err
	}
	id.spawn(timeout, func(ctx context.Context) {
		r, err := resolve(ctx, candidates, from, dst.Addr(), 0)
		if err != nil {
			id.move(addrQuery, addrBound, failed(AddrError, id, err))
			return
		}
		id.resolved(r, dst)
	})
	return id.complete(ctx, AddrResolved, AddrError)
}

// prepareResolve binds the ID, unless it is bound, and starts the resolution.
func (id *ID) prepareResolve(op string, src, dst netip.AddrPort) error {
	if src.IsValid() || src.Addr().IsValid() {
		src = plain(src)
	} else {
		src = netip.AddrPortFrom(unspecified(dst.Addr()), 0)
	}
	if src.Addr().Is4() != dst.Addr().Is4() {
		return id.fail(op, syscall.EINVAL, "%v and %v are not of one family", src, dst)
	}
	if err := id.transition(op, addrBound, addrQuery); err == nil {
		if l := id.LocalAddr().Addr(); l.Is4() != dst.Addr().Is4() && !(l.IsUnspecified() && l.Is6()) {
			id.transition(op, addrQuery, addrBound)
			return id.fail(op, syscall.EINVAL, "bound to %v, which is not of the family of %v", l, dst)
		}
		return nil
	}
	if err := id.bind(op, src, dst); err != nil {
		return err
	}
	return id.transition(op, addrBound, addrQuery)
}

// unspecified returns the wildcard address of the family of a.
func unspecified(a netip.Addr) netip.Addr {
	if a.Is6() {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// ownAddr replaces a destination that means the host itself. Devices on the loopback reach
// devices of other processes there, so for them it does not replace a loopback address.
func (h *Host) ownAddr(dst netip.AddrPort) netip.AddrPort {
	a := dst.Addr()
	if !a.IsUnspecified() && !a.IsLoopback() {
		return dst
	}
	own := dst
	for _, d := range h.devices {
		for _, g := range d.GIDs() {
			switch {
			case g.IsZero() || g.Is4() != a.Is4() || g.IsLinkLocal():
			case a.IsLoopback() && g.Addr().IsLoopback():
				return dst
			case own == dst:
				own = netip.AddrPortFrom(g.Addr(), dst.Port())
			}
		}
	}
	return own
}

// candidates lists the devices that may reach an address, the best first: the device that the
// ID is bound to, the device that has the address, or all devices that have an address of the
// same family.
func (id *ID) candidates(op string, from, to netip.Addr, bound *roce.Device) (list []*roce.Device, err error) {
	devices := id.host.devices
	if bound != nil {
		devices = []*roce.Device{bound}
	} else if d := id.host.deviceOf(to); d != nil {
		devices = []*roce.Device{d}
	}
	for _, d := range devices {
		if _, serr := agentOf(d).Source(specific(from), to); serr == nil {
			list = append(list, d)
		} else if err == nil {
			err = serr
		}
	}
	if len(list) > 0 {
		return list, nil
	}
	if errors.Is(err, roce.ErrClosed) {
		err = syscall.ENODEV
	}
	return nil, id.fail(op, err, "no device reaches %v", to)
}

// specific returns the address, or an invalid one for a wildcard.
func specific(a netip.Addr) netip.Addr {
	if a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

// devRoute is a route with its device.
type devRoute struct {
	*gsi.Route
	dev *roce.Device
}

// agentOf returns the connection manager of a device.
func agentOf(d *roce.Device) *gsi.Agent { return inside.Agent(d) }

// resolve asks the devices in turn.
func resolve(ctx context.Context, devices []*roce.Device, from, to netip.Addr, tos uint8) (*devRoute, error) {
	var errs []error
	for _, d := range devices {
		r, err := agentOf(d).Route(ctx, specific(from), to, tos)
		if err == nil {
			return &devRoute{r, d}, nil
		}
		if errors.Is(err, context.DeadlineExceeded) {
			err = fail("resolve address", syscall.ETIMEDOUT, "%v does not answer", to)
		}
		errs = append(errs, err)
	}
	if len(errs) == 1 {
		return nil, errs[0]
	}
	return nil, errors.Join(errs...)
}

// resolved stores the route and the device in the ID.
func (id *ID) resolved(r *devRoute, dst netip.AddrPort) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state != addrQuery {
		return
	}
	id.state, id.dev, id.route, id.remote = addrResolved, r.dev, r, dst
	id.local = netip.AddrPortFrom(r.Local, id.local.Port())
	if b := id.binding; b != nil {
		id.host.update(func() { b.addr, b.dst = r.Local, dst })
	}
	id.postLocked(&Event{Type: AddrResolved, ID: id})
}

// ResolveRoute makes the ID ready to connect (rdma_resolve_route). The event is
// RouteResolved or RouteError. It fails with EINVAL before AddrResolved.
func (id *ID) ResolveRoute(ctx context.Context, timeout time.Duration) error {
	id.mu.Lock()
	if err := id.transitionLocked("resolve route", addrResolved, routeQuery); err != nil {
		id.mu.Unlock()
		return err
	}
	route, tos := id.route, id.opts.tos
	id.mu.Unlock()
	if tos == route.TrafficClass {
		id.move(routeQuery, routeResolved, &Event{Type: RouteResolved, ID: id})
		return id.complete(ctx, RouteResolved, RouteError)
	}
	id.spawn(timeout, func(ctx context.Context) {
		r, err := resolve(ctx, []*roce.Device{route.dev}, route.Local, route.Remote, tos)
		if err != nil {
			id.move(routeQuery, addrResolved, failed(RouteError, id, err))
			return
		}
		id.locked(func() { id.route = r })
		id.move(routeQuery, routeResolved, &Event{Type: RouteResolved, ID: id})
	})
	return id.complete(ctx, RouteResolved, RouteError)
}
