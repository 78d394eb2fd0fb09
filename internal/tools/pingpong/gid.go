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

// GIDChoice chooses one of the own addresses: by its index, as rdma-core's programs, by the
// address itself, or any of the peer's IP version. It is a pflag.Value.
type GIDChoice struct {
	at   int // negative: any
	addr netip.Addr
}

// AnyGID chooses the first address of the peer's IP version.
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

// Type is the name of the flag's argument in help texts.
func (g *GIDChoice) Type() string { return "index" }

// index returns the index of the chosen address in the device's GID table. peer is the address
// of the other side of the exchange.
func (g GIDChoice) index(d *roce.Device, peer netip.Addr) (int, error) {
	if !g.addr.IsValid() {
		return oob.ChooseGID(d, g.at, peer)
	}
	if i := slices.Index(d.GIDs(), bth.GIDFrom(g.addr)); i >= 0 {
		return i, nil
	}
	return 0, fmt.Errorf("-g %v: not an address of the device: %w", g.addr, syscall.EADDRNOTAVAIL)
}
