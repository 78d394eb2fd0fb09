package route

import (
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/hostnet"
	"github.com/goroce/roce/internal/notify"
	"github.com/goroce/roce/mono"
)

// Key is the pair of addresses of a path.
type Key struct{ Local, Peer bth.GID }

// hops are the next hops in use of a device, by source and destination. All paths between two
// addresses share one hop: those of queue pairs, of address handles, of QP 1. When the host
// learns of another Ethernet address of a peer or gateway, or of another gateway to the peer,
// the hop changes. Packets need no extra work for that.
//
// [Table] has a pointer to it: with a value, a hop would be reachable from its own cleanup,
// and never be freed.
type hops struct {
	mu     sync.Mutex
	mac    frame.MAC
	inUse  map[Key]*hop
	apart  map[Key]*hop                     // learned hops with one user each; each value is the first of a list
	byAddr map[netip.Addr]map[*hop]struct{} // by neighbour, if it is known

	// State of maintain.
	maintained atomic.Bool
	work       notify.Chan
	doubts     []*hop // hops to verify
	fresh      []*hop // hops to look up
}

// hop is a next hop in use.
type hop struct {
	table *hops
	key   Key
	ref   weak.Pointer[frame.Hop]
	at    netip.Addr // neighbour of the hop; invalid: unknown
	known bool       // the resolver found it; otherwise it was learned from a packet
	limit uint8      // hop limit of the route
	fixed bool       // it has no neighbour: it leads to the device itself, or to a group
	fresh bool       // it is in hops.fresh
	gone  bool       // no path has it any more

	alone      bool // it is in hops.apart
	prev, next *hop // there

	doubted atomic.Int64 // time of the last doubt, by the device's clock
}

func newHops(mac frame.MAC) *hops {
	return &hops{mac: mac, inUse: map[Key]*hop{}, apart: map[Key]*hop{}, byAddr: map[netip.Addr]map[*hop]struct{}{}, work: notify.New()}
}

// get returns the hop for a neighbour that the resolver has found.
func (t *hops) get(key Key, n Neighbour, fixed bool) *frame.Hop {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, f := t.find(key, n.MAC)
	h.known, h.fixed, h.limit = true, fixed, n.HopLimit
	t.setNeighbour(h, n.Addr)
	f.Set(t.mac, n.MAC)
	for h := t.apart[key]; h != nil; h = h.next {
		if f := h.ref.Value(); f != nil {
			h.known, h.fixed = true, fixed
			t.setNeighbour(h, n.Addr)
			f.Set(t.mac, n.MAC)
		}
	}
	return f
}

// learned returns the hop back to the source of a packet, which QP 1 holds until [hops.Unlearn]. The packet's Ethernet
// address is sufficient for an answer. It may be forged, so it does not change a resolved hop.
func (t *hops) learned(key Key, mac frame.MAC) *frame.Hop {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, f := t.find(key, mac)
	if !h.known {
		f.Set(t.mac, mac)
	}
	return f
}

// learnedApart returns a hop back to the source of a packet that only the caller has, until [hops.Unlearn]: other packets
// from the same address do not change it. If the resolver found the hop of that address, learnedApart returns that one.
func (t *hops) learnedApart(key Key, mac frame.MAC) *frame.Hop {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f, _ := t.found(key); f != nil {
		return f
	}
	h := &hop{table: t, key: key, alone: true, next: t.apart[key]}
	if h.next != nil {
		h.next.prev = h
	}
	t.apart[key] = h
	return t.enter(h, mac)
}

// once returns a hop for one answer to the source of a packet: the resolved one, or a new one that the
// table does not keep.
func (t *hops) once(key Key, mac frame.MAC) *frame.Hop {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f, _ := t.found(key); f != nil {
		return f
	}
	return frame.NewHop(nil, t.mac, mac)
}

// find returns the hop of a key, or makes one. The caller holds mu.
func (t *hops) find(key Key, mac frame.MAC) (*hop, *frame.Hop) {
	if h := t.inUse[key]; h != nil {
		if f := h.ref.Value(); f != nil {
			return h, f
		}
		t.drop(h)
	}
	h := &hop{table: t, key: key}
	t.inUse[key] = h
	return h, t.enter(h, mac)
}

// enter makes the frame.Hop of h. When the garbage collector frees it, the table forgets h.
func (t *hops) enter(h *hop, mac frame.MAC) *frame.Hop {
	f := frame.NewHop(h, t.mac, mac)
	h.ref = weak.Make(f)
	runtime.AddCleanup(f, t.forget, h)
	return f
}

// each yields all hops.
func (t *hops) each(yield func(*hop) bool) {
	for _, h := range t.inUse {
		if !yield(h) {
			return
		}
	}
	for _, h := range t.apart {
		for ; h != nil; h = h.next {
			if !yield(h) {
				return
			}
		}
	}
}

// forget drops a hop without paths.
func (t *hops) forget(h *hop) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(h)
}

// Unlearn releases the hop of a path that [Table.Learn] or [Table.LearnApart] returned. The table drops the hop, unless it
// was resolved and other paths may share it. In a flood the garbage collector would drop hops too late.
func (t *hops) Unlearn(p *frame.Path) {
	if !t.Owns(p) {
		return
	}
	h := p.Hop().Owner().(*hop)
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.alone || !h.known {
		t.drop(h)
	}
}

func (t *hops) drop(h *hop) {
	t.setNeighbour(h, netip.Addr{})
	switch {
	case h.gone:
		return
	case !h.alone:
		if t.inUse[h.key] == h {
			delete(t.inUse, h.key)
		}
	case h.prev != nil:
		h.prev.next = h.next
	case h.next != nil:
		t.apart[h.key] = h.next
	default:
		delete(t.apart, h.key)
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	h.gone, h.prev, h.next = true, nil, nil
}

// setNeighbour sets the neighbour of a hop; an invalid address means none. The caller holds mu.
func (t *hops) setNeighbour(h *hop, at netip.Addr) {
	if h.at == at {
		return
	}
	if h.at.IsValid() {
		if delete(t.byAddr[h.at], h); len(t.byAddr[h.at]) == 0 {
			delete(t.byAddr, h.at)
		}
	}
	if h.at = at; at.IsValid() {
		if t.byAddr[at] == nil {
			t.byAddr[at] = map[*hop]struct{}{}
		}
		t.byAddr[at][h] = struct{}{}
	}
}

// Owns reports whether the table made a path.
func (t *hops) Owns(p *frame.Path) bool {
	f := p.Hop()
	if f == nil {
		return false
	}
	h, ok := f.Owner().(*hop)
	return ok && h.table == t
}

// doubtPause is the shortest interval between verifications of a hop.
const doubtPause = time.Second

// Doubt records that the peer behind a path does not answer, because its neighbour may have
// moved. In the background the host looks for the neighbour, at most once a second for each hop.
func (t *hops) Doubt(now mono.Time, p *frame.Path) {
	if !t.maintained.Load() || p == nil || !t.Owns(p) {
		return
	}
	h := p.Hop().Owner().(*hop)
	last := h.doubted.Load()
	if last != 0 && now.Sub(mono.Time(last)) < doubtPause || !h.doubted.CompareAndSwap(last, int64(now)) {
		return
	}
	t.mu.Lock()
	if len(t.doubts) < maxDoubts { // if there is no room, a later call adds it
		t.doubts = append(t.doubts, h)
	}
	t.mu.Unlock()
	t.work.Notify()
}

// Bounds of the hops that wait for maintain. Every request of a stranger adds a hop to
// look up, and asking the host is slow. A hop for which there is no room keeps its learned
// address until a queue pair resolves it.
const (
	maxFresh  = 256
	maxDoubts = 4096
)

// LookUp starts a lookup of the hop of a path in the background, if the hop was only learned
// from a packet, because a connection uses the path.
func (t *hops) LookUp(p *frame.Path) {
	if !t.maintained.Load() || !t.Owns(p) {
		return
	}
	h := p.Hop().Owner().(*hop)
	t.mu.Lock()
	unknown := !h.known && !h.fresh && len(t.fresh) < maxFresh
	if unknown {
		h.fresh = true
		t.fresh = append(t.fresh, h)
	}
	t.mu.Unlock()
	if unknown {
		t.work.Notify()
	}
}

// resolved is found for a caller that does not hold mu.
func (t *hops) resolved(key Key) (*frame.Hop, uint8) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.found(key)
}

// found returns a hop and the route's hop limit, if the hop is in use and the resolver found it.
// Otherwise it returns nil. The caller holds mu.
func (t *hops) found(key Key) (*frame.Hop, uint8) {
	if h := t.inUse[key]; h != nil && h.known {
		return h.ref.Value(), h.limit
	}
	return nil, 0
}

// isKnown reports whether the resolver found the hop of a path.
func (t *hops) isKnown(p *frame.Path) bool {
	if !t.Owns(p) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return p.Hop().Owner().(*hop).known
}

// setMAC changes the device's Ethernet address; in hops to the device itself it also changes
// the destination. It returns the neighbours in use.
func (t *hops) setMAC(mac frame.MAC) (towards []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.mac
	t.mac = mac
	for h := range t.each {
		if f := h.ref.Value(); f != nil {
			if _, dst := f.Addrs(); h.fixed && dst == old {
				f.Set(mac, mac)
			} else {
				f.Set(mac, dst)
			}
		}
	}
	for at := range t.byAddr {
		towards = append(towards, at)
	}
	return towards
}

// updateLocal determines again, after a change of the device's addresses, which hops lead to
// the device itself.
func (t *hops) updateLocal(local func(*bth.GID) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for h := range t.each {
		if h.key.Peer.IsMulticast() {
			continue
		}
		if f, own := h.ref.Value(), local(&h.key.Peer); f != nil && own != h.fixed {
			h.fixed = own
			if own {
				t.setNeighbour(h, netip.Addr{})
				f.Set(t.mac, t.mac)
			}
		}
	}
}

// all lists the hops that depend on neighbours.
func (t *hops) all() (list []*hop) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for h := range t.each {
		if !h.fixed {
			list = append(list, h)
		}
	}
	return list
}

// leadingTo lists the hops to the given neighbours.
func (t *hops) leadingTo(at map[netip.Addr]struct{}) (list []*hop) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for a := range at {
		list = slices.AppendSeq(list, maps.Keys(t.byAddr[a]))
	}
	return list
}

// takeWork takes the hops to look up and those to verify.
func (t *hops) takeWork() (fresh, doubts []*hop) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh, doubts = t.fresh, t.doubts
	for _, h := range fresh {
		h.fresh = false
	}
	t.fresh, t.doubts = nil, nil
	return fresh, doubts
}

// Host is a [Resolver] with access to the host's neighbour table.
type Host interface {
	// Known is Resolve without asking the network. usable is false if the route is
	// known but the neighbour is not.
	Known(src, dst netip.Addr) (n hostnet.Neighbour, usable bool, err error)

	// Verify makes the host look for a neighbour.
	Verify(at netip.Addr) error
}

// refresh asks the host again for hops. It does not change a hop that the host does not know,
// because the route may be missing only for a moment. If a hop has a new neighbour whose
// Ethernet address the host does not know, refresh makes the host look for it.
func (t *hops) refresh(host Host, list []*hop) {
	for _, h := range list {
		t.mu.Lock()
		f := t.followed(h)
		t.mu.Unlock()
		if f == nil {
			continue
		}
		n, usable, err := host.Known(h.key.Local.Addr(), h.key.Peer.Addr())
		if err != nil {
			continue
		}
		t.mu.Lock()
		if f = t.followed(h); f == nil {
			t.mu.Unlock()
			continue
		}
		search := !usable && h.known && h.at != n.Addr
		t.setNeighbour(h, n.Addr)
		if usable {
			h.known, h.limit = true, n.HopLimit
			f.Set(t.mac, n.MAC)
		}
		t.mu.Unlock()
		if search {
			host.Verify(n.Addr)
		}
	}
}

// followed returns the frame.Hop of a hop, or nil if the hop depends on no neighbour or has no
// paths. The caller holds mu.
func (t *hops) followed(h *hop) *frame.Hop {
	if h.fixed || h.gone {
		return nil
	}
	return h.ref.Value()
}

// verify makes the host look for the neighbours of some hops. asked has the neighbours for
// which it has already looked.
func (t *hops) verify(host Host, list []*hop, asked map[netip.Addr]bool) {
	for _, h := range list {
		t.mu.Lock()
		at := h.at
		t.mu.Unlock()
		if at.IsValid() && !asked[at] {
			asked[at] = true
			host.Verify(at)
		}
	}
}

// maintain looks up and verifies hops as they are added, until done is closed.
func (t *hops) maintain(host Host, done <-chan struct{}) {
	for {
		select {
		case <-t.work:
		case <-done:
			return
		}
		began := time.Now()
		fresh, doubts := t.takeWork()
		asked := map[netip.Addr]bool{}
		steps := []struct {
			do   func(Host, []*hop)
			list []*hop
		}{
			{t.refresh, fresh},
			{t.refresh, doubts}, // the host may have new information
			{func(host Host, some []*hop) { t.verify(host, some, asked) }, doubts},
		}
		for _, step := range steps {
			for some := range slices.Chunk(step.list, maintainRun) {
				select {
				case <-done: // Close waits for this goroutine
					return
				default:
				}
				step.do(host, some)
			}
		}
		select {
		case <-time.After(maintainRest * time.Since(began)):
		case <-done:
			return
		}
	}
}

// maintainRun is the number of hops after which maintain checks whether the device is closed.
const maintainRun = 64

// maintainRest is the ratio of maintain's pause to its work: thousands of unreachable peers must
// not keep a core busy.
const maintainRest = 4

// Follow makes the hops follow the host. The caller runs the returned function on a
// goroutine until done is closed: it looks up hops that were learned from packets, and
// verifies doubted ones.
func (t *Table) Follow(host Host, done <-chan struct{}) (work func()) {
	t.hops.maintained.Store(true)
	return func() { t.hops.maintain(host, done) }
}

// RoutesChanged asks the host again for all hops.
func (t *Table) RoutesChanged(host Host) { t.hops.refresh(host, t.hops.all()) }

// NeighboursChanged asks the host again for the hops to some neighbours.
func (t *Table) NeighboursChanged(host Host, at map[netip.Addr]struct{}) {
	t.hops.refresh(host, t.hops.leadingTo(at))
}

// Count returns the number of hops in use, and how many of them wait for a lookup. It is
// for tests.
func (t *Table) Count() (hops, unknown int) {
	t.hops.mu.Lock()
	defer t.hops.mu.Unlock()
	for range t.hops.each {
		hops++
	}
	return hops, len(t.hops.fresh)
}
