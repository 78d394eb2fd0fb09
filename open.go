package roce

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"time"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/hostnet"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/raw"
	"github.com/goroce/roce/xdp"
)

// InterfaceConfig says how [OpenInterface] and [OpenAddr] open a device. The zero value is a
// background device that takes over nothing but UDP port 4791.
type InterfaceConfig struct {
	// As in [Config].
	Polled     bool
	Lazy       bool
	Spin       time.Duration
	Congestion *DCQCN // nil: off
	GUID       uint64 // 0: made from the MAC address, or drawn at random with the "udp" driver
	Limits     ConnLimits

	// Driver is how packets leave and arrive, one of [InterfaceDrivers]: "raw" is
	// a packet socket (package link/raw) and works on every Ethernet interface of
	// Linux, "xdp" is AF_XDP (package xdp), "udp" is UDP sockets (package
	// link/udp), which work on every system and interface and need no privilege.
	// Empty: [DefaultDriver].
	Driver string

	// VLAN is the 802.1Q VLAN that the device is in; see [Config]. The addresses and
	// routes are those of the interface all the same: if the host has an interface for
	// the VLAN (`ip link add link eth0 type vlan`), open that, without VLAN. Not for "udp".
	VLAN uint16

	// Queues is how many ports the interface is opened with, each with a shard of
	// the device behind it. 0: one.
	Queues int

	// Raw and XDP have the options of those drivers; Interface, Addrs and VLAN
	// are filled in.
	Raw raw.Config
	XDP xdp.Config

	// Wrap, if set, puts something around each port: link/fault, link/pcap.
	Wrap func(link.Port) (link.Port, error)
}

// OpenInterface makes a device of an Ethernet interface of this host, with its
// addresses. Unless another driver is chosen it needs Linux and CAP_NET_RAW. Nothing
// else may have UDP port 4791 on the interface: with a second device there, of this or
// another program, or the kernel's rxe, it fails with EADDRINUSE. SharePort of the
// driver's config allows it.
func OpenInterface(name string, c *InterfaceConfig) (*Device, error) {
	if c == nil {
		c = &InterfaceConfig{}
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

// noAddress refuses an interface that nobody could be reached from.
func noAddress(name string) error {
	return fail("open", syscall.EADDRNOTAVAIL, "interface %s has no IP address that can be used: `ip address show dev %s` lists those it has; "+
		"one that is \"tentative\" can be in a moment, one of the loopback on \"lo\" only, by driver %q", name, name, udpDriver)
}

func openInterface(name string, host *hostnet.Interface, c *InterfaceConfig) (*Device, error) {
	addrs, err := host.Addrs()
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, noAddress(name)
	}
	ports, err := c.openPorts(name, addrs)
	if err != nil {
		return nil, err
	}
	var resolver Resolver = hostResolver{host}
	if ports[0].Info().Layout == frame.LayoutUDP {
		resolver = hostRoutes{host}
	}
	d, err := Open(Config{Ports: ports, Addrs: addrs, Resolver: resolver, Membership: host,
		VLAN: c.VLAN, GUID: c.GUID, Limits: c.Limits, Polled: c.Polled, Lazy: c.Lazy, Spin: c.Spin, Congestion: c.Congestion})
	if err != nil {
		return nil, err
	}
	if err := d.follow(host); err != nil {
		d.Close() // and the host's side
		return nil, err
	}
	return d, nil
}

// hostResolver asks the kernel for neighbours. Closing the device closes it.
type hostResolver struct{ host *hostnet.Interface }

func (h hostResolver) Resolve(ctx context.Context, src, dst netip.Addr) (Neighbour, error) {
	n, err := h.host.Resolve(ctx, src, dst)
	return Neighbour{MAC: n.MAC, Addr: n.Addr, HopLimit: n.HopLimit}, err
}

// Known and Verify are for the device that follows the host.
func (h hostResolver) Known(src, dst netip.Addr) (hostnet.Neighbour, bool, error) {
	return h.host.Known(src, dst)
}

func (h hostResolver) Verify(at netip.Addr) error { return h.host.Verify(at) }

// Source returns the address that the host would send from.
func (h hostResolver) Source(dst netip.Addr) (netip.Addr, error) { return sourceOf(h.host, dst) }

func sourceOf(host *hostnet.Interface, dst netip.Addr) (netip.Addr, error) {
	r, err := host.Route(netip.Addr{}, dst)
	return r.Src, err
}

// Close is called by Device.Close.
func (h hostResolver) Close() error { return h.host.Close() }

// hostRoutes is for links that leave Ethernet to the kernel: there only has to be
// a way.
type hostRoutes struct{ host *hostnet.Interface }

func (h hostRoutes) Resolve(_ context.Context, src, dst netip.Addr) (Neighbour, error) {
	r, err := h.host.Route(src, dst)
	return Neighbour{HopLimit: r.HopLimit}, err
}

// Source returns the address that the host would send from.
func (h hostRoutes) Source(dst netip.Addr) (netip.Addr, error) { return sourceOf(h.host, dst) }

// Close is called by Device.Close.
func (h hostRoutes) Close() error { return h.host.Close() }
