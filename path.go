package roce

import (
	"cmp"
	"context"
	"math/bits"
	"net/netip"
	"runtime"
	"sync"
	"syscall"
	"weak"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/errno"
)

// Neighbour is how to reach a peer on the link: itself, or the router on the
// way.
type Neighbour struct {
	MAC      frame.MAC
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
type Neighbours map[netip.Addr]frame.MAC

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
func DerivedMAC(a netip.Addr) frame.MAC {
	b := a.As16()
	m := frame.MAC{0: 0x02}
	copy(m[2:], b[12:])
	return m
}

const defaultHopLimit = 64

// resolve makes a path of an address and a UDP source port.
func (d *Device) resolve(ctx context.Context, a AHAttr, sport uint16) (*frame.Path, error) {
	if a.Port > 1 {
		return nil, fail("resolve", syscall.EINVAL, "port %d does not exist, only 1", a.Port)
	}
	if a.DGID.IsZero() {
		return nil, fail("resolve", syscall.EINVAL, "no destination GID")
	}
	src, ok := d.gids.get().at(a.SGIDIndex)
	if !ok {
		return nil, fail("resolve", errno.ENODATA, "there is no address at GID index %d", a.SGIDIndex)
	}
	if src.Is4() != a.DGID.Is4() {
		return nil, fail("resolve", syscall.EINVAL, "%v cannot send to %v: not the same IP version", src.Addr(), a.DGID.Addr())
	}
	n := Neighbour{MAC: d.mac()}
	mac, multicast := frame.MulticastMAC(a.DGID)
	local := d.isLocal(&a.DGID)
	switch {
	case local:
	case multicast:
		n.MAC = mac
	default:
		var err error
		if n, err = d.resolver.Resolve(ctx, src.Addr(), a.DGID.Addr()); err != nil {
			return nil, fail("resolve", err, "%v from %v", a.DGID.Addr(), src.Addr())
		}
	}
	return d.newPath(src, a, sport, n.HopLimit, d.hops.get(pathKey{src, a.DGID}, n, local || multicast))
}

// resolveAgain is resolve for a peer that is being talked to: if the way to it was
// resolved it is not asked for again, which might take a while.
func (d *Device) resolveAgain(ctx context.Context, a AHAttr, sport uint16) (*frame.Path, error) {
	if src, ok := d.gids.get().at(a.SGIDIndex); ok {
		if hop, limit := d.hops.resolved(pathKey{src, a.DGID}); hop != nil {
			return d.newPath(src, a, sport, limit, hop)
		}
	}
	return d.resolve(ctx, a, sport)
}

// newPath makes a path to a next hop. hopLimit is the route's.
func (d *Device) newPath(src bth.GID, a AHAttr, sport uint16, hopLimit uint8, hop *frame.Hop) (*frame.Path, error) {
	newPath := frame.NewPath
	if d.info.SrcPort != 0 {
		newPath = d.paths.get
	} // otherwise queue pairs have source ports, and so paths, of their own
	p, err := newPath(frame.PathConfig{Src: src, Dst: a.DGID, Hop: hop, VLAN: d.vlan, SrcPort: d.srcPort(sport),
		TrafficClass: a.TrafficClass, HopLimit: cmp.Or(a.HopLimit, hopLimit, defaultHopLimit), FlowLabel: a.FlowLabel})
	if err != nil {
		return nil, fail("resolve", syscall.EINVAL, "%v", err)
	}
	return p, nil
}

// paths are the paths in use of a device with one source port: queue pairs with the same
// way to the same peer share one. Thousands of them take less memory then, and fewer cache
// misses. It must not be part of a Device, by which a path could be reached from its own
// cleanup.
type paths struct {
	mu    sync.Mutex
	inUse map[frame.PathConfig]weak.Pointer[frame.Path]
}

func newPaths() *paths {
	return &paths{inUse: map[frame.PathConfig]weak.Pointer[frame.Path]{}}
}

// get returns a path that may have other users.
func (ps *paths) get(c frame.PathConfig) (*frame.Path, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.inUse[c].Value(); p != nil {
		return p, nil
	}
	p, err := frame.NewPath(c)
	if err != nil {
		return nil, err
	}
	ps.inUse[c] = weak.Make(p)
	runtime.AddCleanup(p, ps.forget, c)
	return p, nil
}

// forget drops a path that nobody has any more.
func (ps *paths) forget(c frame.PathConfig) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.inUse[c].Value() == nil {
		delete(ps.inUse, c)
	}
}

// srcPort is the UDP source port for a path that should have port: the driver may
// have but one.
func (d *Device) srcPort(port uint16) uint16 {
	if d.info.SrcPort != 0 {
		return d.info.SrcPort
	}
	return port
}

// gidIndex finds an address in the GID table.
func (d *Device) gidIndex(g bth.GID) (int, bool) { return d.gids.get().index(g) }

// source finds the address to reach dst from, and its index: the one asked for; or the
// one that the host's routes prefer; or, of those that are of the same IP version, and
// link-local exactly if dst is, the one that has most bits in common with dst (RFC 6724,
// rule 8), the first of several.
func (d *Device) source(want netip.Addr, dst bth.GID) (int, bth.GID, error) {
	if want.IsValid() {
		g := bth.GIDFrom(want)
		if i, ok := d.gidIndex(g); ok {
			return i, g, nil
		}
		return 0, g, fail("resolve", syscall.EADDRNOTAVAIL, "%v is not an address of the device", want)
	}
	if s, ok := d.resolver.(sourcer); ok {
		if a, err := s.Source(dst.Addr()); err == nil {
			g := bth.GIDFrom(a)
			if i, ok := d.gidIndex(g); ok {
				return i, g, nil
			}
		}
	}
	best, common := -1, -1
	slots := d.gids.get().slots
	for i, g := range slots {
		if g.IsZero() || g.Is4() != dst.Is4() || g.IsLinkLocal() != dst.IsLinkLocal() {
			continue
		}
		if n := commonBits(&g, &dst); n > common {
			best, common = i, n
		}
	}
	if best < 0 {
		return 0, bth.GID{}, fail("resolve", syscall.ENETUNREACH, "the device has no address to reach %v from", dst.Addr())
	}
	return best, slots[best], nil
}

// sourcer is a Resolver that knows which address the host would send from.
type sourcer interface {
	Source(dst netip.Addr) (netip.Addr, error)
}

// commonBits is how many bits two GIDs begin with that are the same.
func commonBits(a, b *bth.GID) int {
	for i := range a {
		if d := a[i] ^ b[i]; d != 0 {
			return 8*i + bits.LeadingZeros8(d)
		}
	}
	return 8 * len(a)
}
