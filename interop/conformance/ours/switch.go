//go:build linux

package ours

import (
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
)

// Switch joins devices in this process.
type Switch struct {
	hub  *mem.Hub
	macs roce.Neighbours
}

// NewSwitch returns a switch with an MTU that makes the path MTU 1024, as on Ethernet.
func NewSwitch() *Switch {
	return &Switch{hub: mem.NewHub(mem.Config{MTU: 1500}), macs: roce.Neighbours{}}
}

// Open opens a device at the switch, with two addresses that end with last. wrap, if it is not nil, wraps its port.
func (s *Switch) Open(last byte, wrap func(link.Port) (link.Port, error)) (verbs.Node, error) {
	a, b := netip.AddrFrom4([4]byte{10, 0, 0, last}), netip.AddrFrom4([4]byte{10, 0, 1, last})
	s.macs[a], s.macs[b] = roce.DerivedMAC(a), roce.DerivedMAC(a)
	var port link.Port
	port, err := s.hub.Port(a.String(), s.macs[a])
	if err == nil && wrap != nil {
		port, err = wrap(port)
	}
	if err != nil {
		return nil, err
	}
	return Open(roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: []netip.Addr{a, b}, Options: roce.Options{Resolver: s.macs}}))
}
