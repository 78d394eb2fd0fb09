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

// SetAddrs sets the current addresses of the interface; a device of
// [OpenInterface] calls it itself. In the GID table, addresses that stay keep
// their index. A removed address leaves an empty slot, and gets that slot
// again if it returns. New addresses are appended.
//
// The device drops packets to a removed address. Work requests of queue pairs that are connected from it end with RETRY_EXC_ERR,
// and their connections end when the peer or the program gives up. Existing address handles still send, but no answer arrives.
// Each added or removed address raises [EventGIDChange].
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

// Neighbour is the next hop to a peer: the peer itself on the link, or a
// router.
type Neighbour struct {
	MAC      MAC
	Addr     netip.Addr // of the router or the peer; optional
	HopLimit uint8      // 0: 64
}

// Resolver finds neighbours. The device calls it when it makes a connection
// or an address handle, never for a packet.
type Resolver interface {
	// Resolve returns the next hop from one of the device's addresses to dst.
	// An error wraps EHOSTUNREACH, ENETUNREACH or ETIMEDOUT.
	Resolve(ctx context.Context, src, dst netip.Addr) (Neighbour, error)
}

// Neighbours is a fixed table of Ethernet addresses.
type Neighbours map[netip.Addr]MAC

// Resolve looks up dst.
func (n Neighbours) Resolve(_ context.Context, _, dst netip.Addr) (Neighbour, error) {
	if mac, ok := n[dst]; ok {
		return Neighbour{MAC: mac}, nil
	}
	return Neighbour{}, fail("resolve", syscall.EHOSTUNREACH, "%v is not in the table of neighbours", dst)
}

// DerivedMACs is the Resolver of networks inside the process: [DerivedMAC]
// makes the Ethernet address of every device from its IP address.
type DerivedMACs struct{}

// Resolve computes the Ethernet address of dst.
func (DerivedMACs) Resolve(_ context.Context, _, dst netip.Addr) (Neighbour, error) {
	return Neighbour{MAC: DerivedMAC(dst)}, nil
}

// DerivedMAC makes a locally administered Ethernet address from the last four
// bytes of an IP address.
func DerivedMAC(a netip.Addr) MAC {
	b := a.As16()
	m := frame.MAC{0: 0x02}
	copy(m[2:], b[12:])
	return m
}

// asRoute adapts a Resolver to package route.
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
