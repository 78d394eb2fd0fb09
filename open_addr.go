package roce

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/goroce/roce/link/udp"
)

// OpenAddr makes a device of one address of this host, by UDP sockets (package
// link/udp): on any system, without any privilege, on the loopback too. Devices
// on different addresses of a host reach each other, and those of other hosts as
// far as routing goes. There are no multicast groups: those are an interface's,
// see [OpenInterface].
func OpenAddr(addr netip.Addr, c *InterfaceConfig) (*Device, error) {
	if c == nil {
		c = &InterfaceConfig{}
	}
	if c.Driver != "" && c.Driver != udpDriver {
		return nil, fail("open", syscall.EINVAL, "address %v: driver %q, only %q opens an address", addr, c.Driver, udpDriver)
	}
	return openSockets(udp.Config{Addr: addr}, []netip.Addr{addr.Unmap().WithZone("")}, c)
}

// openBlind opens an interface where its changes cannot be followed: with the
// addresses it has now.
func openBlind(name string, c *InterfaceConfig) (*Device, error) {
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

// openSockets opens a device that knows nothing of an interface.
func openSockets(at udp.Config, addrs []netip.Addr, c *InterfaceConfig) (*Device, error) {
	ports, err := udp.OpenQueues(at, c.queues())
	if err != nil {
		return nil, err
	}
	if ports, err = c.wrap(ports); err != nil {
		return nil, err
	}
	return Open(Config{Ports: ports, Addrs: addrs, Resolver: anyway{}, Membership: noGroups{},
		VLAN: c.VLAN, GUID: c.GUID, Limits: c.Limits, Polled: c.Polled, Lazy: c.Lazy, Spin: c.Spin, Congestion: c.Congestion})
}

// anyway leaves it to the kernel to find the way, packet by packet.
type anyway struct{}

func (anyway) Resolve(context.Context, netip.Addr, netip.Addr) (Neighbour, error) {
	return Neighbour{}, nil
}

// noGroups cannot join any multicast group.
type noGroups struct{}

func (noGroups) Join(group netip.Addr) (func() error, error) {
	return nil, fmt.Errorf("%w: a device on an address is in no multicast group, one on an interface may be", syscall.EOPNOTSUPP)
}
