// Package hubdev opens devices on a wire in this process, for tools.
package hubdev

import (
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
)

// Open opens a device with one address on a hub. wrap, if it is not nil, wraps its port.
func Open(hub *mem.Hub, addr netip.Addr, c roce.Config, wrap func(link.Port) (link.Port, error)) (*roce.Device, error) {
	hubPort, err := hub.Port(addr.String(), roce.DerivedMAC(addr))
	if err != nil {
		return nil, err
	}
	var port link.Port = hubPort
	if wrap != nil {
		if port, err = wrap(hubPort); err != nil {
			hubPort.Close()
			return nil, err
		}
	}
	c.Ports, c.Addrs = []link.Port{port}, []netip.Addr{addr}
	return roce.Open(c)
}
