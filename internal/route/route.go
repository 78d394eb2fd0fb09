// Package route knows where a device's packets come from and go to: its GID table, the
// next hops in use, and the paths that queue pairs and address handles share.
//
// It owns no packets and no queue pairs. A [Table] may be used from any goroutine: the GID
// table is replaced as a whole, next hops and paths have a lock of their own, which no
// packet takes. What the kernel learns of neighbours and routes changes the hops in use
// ([Table.Follow], hops.go); the paths that lead over them stay, and no packet costs more.
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

// Neighbour is how to reach a peer on the link: itself, or the router on the way.
type Neighbour struct {
	MAC      frame.MAC
	Addr     netip.Addr // of the router, or the peer; may be left out
	HopLimit uint8      // 0: 64
}

// Resolver finds neighbours. It is asked when a connection is made or an address handle
// created, never for a packet.
type Resolver interface {
	Resolve(ctx context.Context, src, dst netip.Addr) (Neighbour, error)
}

const defaultHopLimit = 64

// Way says where packets go: the parts of an address vector (struct ibv_ah_attr).
type Way struct {
	DGID         bth.GID
	SGIDIndex    int
	FlowLabel    uint32
	TrafficClass uint8
	HopLimit     uint8 // 0: the route's
	Port         uint8 // 1; 0 stands for it
}

// Config says what a [Table] is made of.
type Config struct {
	MAC      frame.MAC
	VLAN     uint16
	SrcPort  uint16 // the only UDP source port of the link; 0: each path has its own
	Resolver Resolver
	GIDs     []bth.GID
}

// Table is what a device knows of its own addresses and of the ways to others.
type Table struct {
	resolver Resolver
	vlan     uint16
	srcPort  uint16
	gids     atomic.Pointer[GIDTable]
	mac      atomic.Pointer[frame.MAC]
	paths    *paths
	*hops
}

// New makes a table.
func New(c Config) *Table {
	t := &Table{resolver: c.Resolver, vlan: c.VLAN, srcPort: c.SrcPort, paths: newPaths(), hops: newHops(c.MAC)}
	t.mac.Store(&c.MAC)
	gids, _ := new(GIDTable).update(c.GIDs)
	t.gids.Store(gids)
	return t
}

// GIDs returns the present GID table.
func (t *Table) GIDs() *GIDTable { return t.gids.Load() }

// SetGIDs replaces the GIDs of the device and returns how many came and went. The caller
// has stopped the shards.
func (t *Table) SetGIDs(want []bth.GID) (changed int) {
	next, changed := t.GIDs().update(want)
	if changed > 0 {
		t.gids.Store(next)
		t.hops.updateLocal(t.IsLocal)
	}
	return changed
}

// IsLocal reports whether a GID is one of the device's.
func (t *Table) IsLocal(g *bth.GID) bool { return t.GIDs().Has(g) }

// SetMAC changes the Ethernet address of the device. It returns the neighbours in use.
func (t *Table) SetMAC(mac frame.MAC) []netip.Addr {
	t.mac.Store(&mac)
	return t.hops.setMAC(mac)
}

// Resolve makes the path for a way with a UDP source port. It may wait for the
// neighbour's answer. Errors wrap EINVAL, ENODATA, or what the resolver says.
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

// ResolveAgain is Resolve for a peer that the device exchanges packets with: if the way
// to it was resolved before, the resolver is not asked again, which might take a while.
func (t *Table) ResolveAgain(ctx context.Context, w Way, sport uint16) (*frame.Path, error) {
	if src, ok := t.GIDs().At(w.SGIDIndex); ok {
		if hop, limit := t.hops.resolved(Key{src, w.DGID}); hop != nil {
			return t.path(src, w, sport, limit, hop)
		}
	}
	return t.Resolve(ctx, w, sport)
}

// Undivided returns the path p for a peer whose address no processes share.
func (t *Table) Undivided(p *frame.Path) (*frame.Path, error) {
	c := p.Config()
	c.Undivided = true
	return t.make(c)
}

// make returns the path of a configuration.
func (t *Table) make(c frame.PathConfig) (*frame.Path, error) {
	if t.srcPort != 0 {
		return t.paths.get(c)
	} // otherwise queue pairs have source ports, and so paths, of their own
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

// Learn returns the path back to where a packet came from, for QP 1 and for targets: local is the
// device's address, peer and mac are the packet's source. old, if not nil, is the path
// that the caller has now; Learn returns it if it still leads there. Others are the caller's until
// Unlearn. The packet may be forged, so it changes no hop that was resolved or that others hold.
func (t *Table) Learn(local, peer bth.GID, mac frame.MAC, old *frame.Path) (*frame.Path, error) {
	var held *frame.Hop
	if old != nil {
		held = old.Hop()
	}
	hop := t.hops.learned(Key{local, peer}, mac, held)
	if hop == held {
		return old, nil
	}
	return t.back(local, peer, hop)
}

// AnswerOnce is Learn for a single answer: the table keeps nothing of the packet, and nothing
// has to be given up.
func (t *Table) AnswerOnce(local, peer bth.GID, mac frame.MAC) (*frame.Path, error) {
	return t.back(local, peer, t.hops.once(Key{local, peer}, mac))
}

// back makes the path to the source of a packet.
func (t *Table) back(local, peer bth.GID, hop *frame.Hop) (*frame.Path, error) {
	return frame.NewPath(frame.PathConfig{Src: local, Dst: peer, Hop: hop, VLAN: t.vlan,
		SrcPort: cmp.Or(t.srcPort, frame.HashPort(bth.QPNGSI)), HopLimit: defaultHopLimit})
}
