//go:build !linux

package udp

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/goroce/roce/internal/hostnet"
	"github.com/goroce/roce/link"
)

// Open opens a Port. Errors are *errs.Error. A Port on an interface uses the addresses
// that the interface has at the call.
func Open(c Config) (link.Port, error) {
	if err := c.check(1); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	if c.Interface == "" {
		return openPortable(c, owner(c.Addr), []netip.Addr{c.Addr})
	}
	ifi, err := net.InterfaceByName(c.Interface)
	if err != nil {
		return nil, link.Fail("udp", "open", c.Interface, link.ErrNoDevice, err, "")
	}
	addrs, err := hostnet.AddrsOf(ifi)
	if err != nil {
		return nil, c.fail("open", err)
	}
	return openPortable(c, ifi, slices.DeleteFunc(addrs, netip.Addr.IsMulticast))
}

// OpenQueues opens one Port, because this system cannot distribute packets to several. It fails
// with link.ErrUnsupported for n above 1.
func OpenQueues(c Config, n int) ([]link.Port, error) {
	if n > 1 {
		return nil, link.Fail("udp", "open", c.name(), link.ErrUnsupported, fmt.Errorf("%d queues, this system supports only 1", n), "")
	}
	p, err := Open(c)
	if err != nil {
		return nil, err
	}
	return []link.Port{p}, nil
}
