package demo

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/hubdev"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
)

// The values of Config.Link: the kind of wire between the two NICs.
const (
	LinkMem = "mem" // a wire in this process
	LinkUDP = "udp" // UDP sockets on the loopback interface
)

// Links returns the values of Config.Link.
func Links() []string { return slices.Sorted(maps.Keys(wires)) }

// wires has functions that open the client and the server. They wrap the client's port with wrap.
var wires = map[string]func(wrap func(link.Port) (link.Port, error)) (client, server *roce.Device, err error){
	LinkMem: openMem,
	LinkUDP: openUDP,
}

const servicePort = 4791

func openMem(wrap func(link.Port) (link.Port, error)) (client, server *roce.Device, err error) {
	hub := mem.NewHub(mem.Config{})
	if server, err = hubdev.Open(hub, netip.MustParseAddr("10.0.0.2"), roce.Config{}, nil); err != nil {
		return nil, nil, err
	}
	if client, err = hubdev.Open(hub, netip.MustParseAddr("10.0.0.1"), roce.Config{}, wrap); err != nil {
		server.Close()
	}
	return client, server, err
}

// openUDP opens the NICs on the first two free addresses of the host.
func openUDP(wrap func(link.Port) (link.Port, error)) (client, server *roce.Device, err error) {
	for _, a := range addresses() {
		if server, err = roce.OpenAddr(a[1], roce.InterfaceConfig{Wrap: asEthernet}); err == nil {
			if client, err = roce.OpenAddr(a[0], roce.InterfaceConfig{Wrap: func(p link.Port) (link.Port, error) {
				p, _ = asEthernet(p)
				return wrap(p)
			}}); err == nil {
				return client, server, nil
			}
			server.Close()
		}
		if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EADDRNOTAVAIL) {
			break
		}
	}
	return nil, nil, fmt.Errorf("demo: no two free addresses on this host: %w", err)
}

// asEthernet limits the MTU of a port to that of Ethernet, so that a message also has several packets on the loopback
// interface.
func asEthernet(p link.Port) (link.Port, error) { return ethernet{p}, nil }

type ethernet struct{ link.Port }

func (e ethernet) Info() link.Info {
	i := e.Port.Info()
	i.MTU = min(i.MTU, 1500)
	return i
}

// addresses returns pairs of addresses to try: two of the loopback network, all of which Linux has,
// then one of that network and another one of the host.
func addresses() (pairs [][2]netip.Addr) {
	for last := byte(1); last < 32; last += 2 {
		pairs = append(pairs, [2]netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, last}), netip.AddrFrom4([4]byte{127, 0, 0, last + 1})})
	}
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() {
			pairs = append(pairs, [2]netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), p.Addr()})
		}
	}
	return pairs
}
