// Package hostnet asks the host's kernel about its network: the addresses of an interface, the route to a peer, the
// peer's Ethernet address. The kernel does ARP and neighbour discovery; this package starts it and reads the result.
// It works on Linux, and fails with [ErrUnsupported] elsewhere.
package hostnet

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/goroce/roce/bth/frame"
)

// ErrUnsupported says that the package cannot ask this system.
var ErrUnsupported = fmt.Errorf("hostnet: %w", errors.ErrUnsupported)

// State has the properties of an interface that may change while it exists.
type State struct {
	Name string
	MAC  frame.MAC
	MTU  int  // of L3 packets
	Up   bool // up, and with a carrier
}

// Route is the kernel's route to an address.
type Route struct {
	Src      netip.Addr // the requested source address, or the kernel's choice
	NextHop  netip.Addr // the gateway, or the destination itself
	HopLimit uint8      // TTL or hop limit
}

// Neighbour is the next hop towards a peer.
type Neighbour struct {
	Addr     netip.Addr // the gateway, or the peer itself; the group, if it is one
	MAC      frame.MAC
	HopLimit uint8
}

// defaultHopLimit is the hop limit of Linux if the route sets none.
const defaultHopLimit = 64

// gidOrder sorts addresses as Linux orders the GID table of a port: first the link-local address made from the MAC
// address, then the others as they were added. It leaves out unusable addresses. Loopback addresses are usable only
// on the loopback interface.
func gidOrder(mac frame.MAC, addrs []netip.Addr, loopback bool) []netip.Addr {
	first := frame.DefaultGID(mac).Addr()
	var out []netip.Addr
	for _, a := range addrs {
		if a == first {
			out = append([]netip.Addr{a}, out...)
		} else if a.IsGlobalUnicast() || a.IsLinkLocalUnicast() || loopback && a.IsLoopback() {
			out = append(out, a)
		}
	}
	return out
}
