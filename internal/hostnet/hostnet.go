// Package hostnet asks the host's kernel about its network: the addresses of
// an interface, the route to a peer, the peer's Ethernet address. The kernel
// does the ARP and neighbour discovery; this package only makes it do so and
// reads the result. It exists on Linux and fails with [ErrUnsupported]
// elsewhere.
package hostnet

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/goroce/roce/bth/frame"
)

// ErrUnsupported says that this system's network cannot be asked.
var ErrUnsupported = fmt.Errorf("hostnet: %w", errors.ErrUnsupported)

// State is what may change about an interface while it exists.
type State struct {
	Name string
	MAC  frame.MAC
	MTU  int  // of L3 packets
	Up   bool // up, and with a carrier
}

// Route is how the kernel would send to an address.
type Route struct {
	Src      netip.Addr // the source address it prefers, or the one asked for
	NextHop  netip.Addr // the gateway, or the destination itself
	HopLimit uint8      // TTL or hop limit
}

// Neighbour is the next hop towards a peer.
type Neighbour struct {
	Addr     netip.Addr // the gateway, or the peer itself; the group, if it is one
	MAC      frame.MAC
	HopLimit uint8
}

// defaultHopLimit is what Linux sends when the route says nothing.
const defaultHopLimit = 64

// gidOrder sorts addresses as Linux orders the GID table of a port: the
// link-local address made from the MAC address first, then the others as they
// were added. Unusable addresses are left out; those of the loopback are usable on
// the loopback interface.
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
