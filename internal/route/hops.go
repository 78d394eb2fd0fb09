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

// Key is the pair of addresses that a path leads between.
type Key struct{ Local, Peer bth.GID }

// hops are the next hops in use of a device, by source and destination. All paths between two
// addresses share one hop: those of queue pairs, of address handles, of QP 1. When the host
// learns that a peer or gateway has another Ethernet address, or that another gateway leads
// to the peer, the hop changes. No packet costs more for it.
//
// It is not part of [Table] by value: a hop could then be reached from its own cleanup, and
// would never be freed.
type hops struct {
	mu     sync.Mutex
	mac    frame.MAC
	inUse  map[Key]*hop
	byAddr map[netip.Addr]map[*hop]struct{} // by the neighbour they lead to, where that is known

	// Of maintain.
	maintained atomic.Bool
	work       notify.Chan
	doubts     []*hop // to be verified
	fresh      []*hop // to be looked up
}

// hop is a next hop in use.
type hop struct {
	table *hops
	key   Key
	ref   weak.Pointer[frame.Hop]
	at    netip.Addr // neighbour that it leads to; invalid: not known
	known bool       // the resolver has said it; otherwise it was learned from a packet
	limit uint8      // hop limit of the route
	fixed bool       // it leads to no neighbour: to the device itself, or to a group
	fresh bool       // it is in hops.fresh

	holders int // who learned it and has not given it up: QP 1, targets

	doubted atomic.Int64 // time of the last doubt, by the device's clock
}

func newHops(mac frame.MAC) *hops {
	return &hops{mac: mac, inUse: map[Key]*hop{}, byAddr: map[netip.Addr]map[*hop]struct{}{}, work: notify.New()}
}

// get returns the hop for a neighbour that the resolver has found.
func (t *hops) get(key Key, n Neighbour, fixed bool) *frame.Hop {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, f := t.find(key, n.MAC)
	h.known, h.fixed, h.limit = true, fixed, n.HopLimit
	t.setNeighbour(h, n.Addr)
	f.Set(t.mac, n.MAC)
	return f
}

// learned returns the hop back to the source of a packet and counts the caller as a holder, until
// [hops.Unlearn]. old is the hop that the caller holds already, or nil. The packet's Ethernet
// address is good enough for an answer. It may be forged, so it changes neither a hop that was resolved
// nor one that others hold.
func (t *hops) learned(key Key, mac frame.MAC, old *frame.Hop) *frame.Hop {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, f := t.find(key, mac)
	if f != old {
		h.holders++
	}
	if !h.known && h.holders == 1 {
		f.Set(t.mac, mac)
	}
	return f
}

// once returns a hop for one answer to the source of a packet: the one that was resolved, or one of its own
// that the table forgets at once.
func (t *hops) once(key Key, mac frame.MAC) *frame.Hop {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.inUse[key]; h != nil && h.known {
		if f := h.ref.Value(); f != nil {
			return f
		}
	}
	return frame.NewHop(nil, t.mac, mac)
}

// find returns the hop of a key, a new one if there is none. The caller holds mu.
func (t *hops) find(key Key, mac frame.MAC) (*hop, *frame.Hop) {
	if h := t.inUse[key]; h != nil {
		if f := h.ref.Value(); f != nil {
			return h, f
		}
		t.drop(h)
	}
	h := &hop{table: t, key: key}
	f := frame.NewHop(h, t.mac, mac)
	h.ref = weak.Make(f)
	t.inUse[key] = h
	runtime.AddCleanup(f, t.forget, h)
	return h, f
}

// forget drops a hop that no path has any more.
func (t *hops) forget(h *hop) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(h)
}

// Unlearn gives up the hop of a path that [Table.Learn] returned. The table forgets it with its last holder, unless it
// was resolved: other paths may share it then. In a flood the garbage collector would be too late.
func (t *hops) Unlearn(p *frame.Path) {
	if !t.Owns(p) {
		return
	}
	h := p.Hop().Owner().(*hop)
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.known {
		return
	}
	if h.holders--; h.holders <= 0 {
		t.drop(h)
	}
}

func (t *hops) drop(h *hop) {
	t.setNeighbour(h, netip.Addr{})
	if t.inUse[h.key] == h {
		delete(t.inUse, h.key)
	}
}

// setNeighbour notes which neighbour a hop leads to; an invalid address: none. The caller holds mu.
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

// doubtPause is how often a hop is verified, at most.
const doubtPause = time.Second

// Doubt notes that the peer behind a path does not answer: its neighbour may have moved. The host
// finds out in the background where the neighbour is, at most once a second for each hop.
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
	if len(t.doubts) < maxDoubts { // otherwise a later call finds room
		t.doubts = append(t.doubts, h)
	}
	t.mu.Unlock()
	t.work.Notify()
}

// Bounds of the hops that wait for maintain. Every request of a stranger adds a hop to be
// looked up, and asking the host is slow. A hop that finds no room stays as it was learned
// until a queue pair resolves it.
const (
	maxFresh  = 256
	maxDoubts = 4096
)

// LookUp has the hop of a path looked up in the background if it was only learned from a packet:
// a connection uses it.
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

// resolved returns a hop and the route's hop limit, if the hop is in use and was resolved;
// otherwise nil.
func (t *hops) resolved(key Key) (*frame.Hop, uint8) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.inUse[key]; h != nil && h.known {
		return h.ref.Value(), h.limit
	}
	return nil, 0
}

// setMAC changes the device's own Ethernet address, in hops to the device itself also as the
// destination. It returns the neighbours in use.
func (t *hops) setMAC(mac frame.MAC) (towards []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.mac
	t.mac = mac
	for _, h := range t.inUse {
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

// updateLocal finds out, after the addresses of the device have changed, which hops lead to the
// device itself.
func (t *hops) updateLocal(local func(*bth.GID) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.inUse {
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
	for _, h := range t.inUse {
		if !h.fixed {
			list = append(list, h)
		}
	}
	return list
}

// leadingTo lists the hops that lead to one of some neighbours.
func (t *hops) leadingTo(at map[netip.Addr]struct{}) (list []*hop) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for a := range at {
		list = slices.AppendSeq(list, maps.Keys(t.byAddr[a]))
	}
	return list
}

// takeWork takes the hops to be looked up and those to be verified.
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

// Host is a [Resolver] that knows what the host knows of neighbours.
type Host interface {
	// Known is Resolve without asking the network: usable is false when the way is
	// known but not the neighbour.
	Known(src, dst netip.Addr) (n hostnet.Neighbour, usable bool, err error)

	// Verify makes the host find out where a neighbour is.
	Verify(at netip.Addr) error
}

// refresh asks the host anew about hops. A hop that the host does not know stays as it is: the
// route may be missing for a moment only. If a hop leads to another neighbour than before
// whose Ethernet address the host does not know, refresh makes the host find out.
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

// followed returns the frame.Hop of a hop, or nil if it depends on no neighbour or no path has
// it any more. The caller holds mu.
func (t *hops) followed(h *hop) *frame.Hop {
	if h.fixed || t.inUse[h.key] != h {
		return nil
	}
	return h.ref.Value()
}

// verify makes the host look for the neighbours of some hops. asked has the neighbours that it
// looked for already.
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

// maintain looks hops up and verifies them as they come, until done is closed.
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
			{t.refresh, doubts}, // the host may have learned something since
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

// maintainRun is for how many hops maintain works before it looks whether the device is closed.
const maintainRun = 64

// maintainRest is how many times as long as its work the pause of maintain is: thousands of peers
// that do not answer must not keep a core busy.
const maintainRest = 4

// Follow begins to keep the hops in step with the host. The function that it returns does
// the work, on a goroutine of the caller's, until done is closed: it looks hops up that
// were learned from packets, and verifies those that are doubted.
func (t *Table) Follow(host Host, done <-chan struct{}) (work func()) {
	t.hops.maintained.Store(true)
	return func() { t.hops.maintain(host, done) }
}

// RoutesChanged asks the host anew about all hops.
func (t *Table) RoutesChanged(host Host) { t.hops.refresh(host, t.hops.all()) }

// NeighboursChanged asks the host anew about the hops that lead to some neighbours.
func (t *Table) NeighboursChanged(host Host, at map[netip.Addr]struct{}) {
	t.hops.refresh(host, t.hops.leadingTo(at))
}

// Count returns how many hops are in use, and how many of them wait to be looked up. It is
// for tests.
func (t *Table) Count() (hops, unknown int) {
	t.hops.mu.Lock()
	defer t.hops.mu.Unlock()
	return len(t.hops.inUse), len(t.hops.fresh)
}
