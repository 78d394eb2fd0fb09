package hostnet

import "net/netip"

// Change lists what may have changed about an interface, its routes and its neighbours.
type Change struct {
	Interface  bool // its state or its addresses
	Routes     bool // routes of the host, not necessarily through it
	Neighbours map[netip.Addr]struct{}

	// All says that anything may have changed, because there were too many changes to list. Interface and Routes are
	// set, too.
	All bool
}

// maxNeighbours is how many neighbours one Change lists. With more it sets All.
const maxNeighbours = 1024

func (c *Change) neighbour(a netip.Addr) {
	if c.Neighbours == nil {
		c.Neighbours = make(map[netip.Addr]struct{})
	}
	if c.Neighbours[a] = struct{}{}; len(c.Neighbours) > maxNeighbours {
		c.everything()
	}
}

func (c *Change) everything() { *c = Change{Interface: true, Routes: true, All: true} }

// some reports whether there is any change.
func (c *Change) some() bool { return c.Interface || c.Routes || len(c.Neighbours) > 0 }
