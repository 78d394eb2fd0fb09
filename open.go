package roce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/hostnet"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/raw"
	"github.com/goroce/roce/link/udp"
	"github.com/goroce/roce/xdp"
)

// InterfaceConfig configures [OpenInterface] and [OpenAddr]. The zero value opens a device
// with one port and a background goroutine. On Linux, with drivers "udp" and "raw", other
// processes of the same user can use the interface or address, too.
type InterfaceConfig struct {
	Options

	// Driver sends and receives the packets. It is one of [InterfaceDrivers]:
	// "raw" is a packet socket (package link/raw) and works on every Ethernet
	// interface of Linux, "xdp" is AF_XDP (package xdp), "udp" is UDP sockets
	// (package link/udp), which work on every system and interface and need no
	// privilege. Empty: [DefaultDriver].
	Driver string

	// Queues is the number of ports, each with a shard of the device. 0: one.
	Queues int

	// Raw and XDP have the options of those drivers; OpenInterface sets
	// Interface, Addrs, VLAN and Shared.
	Raw raw.Config
	XDP xdp.Config

	// Exclusive reserves the interface or address for this device: other processes, and other
	// devices of this process, cannot open it meanwhile. Otherwise processes of the same user
	// share it automatically where this is possible: on Linux, with the drivers "udp" and
	// "raw". See docs/sharing.md.
	Exclusive bool

	// Wrap, if set, wraps each port, for instance with link/fault or
	// link/pcap.
	Wrap func(link.Port) (link.Port, error)
}

// OpenInterface opens a device on an Ethernet interface of this host, with the addresses of the
// interface. The default driver needs Linux and CAP_NET_RAW. Processes of one user share an
// interface that they open with the same driver, "raw" or "udp": see docs/sharing.md, and
// InterfaceConfig.Exclusive. Otherwise nothing else may use UDP port 4791 on the interface: if
// there is another device, or the kernel's rxe, it fails with EADDRINUSE, unless SharePort of
// the driver's config is set.
func OpenInterface(name string, c InterfaceConfig) (*Device, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	host, err := hostnet.Open(name)
	if errors.Is(err, hostnet.ErrUnsupported) && c.Driver == udpDriver {
		return openBlind(name, c)
	}
	if err != nil {
		return nil, err
	}
	d, err := openInterface(name, host, c)
	if err != nil {
		host.Close()
	}
	return d, err
}

// noAddress refuses an interface without an address.
func noAddress(name string) error {
	return fail("open", syscall.EADDRNOTAVAIL, "interface %s has no IP address that can be used: `ip address show dev %s` lists its addresses; "+
		"wait if an address is \"tentative\"; loopback addresses work on \"lo\" only, with driver %q", name, name, udpDriver)
}

func openInterface(name string, host *hostnet.Interface, c InterfaceConfig) (*Device, error) {
	addrs, err := host.Addrs()
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, noAddress(name)
	}
	ports, at, err := c.openPorts(name, addrs)
	if err != nil {
		return nil, err
	}
	o := c.Options
	o.Membership = cmp.Or[Membership](o.Membership, host)
	sockets := ports[0].Info().Layout == frame.LayoutUDP
	switch r := (hostRoutes{host}); {
	case c.Resolver != nil:
		o.Resolver = ownResolver{r, c.Resolver, sockets}
	case sockets:
		o.Resolver = r
	default:
		o.Resolver = hostResolver{r}
	}
	config := Config{Options: o, Ports: ports, Addrs: addrs, presence: at}
	if sockets {
		config.hasRoute = host.HasRoute
	}
	d, err := Open(config)
	if err != nil {
		return nil, err
	}
	neighbours, _ := o.Resolver.(route.Host)                  // nil: the device does not follow the host's neighbours
	changed := func(addrs []netip.Addr) { d.SetAddrs(addrs) } // an error: the device is closed
	if err := d.nic.Follow(host, neighbours, changed); err != nil {
		d.Close() // closes host, too
		return nil, err
	}
	return d, nil
}

// hostRoutes asks the kernel for routes, for links whose Ethernet headers the kernel writes.
// Device.Close closes it, and with it the monitor of the host.
type hostRoutes struct{ host *hostnet.Interface }

// Resolve succeeds if there is a route, and the kernel sends packets from src.
func (h hostRoutes) Resolve(ctx context.Context, src, dst netip.Addr) (Neighbour, error) {
	if err := h.host.Settle(ctx, src); err != nil {
		return Neighbour{}, err
	}
	r, err := h.host.Route(src, dst)
	return Neighbour{HopLimit: r.HopLimit}, err
}

// Source returns the source address that the host would use.
func (h hostRoutes) Source(dst netip.Addr) (netip.Addr, error) {
	r, err := h.host.Route(netip.Addr{}, dst)
	return r.Src, err
}

// Close is called by Device.Close.
func (h hostRoutes) Close() error { return h.host.Close() }

// hostResolver asks the kernel for neighbours, too.
type hostResolver struct{ hostRoutes }

func (h hostResolver) Resolve(ctx context.Context, src, dst netip.Addr) (Neighbour, error) {
	n, err := h.host.Resolve(ctx, src, dst)
	return Neighbour{MAC: n.MAC, Addr: n.Addr, HopLimit: n.HopLimit}, err
}

// Known and Verify implement [route.Host], for a device that follows the
// host's neighbours.
func (h hostResolver) Known(src, dst netip.Addr) (hostnet.Neighbour, bool, error) {
	return h.host.Known(src, dst)
}

func (h hostResolver) Verify(at netip.Addr) error { return h.host.Verify(at) }

// ownResolver asks the program's resolver for neighbours.
type ownResolver struct {
	hostRoutes
	own     Resolver
	sockets bool // the kernel sends the packets
}

func (o ownResolver) Resolve(ctx context.Context, src, dst netip.Addr) (Neighbour, error) {
	if o.sockets {
		if err := o.host.Settle(ctx, src); err != nil {
			return Neighbour{}, err
		}
	}
	return o.own.Resolve(ctx, src, dst)
}

func (o ownResolver) Close() error {
	if c, ok := o.own.(io.Closer); ok {
		return errors.Join(c.Close(), o.hostRoutes.Close())
	}
	return o.hostRoutes.Close()
}

// opener opens the ports of a device on an interface with some addresses.
type opener func(name string, addrs []netip.Addr, c InterfaceConfig) ([]link.Port, error)

// drivers are the values of InterfaceConfig.Driver.
var drivers = map[string]opener{
	"raw": func(name string, _ []netip.Addr, c InterfaceConfig) ([]link.Port, error) {
		r := c.Raw
		r.Interface, r.VLAN, r.Shared = name, c.VLAN, !c.Exclusive
		return raw.OpenQueues(r, c.Queues)
	},
	udpDriver: func(name string, _ []netip.Addr, c InterfaceConfig) ([]link.Port, error) {
		return udp.OpenQueues(udp.Config{Interface: name, Shared: !c.Exclusive}, c.Queues)
	},
	"xdp": func(name string, addrs []netip.Addr, c InterfaceConfig) ([]link.Port, error) {
		x := c.XDP
		x.Interface, x.Addrs, x.VLAN = name, addrs, c.VLAN
		return xdp.OpenQueues(x, c.Queues)
	},
}

// udpDriver is the one that needs no interface: see [OpenAddr].
const udpDriver = "udp"

// DefaultDriver is the driver of an InterfaceConfig without a Driver.
const DefaultDriver = "raw"

// InterfaceDrivers returns the possible values of InterfaceConfig.Driver,
// sorted.
func InterfaceDrivers() []string { return slices.Sorted(maps.Keys(drivers)) }

// complete fills in the defaults.
func (c *InterfaceConfig) complete() error {
	c.Driver, c.Queues = cmp.Or(c.Driver, DefaultDriver), cmp.Or(c.Queues, 1)
	if drivers[c.Driver] == nil {
		return fail("open", syscall.EINVAL, "no driver %q, there are %s", c.Driver, strings.Join(InterfaceDrivers(), ", "))
	}
	if c.Queues < 0 {
		return fail("open", syscall.EINVAL, "%d queues, need at least 1, or 0 for 1", c.Queues)
	}
	return nil
}

// openPorts opens the ports of the chosen driver, and wraps each by c.Wrap.
func (c InterfaceConfig) openPorts(name string, addrs []netip.Addr) ([]link.Port, share.Presence, error) {
	ports, err := drivers[c.Driver](name, addrs, c)
	if err != nil {
		return nil, share.Presence{}, err
	}
	return c.wrap(ports)
}

// wrap wraps each port by c.Wrap. If that fails, it closes all ports. It also returns the presence
// of the device on the address, which it reads before wrapping, because a wrapper may hide it.
func (c InterfaceConfig) wrap(ports []link.Port) ([]link.Port, share.Presence, error) {
	at := share.Of(ports[0])
	if c.Wrap == nil {
		return ports, at, nil
	}
	for i, p := range ports {
		wrapped, err := c.Wrap(p)
		if err != nil {
			for _, p := range ports {
				p.Close()
			}
			return nil, at, err
		}
		ports[i] = wrapped
	}
	return ports, at, nil
}

// OpenAddr opens a device on one address of this host, by UDP sockets (package link/udp): on
// any system, without privilege, also on the loopback. Devices on different addresses of a
// host reach each other, and devices of other hosts if there is a route. On Linux processes
// of one user share an address: see docs/sharing.md. It has no multicast groups, because
// they belong to an interface: see [OpenInterface].
func OpenAddr(addr netip.Addr, c InterfaceConfig) (*Device, error) {
	c.Driver = cmp.Or(c.Driver, udpDriver)
	if err := c.complete(); err != nil {
		return nil, err
	}
	if c.Driver != udpDriver {
		return nil, fail("open", syscall.EINVAL, "address %v: driver %q, only %q opens an address", addr, c.Driver, udpDriver)
	}
	return openSockets(udp.Config{Addr: addr, Shared: !c.Exclusive}, []netip.Addr{addr.Unmap().WithZone("")}, c)
}

// openBlind opens an interface on a system that does not report changes, with
// the current addresses.
func openBlind(name string, c InterfaceConfig) (*Device, error) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fail("open", fmt.Errorf("%w: %w", ErrNoDevice, syscall.ENODEV), "interface %s: %v", name, err)
	}
	list, err := ifi.Addrs()
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsMulticast() {
			addrs = append(addrs, p.Addr().Unmap().WithZone(""))
		}
	}
	if len(addrs) == 0 {
		return nil, noAddress(name)
	}
	return openSockets(udp.Config{Interface: name}, addrs, c)
}

// openSockets opens a device on UDP sockets, without an interface.
func openSockets(at udp.Config, addrs []netip.Addr, c InterfaceConfig) (*Device, error) {
	ports, err := udp.OpenQueues(at, c.Queues)
	if err != nil {
		return nil, err
	}
	ports, presence, err := c.wrap(ports)
	if err != nil {
		return nil, err
	}
	c.Resolver, c.Membership = cmp.Or[Resolver](c.Resolver, noResolver{}), cmp.Or[Membership](c.Membership, noGroups{})
	return Open(Config{Options: c.Options, Ports: ports, Addrs: addrs, presence: presence})
}

// noResolver accepts every destination: the kernel routes each packet.
type noResolver struct{}

func (noResolver) Resolve(context.Context, netip.Addr, netip.Addr) (Neighbour, error) {
	return Neighbour{}, nil
}

// noGroups cannot join any multicast group.
type noGroups struct{}

func (noGroups) Join(group netip.Addr) (func() error, error) {
	return nil, errs.New("join", syscall.EOPNOTSUPP, "a device on an address cannot join a multicast group; open a device on an interface")
}
