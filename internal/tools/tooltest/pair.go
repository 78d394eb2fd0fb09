// Package tooltest has helpers for the tests of the tools: two devices on one wire, servers, and hostile peers.
package tooltest

import (
	"net/netip"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/mem"
)

// Addresses of the devices of Pair.
const (
	Server4 = "10.77.0.1"
	Client4 = "10.77.0.2"
	Server6 = "fd77::1"
	Client6 = "fd77::2"
)

// Pair opens two devices with IPv4 and IPv6 addresses. The faults f are injected at both ports.
func Pair(t testing.TB, f fault.Config) (server, client *roce.Device) {
	t.Helper()
	return PairWith(t, f, roce.Options{})
}

// PairWith is Pair with options for the devices. It sets the Resolver of the options.
func PairWith(t testing.TB, f fault.Config, o roce.Options) (server, client *roce.Device) {
	t.Helper()
	o.Resolver = sameCard()
	hub := mem.NewHub(mem.Config{})
	open := func(name string, addrs ...string) *roce.Device {
		var ips []netip.Addr
		for _, a := range addrs {
			ips = append(ips, netip.MustParseAddr(a))
		}
		port, err := hub.Port(name, roce.DerivedMAC(ips[0]))
		if err != nil {
			t.Fatal(err)
		}
		wrapped, err := fault.Wrap(port, f)
		if err != nil {
			t.Fatal(err)
		}
		d, err := roce.Open(roce.Config{Ports: []link.Port{wrapped}, Addrs: ips, Options: o})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	return open("server", Server4, Server6), open("client", Client4, Client6)
}

// sameCard resolves the addresses of Pair: both addresses of a device have one MAC address.
func sameCard() roce.Neighbours {
	n := roce.Neighbours{}
	for _, pair := range [][2]string{{Server4, Server6}, {Client4, Client6}} {
		mac := roce.DerivedMAC(netip.MustParseAddr(pair[0]))
		n[netip.MustParseAddr(pair[0])], n[netip.MustParseAddr(pair[1])] = mac, mac
	}
	return n
}
