// Package nic opens the device of an example program. The programs in C find their device in ibv_get_device_list
// or by the address given to librdmacm.
package nic

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/goroce/roce"
)

// Usage describes the flag of a program whose value Open takes.
const Usage = "`address` of this host (UDP sockets, no privilege) or network interface (packet sockets, CAP_NET_RAW); empty: the address from which the host reaches the peer"

// Open opens the device that dev names: an address of this host or one of its network interfaces.
// With an empty dev it is the address from which the host reaches peer, which may be a name.
func Open(dev, peer string) (*roce.Device, error) {
	if dev == "" && peer == "" {
		return nil, fmt.Errorf("-dev is missing: a server that binds to no address needs it")
	}
	if dev == "" {
		addr, err := source(peer)
		if err != nil {
			return nil, err
		}
		return roce.OpenAddr(addr, roce.InterfaceConfig{})
	}
	if addr, err := netip.ParseAddr(dev); err == nil {
		return roce.OpenAddr(addr, roce.InterfaceConfig{})
	}
	return roce.OpenInterface(dev, roce.InterfaceConfig{})
}

// OpenInterfaceOf opens the network interface that has an address, over UDP sockets. A program joins multicast
// groups on an interface: a device that Open opens by its address has none.
func OpenInterfaceOf(addr netip.Addr) (*roce.Device, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", i.Name, err)
		}
		for _, a := range addrs {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr() == addr {
				return roce.OpenInterface(i.Name, roce.InterfaceConfig{Driver: "udp"})
			}
		}
	}
	return nil, fmt.Errorf("no network interface has the address %v", addr)
}

// OpenInterfaceToward is OpenInterfaceOf for the address from which the host reaches another one.
func OpenInterfaceToward(dst netip.Addr) (*roce.Device, error) {
	addr, err := source(dst.String())
	if err != nil {
		return nil, err
	}
	return OpenInterfaceOf(addr)
}

// source returns the address from which the host reaches a peer. No packet is sent: the kernel
// chooses the source address of a UDP socket when the socket is connected.
func source(peer string) (netip.Addr, error) {
	c, err := net.Dial("udp", net.JoinHostPort(peer, "4791"))
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}
