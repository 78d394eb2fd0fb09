package roce

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
	"github.com/goroce/roce/mono"
)

// hops are the next hops in use of a device, by source and destination. All paths
// between two addresses share one: those of queue pairs, of address handles, of QP 1.
// When the host learns that a peer or gateway has another Ethernet address, or that
// another gateway leads to the peer, the hop is changed, and no packet costs more for it.
//
// It must not be part of a Device, by which a hop could be reached from its own cleanup.
type hops struct {
	mu     sync.Mutex
	mac    frame.MAC
	inUse  map[pathKey]*hop
	byAddr map[netip.Addr]map[*hop]struct{} // those known to lead to a neighbour

	// Of tend.
	tended atomic.Bool
	work   chan struct{} // holds a token when there is some
	doubts []*hop        // to be verified
	fresh  []*hop        // to be looked up
}

// hop is a next hop in use.
type hop struct {
	table *hops
	key   pathKey
	ref   weak.Pointer[frame.Hop]
	at    netip.Addr // neighbour it leads to; not valid: not known
	sure  bool       // it was resolved, not only learned from a packet
	limit uint8      // hop limit of the route
	fixed bool       // it leads to no neighbour: to the device itself, or to a group
	fresh bool       // it is in the list of that name

	doubted atomic.Int64 // when it was last, by the device's clock
}

func newHops(mac frame.MAC) *hops {
	return &hops{mac: mac, inUse: map[pathKey]*hop{}, byAddr: map[netip.Addr]map[*hop]struct{}{}, work: make(chan struct{}, 1)}
}

// get returns the hop for a way that was resolved.
func (t *hops) get(key pathKey, n Neighbour, fixed bool) *frame.Hop {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, f := t.find(key, n.MAC)
	h.sure, h.fixed, h.limit = true, fixed, n.HopLimit
	t.lead(h, n.Addr)
	f.Set(t.mac, n.MAC)
	return f
}

// learned returns the hop for a way that a packet came by. The packet's Ethernet address
// is good for an answer; it may be forged, so it changes no hop that was resolved.
func (t *hops) learned(key pathKey, mac frame.MAC) *frame.Hop {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, f := t.find(key, mac)
	if !h.sure {
		f.Set(t.mac, mac)
	}
	return f
}

// find returns the hop of a key, a new one if there is none. Called with mu held.
func (t *hops) find(key pathKey, mac frame.MAC) (*hop, *frame.Hop) {
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

// unlearn forgets the hop of a path that QP 1 gives up, unless it was resolved: then
// others may have it. The garbage collector would let many pile up in a flood.
func (t *hops) unlearn(p *frame.Path) {
	if !t.owns(p) {
		return
	}
	h := p.Hop().Owner().(*hop)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !h.sure {
		t.drop(h)
	}
}

func (t *hops) drop(h *hop) {
	t.lead(h, netip.Addr{})
	if t.inUse[h.key] == h {
		delete(t.inUse, h.key)
	}
}

// lead notes which neighbour a hop leads to. Called with mu held.
func (t *hops) lead(h *hop, at netip.Addr) {
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

// owns reports whether a path is one of the device's.
func (t *hops) owns(p *frame.Path) bool {
	f := p.Hop()
	if f == nil {
		return false
	}
	h, ok := f.Owner().(*hop)
	return ok && h.table == t
}

// doubtPause is how often a hop is verified, at most.
const doubtPause = time.Second

// doubt says that the peer behind a path does not answer: it may have moved. It may be
// said often.
func (t *hops) doubt(now mono.Time, p *frame.Path) {
	if !t.tended.Load() || p == nil || !t.owns(p) {
		return
	}
	h := p.Hop().Owner().(*hop)
	last := h.doubted.Load()
	if last != 0 && now.Sub(mono.Time(last)) < doubtPause || !h.doubted.CompareAndSwap(last, int64(now)) {
		return
	}
	t.mu.Lock()
	if len(t.doubts) < maxDoubts { // otherwise it is said again
		t.doubts = append(t.doubts, h)
	}
	t.mu.Unlock()
	token(t.work)
}

// Bounds of what waits for tend. Every request of a stranger adds a hop that is to be looked
// up, and the host is asked slowly: one that finds no room stays learned until a queue pair
// looks its way up. What finds no room to be verified is doubted again.
const (
	maxFresh  = 256
	maxDoubts = 4096
)

// chase has a hop looked up that was only learned, because a connection relies on it.
func (t *hops) chase(p *frame.Path) {
	if !t.tended.Load() || !t.owns(p) {
		return
	}
	h := p.Hop().Owner().(*hop)
	t.mu.Lock()
	unknown := !h.sure && !h.fresh && len(t.fresh) < maxFresh
	if unknown {
		h.fresh = true
		t.fresh = append(t.fresh, h)
	}
	t.mu.Unlock()
	if unknown {
		token(t.work)
	}
}

// resolved returns a hop and the route's hop limit, if the hop is in use and was resolved;
// otherwise nil.
func (t *hops) resolved(key pathKey) (*frame.Hop, uint8) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.inUse[key]; h != nil && h.sure {
		return h.ref.Value(), h.limit
	}
	return nil, 0
}

// setMAC changes the device's own Ethernet address, also as that of the device as a
// peer of itself. It returns the neighbours in use.
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

// sort notes which hops lead to the device itself now that its addresses have changed,
// and which no longer do.
func (t *hops) sort(local func(*bth.GID) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.inUse {
		if h.key.peer.IsMulticast() {
			continue
		}
		if f, own := h.ref.Value(), local(&h.key.peer); f != nil && own != h.fixed {
			h.fixed = own
			if own {
				t.lead(h, netip.Addr{})
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

// takeWork takes what is to be looked up and what is to be verified.
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

// neighbours is a Resolver that knows what the host knows.
type neighbours interface {
	// Known is Resolve without asking the network: usable is false when the way is
	// known but not the neighbour.
	Known(src, dst netip.Addr) (n hostnet.Neighbour, usable bool, err error)

	// Verify makes the host find out where a neighbour is.
	Verify(at netip.Addr) error
}

// refresh asks the host anew about hops. What it does not know stays as it is: no route
// may be a matter of moments. A hop that leads to another neighbour than before, which
// the host does not know, is searched.
func (t *hops) refresh(host neighbours, list []*hop) {
	for _, h := range list {
		t.mu.Lock()
		f := t.followed(h)
		t.mu.Unlock()
		if f == nil {
			continue
		}
		n, usable, err := host.Known(h.key.local.Addr(), h.key.peer.Addr())
		if err != nil {
			continue
		}
		t.mu.Lock()
		if f = t.followed(h); f == nil {
			t.mu.Unlock()
			continue
		}
		search := !usable && h.sure && h.at != n.Addr
		t.lead(h, n.Addr)
		if usable {
			h.sure, h.limit = true, n.HopLimit
			f.Set(t.mac, n.MAC)
		}
		t.mu.Unlock()
		if search {
			host.Verify(n.Addr)
		}
	}
}

// followed returns a hop that depends on a neighbour, nil if it does not any more, or no
// path has it. Called with mu held.
func (t *hops) followed(h *hop) *frame.Hop {
	if h.fixed || t.inUse[h.key] != h {
		return nil
	}
	return h.ref.Value()
}

// verify makes the host find out where the neighbours are that hops lead to, those aside
// that were told already.
func (t *hops) verify(host neighbours, list []*hop, told map[netip.Addr]bool) {
	for _, h := range list {
		t.mu.Lock()
		at := h.at
		t.mu.Unlock()
		if at.IsValid() && !told[at] {
			told[at] = true
			host.Verify(at)
		}
	}
}

// tend does the work that comes up on the way, until done is closed.
func (t *hops) tend(host neighbours, done <-chan struct{}) {
	for {
		select {
		case <-t.work:
		case <-done:
			return
		}
		began := time.Now()
		fresh, doubts := t.takeWork()
		told := map[netip.Addr]bool{}
		steps := []struct {
			do   func(neighbours, []*hop)
			list []*hop
		}{
			{t.refresh, fresh},
			{t.refresh, doubts}, // maybe the host knows more than we were told
			{func(host neighbours, some []*hop) { t.verify(host, some, told) }, doubts},
		}
		for _, step := range steps {
			for some := range slices.Chunk(step.list, tendRun) {
				select {
				case <-done: // whoever closes the device waits for us
					return
				default:
				}
				step.do(host, some)
			}
		}
		select {
		case <-time.After(tendRest * time.Since(began)):
		case <-done:
			return
		}
	}
}

// tendRun is for how many hops tend works before it looks whether the device is closed.
const tendRun = 64

// tendRest is how many times as long as its work the pause of tend is: thousands of peers
// that do not answer must not keep a core busy.
const tendRest = 4
