// Package route has the addresses and routes of a device: its GID table, the next hops
// in use, and the paths that queue pairs and address handles share.
//
// It owns no packets and no queue pairs. A [Table] may be used from any goroutine: the GID
// table is replaced as a whole, next hops and paths have their own lock, which no packet
// takes. When neighbours and routes of the kernel change, the hops in use change
// ([Table.Follow], hops.go). The paths over them stay, and packets cost nothing more.
package route

import (
	"cmp"
	"context"
	"net/netip"
	"sync/atomic"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/errno"
)

// Neighbour is the next hop to a peer: the peer itself on the link, or a router.
type Neighbour struct {
	MAC      frame.MAC
	Addr     netip.Addr // of the router or the peer; optional
	HopLimit uint8      // 0: 64
}

// Resolver finds neighbours. It is called when a connection or an address handle is
// made, never for a packet.
type Resolver interface {
	Resolve(ctx context.Context, src, dst netip.Addr) (Neighbour, error)
}

const defaultHopLimit = 64

// Way is a destination: the fields of an address vector (struct ibv_ah_attr).
type Way struct {
	DGID         bth.GID
	SGIDIndex    int
	FlowLabel    uint32
	TrafficClass uint8
	HopLimit     uint8 // 0: the route's
	Port         uint8 // 1; 0 means 1
}

// Config configures a [Table].
type Config struct {
	MAC      frame.MAC
	VLAN     uint16
	SrcPort  uint16 // the only UDP source port of the link; 0: each path has its own
	Resolver Resolver
	GIDs     []bth.GID

	// HasRoute, if set, reports whether the host has a route from src to dst. It is set if a packet to an address without
	// a route burdens the host. It must be fast, because callers may hold the lock of a shard.
	HasRoute func(src, dst netip.Addr) bool
}

// Table has the addresses of a device and the paths to its peers.
type Table struct {
	resolver Resolver
	vlan     uint16
	srcPort  uint16
	gids     atomic.Pointer[GIDTable]
	mac      atomic.Pointer[frame.MAC]
	paths    *paths
	hasRoute func(src, dst netip.Addr) bool // nil: not needed
	*hops
}

// New makes a table.
func New(c Config) *Table {
	t := &Table{resolver: c.Resolver, vlan: c.VLAN, srcPort: c.SrcPort, hasRoute: c.HasRoute, paths: newPaths(), hops: newHops(c.MAC)}
	t.mac.Store(&c.MAC)
	gids, _ := new(GIDTable).update(c.GIDs)
	t.gids.Store(gids)
	return t
}

// GIDs returns the current GID table.
func (t *Table) GIDs() *GIDTable { return t.gids.Load() }

// SetGIDs replaces the GIDs of the device and returns the number of added and removed
// ones. The caller has stopped the shards.
func (t *Table) SetGIDs(want []bth.GID) (changed int) {
	next, changed := t.GIDs().update(want)
	if changed > 0 {
		t.gids.Store(next)
		t.hops.updateLocal(t.IsLocal)
	}
	return changed
}

// IsLocal reports whether the device has a GID.
func (t *Table) IsLocal(g *bth.GID) bool { return t.GIDs().Has(g) }

// SetMAC changes the Ethernet address of the device. It returns the neighbours in use.
func (t *Table) SetMAC(mac frame.MAC) []netip.Addr {
	t.mac.Store(&mac)
	return t.hops.setMAC(mac)
}

// Resolve makes the path for a way with a UDP source port. It may wait for the
// neighbour's answer. Errors wrap EINVAL, ENODATA, or the resolver's error.
func (t *Table) Resolve(ctx context.Context, w Way, sport uint16) (*frame.Path, error) {
	if w.Port > 1 {
		return nil, errs.New("resolve", syscall.EINVAL, "port %d does not exist, only 1", w.Port)
	}
	if w.DGID.IsZero() {
		return nil, errs.New("resolve", syscall.EINVAL, "no destination GID")
	}
	src, ok := t.GIDs().At(w.SGIDIndex)
	if !ok {
		return nil, errs.New("resolve", errno.ENODATA, "there is no address at GID index %d", w.SGIDIndex)
	}
	if src.Is4() != w.DGID.Is4() {
		return nil, errs.New("resolve", syscall.EINVAL, "%v cannot send to %v: not the same IP version", src.Addr(), w.DGID.Addr())
	}
	n := Neighbour{MAC: *t.mac.Load()}
	mac, multicast := frame.MulticastMAC(w.DGID)
	local := t.IsLocal(&w.DGID)
	switch {
	case local:
	case multicast:
		n.MAC = mac
	default:
		var err error
		if n, err = t.resolver.Resolve(ctx, src.Addr(), w.DGID.Addr()); err != nil {
			return nil, errs.New("resolve", err, "%v from %v", w.DGID.Addr(), src.Addr())
		}
	}
	return t.path(src, w, sport, n.HopLimit, t.hops.get(Key{src, w.DGID}, n, local || multicast))
}

// ResolveAgain is Resolve for a peer with which the device exchanges packets: if the
// hop is already resolved, it does not call the resolver, which may be slow.
func (t *Table) ResolveAgain(ctx context.Context, w Way, sport uint16) (*frame.Path, error) {
	if src, ok := t.GIDs().At(w.SGIDIndex); ok {
		if hop, limit := t.hops.resolved(Key{src, w.DGID}); hop != nil {
			return t.path(src, w, sport, limit, hop)
		}
	}
	return t.Resolve(ctx, w, sport)
}

// Undivided returns path p in the form for a peer whose address is not shared
// by processes.
func (t *Table) Undivided(p *frame.Path) (*frame.Path, error) {
	c := p.Config()
	c.Undivided = true
	return t.make(c)
}

// make returns the path of a configuration.
func (t *Table) make(c frame.PathConfig) (*frame.Path, error) {
	if t.srcPort != 0 {
		return t.paths.get(c)
	} // otherwise queue pairs have their own source ports, and so their own paths
	return frame.NewPath(c)
}

// path makes the path over a next hop. hopLimit is the route's.
func (t *Table) path(src bth.GID, w Way, sport uint16, hopLimit uint8, hop *frame.Hop) (*frame.Path, error) {
	p, err := t.make(frame.PathConfig{Src: src, Dst: w.DGID, Hop: hop, VLAN: t.vlan, SrcPort: cmp.Or(t.srcPort, sport),
		TrafficClass: w.TrafficClass, HopLimit: cmp.Or(w.HopLimit, hopLimit, defaultHopLimit), FlowLabel: w.FlowLabel})
	if err != nil {
		return nil, errs.New("resolve", syscall.EINVAL, "%v", err)
	}
	return p, nil
}

// Learn returns the path back to the source of a packet, for QP 1: local is the
// device's address, peer and mac are the packet's source. old, if not nil, is the present
// path of QP 1; Learn returns old if its hop is still right; otherwise it returns a new path, which
// QP 1 holds until Unlearn. The packet may be forged, so it does not change a resolved hop.
func (t *Table) Learn(local, peer bth.GID, mac frame.MAC, old *frame.Path) (*frame.Path, error) {
	hop := t.hops.learned(Key{local, peer}, mac)
	if old != nil && hop == old.Hop() {
		return old, nil
	}
	return t.back(local, peer, hop)
}

// LearnApart is Learn for DC targets. Until the resolver finds the peer, the path has a hop of its
// own, which other packets do not change. The caller holds the path until Unlearn.
func (t *Table) LearnApart(local, peer bth.GID, mac frame.MAC) (*frame.Path, error) {
	return t.back(local, peer, t.hops.learnedApart(Key{local, peer}, mac))
}

// AnswerOnce is Learn for a single answer: the table keeps no state, and the caller need not
// call Unlearn.
func (t *Table) AnswerOnce(local, peer bth.GID, mac frame.MAC) (*frame.Path, error) {
	return t.back(local, peer, t.hops.once(Key{local, peer}, mac))
}

// MayAnswer reports whether the device may send to the source of a packet along a path that Learn or a similar method returned. It
// returns false if the host has no route to the source, and the packet would burden the host.
func (t *Table) MayAnswer(key Key, p *frame.Path) bool {
	return t.hasRoute == nil || t.hops.isKnown(p) || t.IsLocal(&key.Peer) || t.hasRoute(key.Local.Addr(), key.Peer.Addr())
}

// back makes the path to the source of a packet.
func (t *Table) back(local, peer bth.GID, hop *frame.Hop) (*frame.Path, error) {
	return frame.NewPath(frame.PathConfig{Src: local, Dst: peer, Hop: hop, VLAN: t.vlan,
		SrcPort: cmp.Or(t.srcPort, frame.HashPort(bth.QPNGSI)), HopLimit: defaultHopLimit})
}
