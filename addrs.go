package roce

import (
	"context"
	"net/netip"
	"slices"
	"syscall"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/route"
)

// GIDs returns the GID table: index 0 is the first address given to [Open].
// The slot of an address that was removed is zero.
func (d *Device) GIDs() []GID { return slices.Clone(d.nic.Routes().GIDs().Slots()) }

// SetAddrs tells the device which addresses its interface has now; a device of
// [OpenInterface] sees to that itself. In the GID table those that stay keep
// their index, those that are gone leave an empty slot, to which they return
// should they come back, and new ones are appended.
//
// Packets to an address that is gone are dropped, as by a host that has lost
// it: what queue pairs connected from it have under way ends with
// RETRY_EXC_ERR, and their connections end when the peer or the program gives
// up. Address handles that were made go on to work, but no answer comes. Every address that comes or goes raises [EventGIDChange].
func (d *Device) SetAddrs(addrs []netip.Addr) error {
	want, err := route.GIDsOf("set addresses", addrs)
	if err != nil {
		return err
	}
	changed, err := d.nic.SetAddrs(addrs, want)
	if changed > 0 {
		d.cm.AddrsChanged()
	}
	return err
}

// Neighbour is how to reach a peer on the link: itself, or the router on the
// way.
type Neighbour struct {
	MAC      MAC
	Addr     netip.Addr // of the router, or the peer; may be left out
	HopLimit uint8      // 0: 64
}

// Resolver finds neighbours. It is asked when a connection is made or an
// address handle created, never for a packet.
type Resolver interface {
	// Resolve returns the way from one of the device's addresses to dst. An
	// error wraps EHOSTUNREACH, ENETUNREACH or ETIMEDOUT.
	Resolve(ctx context.Context, src, dst netip.Addr) (Neighbour, error)
}

// Neighbours is a fixed table of Ethernet addresses.
type Neighbours map[netip.Addr]MAC

// Resolve looks dst up.
func (n Neighbours) Resolve(_ context.Context, _, dst netip.Addr) (Neighbour, error) {
	if mac, ok := n[dst]; ok {
		return Neighbour{MAC: mac}, nil
	}
	return Neighbour{}, fail("resolve", syscall.EHOSTUNREACH, "%v is not in the table of neighbours", dst)
}

// DerivedMACs is the Resolver of networks inside the process: every device has
// the Ethernet address that [DerivedMAC] makes of its IP address.
type DerivedMACs struct{}

// Resolve computes the Ethernet address of dst.
func (DerivedMACs) Resolve(_ context.Context, _, dst netip.Addr) (Neighbour, error) {
	return Neighbour{MAC: DerivedMAC(dst)}, nil
}

// DerivedMAC makes a locally administered Ethernet address out of the last
// four bytes of an IP address.
func DerivedMAC(a netip.Addr) MAC {
	b := a.As16()
	m := frame.MAC{0: 0x02}
	copy(m[2:], b[12:])
	return m
}

// asRoute is a Resolver as package route wants it.
type asRoute struct{ Resolver }

func (r asRoute) Resolve(ctx context.Context, src, dst netip.Addr) (route.Neighbour, error) {
	n, err := r.Resolver.Resolve(ctx, src, dst)
	return route.Neighbour(n), err
}

// Source implements the optional method of [route.Resolver].
func (r asRoute) Source(dst netip.Addr) (netip.Addr, error) {
	if s, ok := r.Resolver.(route.Sourcer); ok {
		return s.Source(dst)
	}
	return netip.Addr{}, syscall.EOPNOTSUPP
}
