package pingpong

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/oob"
)

// GIDChoice says which of the own addresses to use: the one with an index, as
// rdma-core's programs want it, or a certain one, or any that suits the peer. It is
// a flag.Value.
type GIDChoice struct {
	at   int // negative: any
	addr netip.Addr
}

// AnyGID is one that suits the peer.
var AnyGID = GIDChoice{at: -1}

// Set reads an index, or -1 for any, or an address.
func (g *GIDChoice) Set(s string) error {
	if n, err := strconv.Atoi(s); err == nil {
		*g = GIDChoice{at: n}
		return nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return fmt.Errorf("%q is neither an index nor an address", s)
	}
	*g = GIDChoice{addr: a.Unmap().WithZone("")}
	return nil
}

// String returns what Set reads.
func (g *GIDChoice) String() string {
	if g.addr.IsValid() {
		return g.addr.String()
	}
	return strconv.Itoa(g.at)
}

// Type is shown in help.
func (g *GIDChoice) Type() string { return "index" }

// index finds the address in the device's table. peer is where the other side is
// reached at by TCP.
func (g GIDChoice) index(d *roce.Device, peer netip.Addr) (int, error) {
	if !g.addr.IsValid() {
		return oob.ChooseGID(d, g.at, peer)
	}
	if i := slices.Index(d.GIDs(), bth.GIDFrom(g.addr)); i >= 0 {
		return i, nil
	}
	return 0, fmt.Errorf("the device does not have the address %v: %w", g.addr, syscall.EADDRNOTAVAIL)
}
