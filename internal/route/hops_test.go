package route

import (
	"context"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/hostnet"
	"github.com/goroce/roce/mono"
)

// fakeHost is a [Host] with a fixed neighbour table.
type fakeHost struct {
	mu       sync.Mutex
	routes   map[netip.Addr]hostnet.Neighbour // by destination
	verified []netip.Addr
	asked    int
}

func (h *fakeHost) Known(_, dst netip.Addr) (hostnet.Neighbour, bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked++
	n, ok := h.routes[dst]
	if !ok {
		return n, false, context.Canceled
	}
	return n, !n.MAC.IsZero(), nil
}

func (h *fakeHost) Verify(at netip.Addr) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.verified = append(h.verified, at)
	return nil
}

// takeVerified returns the verified neighbours and clears the list.
func (h *fakeHost) takeVerified() []netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.verified
	h.verified = nil
	return v
}

var (
	hopOwn, hopOther = frame.MAC{2, 0, 0, 0, 0, 1}, frame.MAC{2, 0, 0, 0, 0, 2}
	hopPeer, hopGate = netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("10.0.0.254")
	hopFar           = netip.MustParseAddr("192.0.2.1")
)

func hopKey(peer netip.Addr) Key {
	return Key{bth.GIDFrom(netip.MustParseAddr("10.0.0.1")), bth.GIDFrom(peer)}
}

func wantHop(t *testing.T, what string, f *frame.Hop, src, dst frame.MAC) {
	t.Helper()
	if s, d := f.Addrs(); s != src || d != dst {
		t.Errorf("%s: from %v to %v, want from %v to %v", what, s, d, src, dst)
	}
}

// TestHops: a hop follows the neighbours and routes of the host. Hops to groups and to the
// device itself do not depend on neighbours.
func TestHops(t *testing.T) {
	mac := func(i byte) frame.MAC { return frame.MAC{2, 9, 5: i} }
	host := &fakeHost{routes: map[netip.Addr]hostnet.Neighbour{
		hopPeer: {Addr: hopPeer, MAC: mac(1), HopLimit: 64},
		hopFar:  {Addr: hopGate, MAC: mac(2), HopLimit: 17},
	}}
	table := newHops(hopOwn)
	table.maintained.Store(true)
	group, self := netip.MustParseAddr("239.1.2.3"), hopKey(hopPeer).Local.Addr()
	peer := table.get(hopKey(hopPeer), Neighbour{MAC: mac(1), Addr: hopPeer, HopLimit: 64}, false)
	far := table.get(hopKey(hopFar), Neighbour{MAC: mac(2), Addr: hopGate, HopLimit: 17}, false)
	many := table.get(hopKey(group), Neighbour{MAC: frame.MAC{1, 0, 0x5E, 1, 2, 3}}, true)
	own := table.get(hopKey(self), Neighbour{MAC: hopOwn}, true)
	if table.get(hopKey(hopPeer), Neighbour{MAC: mac(1), Addr: hopPeer, HopLimit: 64}, false) != peer {
		t.Fatal("two hops for one key")
	}
	if h, limit := table.resolved(hopKey(hopFar)); h != far || limit != 17 {
		t.Errorf("resolved: %p, limit %d", h, limit)
	}

	// A peer moves: the table asks the host only for the hops to this neighbour.
	host.routes[hopPeer] = hostnet.Neighbour{Addr: hopPeer, MAC: mac(3)}
	host.routes[hopFar] = hostnet.Neighbour{Addr: hopGate, MAC: mac(4)}
	table.refresh(host, table.leadingTo(map[netip.Addr]struct{}{hopPeer: {}}))
	wantHop(t, "peer that moved", peer, hopOwn, mac(3))
	wantHop(t, "another", far, hopOwn, mac(2))
	table.refresh(host, table.leadingTo(map[netip.Addr]struct{}{hopGate: {}}))
	wantHop(t, "gateway that moved", far, hopOwn, mac(4))

	// The route gets another gateway, for which the host has to look first. Later there is no
	// route for some time.
	second := hopGate.Prev()
	host.routes[hopFar] = hostnet.Neighbour{Addr: second}
	table.refresh(host, table.all())
	wantHop(t, "until the new gateway is found", far, hopOwn, mac(4))
	if v := host.takeVerified(); !slices.Equal(v, []netip.Addr{second}) {
		t.Errorf("looked for %v, want %v", v, second)
	}
	host.routes[hopFar] = hostnet.Neighbour{Addr: second, MAC: mac(5)}
	table.refresh(host, table.leadingTo(map[netip.Addr]struct{}{second: {}}))
	wantHop(t, "new gateway", far, hopOwn, mac(5))
	delete(host.routes, hopFar)
	table.refresh(host, table.all())
	wantHop(t, "without a route", far, hopOwn, mac(5))

	// The device's Ethernet address changes.
	tell := table.setMAC(hopOther)
	slices.SortFunc(tell, netip.Addr.Compare)
	if want := []netip.Addr{hopPeer, second}; !slices.Equal(tell, want) {
		t.Errorf("to be asked: %v, want %v", tell, want)
	}
	wantHop(t, "peer", peer, hopOther, mac(3))
	wantHop(t, "group", many, hopOther, frame.MAC{1, 0, 0x5E, 1, 2, 3})
	wantHop(t, "the device itself", own, hopOther, hopOther)

	// The device gets the peer's address, and loses it.
	has := true
	local := func(g *bth.GID) bool { return has && g.Addr() == hopPeer || g.Addr() == self }
	table.updateLocal(local)
	wantHop(t, "the peer's address is ours", peer, hopOther, hopOther)
	has = false
	table.updateLocal(local)
	table.refresh(host, table.all())
	wantHop(t, "and no longer", peer, hopOther, mac(3))
	wantHop(t, "group", many, hopOther, frame.MAC{1, 0, 0x5E, 1, 2, 3})
	runtime.KeepAlive(own)
}

// TestLearnedHops: a packet changes a learned hop, but not a resolved one.
func TestLearnedHops(t *testing.T) {
	table := newHops(hopOwn)
	table.maintained.Store(true)
	first, forged, true_ := frame.MAC{2, 1}, frame.MAC{2, 2}, frame.MAC{2, 3}
	h := table.learned(hopKey(hopPeer), first)
	if f, _ := table.resolved(hopKey(hopPeer)); f != nil {
		t.Error("a hop that was only learned counts as resolved")
	}
	table.learned(hopKey(hopPeer), forged)
	wantHop(t, "learned anew", h, hopOwn, forged)
	p := mustPath(t, frame.PathConfig{Src: hopKey(hopPeer).Local, Dst: hopKey(hopPeer).Peer, Hop: h})
	table.LookUp(p)
	fresh, doubts := table.takeWork()
	if len(fresh) != 1 || len(doubts) != 0 {
		t.Fatalf("work: %v, %v", fresh, doubts)
	}
	table.refresh(&fakeHost{routes: map[netip.Addr]hostnet.Neighbour{hopPeer: {Addr: hopPeer, MAC: true_}}}, fresh)
	wantHop(t, "asked", h, hopOwn, true_)
	table.learned(hopKey(hopPeer), forged)
	wantHop(t, "a forged packet", h, hopOwn, true_)
	table.LookUp(p)
	if fresh, _ := table.takeWork(); len(fresh) != 0 {
		t.Errorf("asked again: %v", fresh)
	}
	if !table.Owns(p) || newHops(hopOwn).Owns(p) || table.Owns(mustPath(t, frame.PathConfig{Src: hopKey(hopPeer).Local, Dst: hopKey(hopPeer).Peer})) {
		t.Error("Owns is wrong")
	}
}

// TestDoubts: the host verifies a neighbour at most once a second, even if many paths doubt it
// often. Without maintain there are no doubts.
func TestDoubts(t *testing.T) {
	table := newHops(hopOwn)
	h := table.get(hopKey(hopPeer), Neighbour{MAC: hopOther, Addr: hopPeer}, false)
	p := mustPath(t, frame.PathConfig{Src: hopKey(hopPeer).Local, Dst: hopKey(hopPeer).Peer, Hop: h})
	const second = mono.Time(time.Second)
	count := func() int { _, doubts := table.takeWork(); return len(doubts) }
	table.Doubt(second, p)
	if n := count(); n != 0 {
		t.Errorf("%d doubts are kept although no goroutine maintains the table", n)
	}
	table.maintained.Store(true)
	for now := second; now < 4*second; now += second / 100 {
		table.Doubt(now, p)
	}
	if n := count(); n != 3 {
		t.Errorf("%d doubts in three seconds", n)
	}
	table.Doubt(9*second, mustPath(t, frame.PathConfig{Src: hopKey(hopPeer).Local, Dst: hopKey(hopPeer).Peer})) // no hop of a table

	host := &fakeHost{routes: map[netip.Addr]hostnet.Neighbour{hopPeer: {Addr: hopPeer, MAC: hopOther}}}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { table.maintain(host, done) })
	table.Doubt(9*second, p)
	for deadline := time.Now().Add(10 * time.Second); len(host.takeVerified()) == 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("no neighbour was verified")
		}
	}
	close(done)
	wg.Wait()
}

// closingHost closes the device when it is asked for the first time.
type closingHost struct {
	fakeHost
	done  chan struct{}
	asked int
}

func (h *closingHost) Known(src, dst netip.Addr) (hostnet.Neighbour, bool, error) {
	if h.asked++; h.asked == 1 {
		close(h.done)
	}
	return h.fakeHost.Known(src, dst)
}

// TestMaintainEnds: closing a device does not wait for the lookups of thousands of peers.
func TestMaintainEnds(t *testing.T) {
	table := newHops(hopOwn)
	table.maintained.Store(true)
	var paths []*frame.Path
	for i := range 1000 {
		key := hopKey(netip.AddrFrom4([4]byte{10, 0, byte(1 + i>>8), byte(i)}))
		p := mustPath(t, frame.PathConfig{Src: key.Local, Dst: key.Peer, Hop: table.learned(key, hopOther)})
		paths = append(paths, p)
		table.LookUp(p)
		table.Doubt(mono.Time(time.Second), p)
	}
	host := &closingHost{done: make(chan struct{})}
	table.maintain(host, host.done)
	if host.asked > 100 {
		t.Errorf("%d hops were looked up after the device was closed", host.asked)
	}
	runtime.KeepAlive(paths)
}

// TestHopsForgotten: the table drops hops without paths, and their entries by neighbour.
func TestHopsForgotten(t *testing.T) {
	table := newHops(hopOwn)
	for i := range byte(100) {
		peer := netip.AddrFrom4([4]byte{10, 0, 1, i})
		table.get(hopKey(peer), Neighbour{MAC: hopOther, Addr: hopGate}, false)
	}
	kept := table.get(hopKey(hopPeer), Neighbour{MAC: hopOther, Addr: hopPeer}, false)
	for deadline := time.Now().Add(10 * time.Second); ; {
		runtime.GC()
		table.mu.Lock()
		n, leads := len(table.inUse), len(table.byAddr)
		table.mu.Unlock()
		if n == 1 && leads == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d hops, by %d neighbours", n, leads)
		}
	}
	if h, _ := table.resolved(hopKey(hopPeer)); h != kept {
		t.Error("the one in use was dropped")
	}
	runtime.KeepAlive(kept)
}

// TestSource: the host's route decides, then the longest prefix in common.
func TestSource(t *testing.T) {
	gid := func(a string) bth.GID { return bth.GIDFrom(netip.MustParseAddr(a)) }
	table := New(Config{GIDs: []bth.GID{gid("10.0.0.1"), gid("192.168.5.1"), gid("fe80::1"), gid("fd00::1"), gid("2001:db8::1"), gid("192.168.5.2")}})
	for _, test := range []struct{ dst, want string }{
		{"192.168.5.9", "192.168.5.1"}, {"10.0.0.9", "10.0.0.1"}, {"10.200.0.1", "10.0.0.1"}, {"192.168.99.1", "192.168.5.1"},
		{"fe80::9", "fe80::1"}, {"fd00::9", "fd00::1"}, {"2001:db8:1::9", "2001:db8::1"},
	} {
		if _, g, err := table.Source(netip.Addr{}, gid(test.dst)); err != nil || g != gid(test.want) {
			t.Errorf("to %s from %v, %v, want %s", test.dst, g.Addr(), err, test.want)
		}
	}
	table.resolver = prefers("192.168.5.2")
	if i, g, err := table.Source(netip.Addr{}, gid("10.0.0.9")); err != nil || g != gid("192.168.5.2") || i != 5 {
		t.Errorf("from %v, %v, and the route says 192.168.5.2", g.Addr(), err)
	}
	table.resolver = prefers("172.16.0.1") // of another interface
	if _, g, err := table.Source(netip.Addr{}, gid("10.0.0.9")); err != nil || g != gid("10.0.0.1") {
		t.Errorf("from %v, %v", g.Addr(), err)
	}
}

// prefers is a host whose routes prefer an address.
type prefers string

func (p prefers) Source(netip.Addr) (netip.Addr, error) { return netip.ParseAddr(string(p)) }
func (p prefers) Resolve(context.Context, netip.Addr, netip.Addr) (Neighbour, error) {
	return Neighbour{}, nil
}

// TestGIDSet: Has gives the same answers for a table of many addresses, which uses a map, as
// for a table of few, which it searches.
func TestGIDSet(t *testing.T) {
	var want []bth.GID
	for i := range 300 {
		table, _ := new(GIDTable).update(want)
		for k := range 302 {
			g := bth.GID{0: 0xFD, 14: byte(k >> 8), 15: byte(k)}
			if table.Has(&g) != (k < i) {
				t.Fatalf("%d addresses: has(%d) = %v", i, k, table.Has(&g))
			}
		}
		if zero := (bth.GID{}); table.Has(&zero) {
			t.Fatal("it has none")
		}
		if len(want) > fewGIDs && table.set == nil {
			t.Fatalf("%d addresses are looked through", len(want))
		}
		want = append(want, bth.GID{0: 0xFD, 14: byte(i >> 8), 15: byte(i)})
	}
}

// TestUnlearnedHops: the table does not ask the host for hops that QP 1 has released, and
// keeps resolved hops.
func TestUnlearnedHops(t *testing.T) {
	table := newHops(hopOwn)
	table.maintained.Store(true)
	resolved := table.get(hopKey(hopPeer), Neighbour{MAC: hopOther, Addr: hopPeer}, false)
	kept := mustPath(t, frame.PathConfig{Src: hopKey(hopPeer).Local, Dst: hopKey(hopPeer).Peer, Hop: resolved})
	table.Unlearn(kept)
	if h, _ := table.resolved(hopKey(hopPeer)); h != resolved {
		t.Error("the hop that was resolved is forgotten")
	}
	key := hopKey(hopFar)
	p := mustPath(t, frame.PathConfig{Src: key.Local, Dst: key.Peer, Hop: table.learned(key, hopOther)})
	table.LookUp(p)
	table.Unlearn(p)
	host := &fakeHost{}
	fresh, _ := table.takeWork()
	if table.refresh(host, fresh); host.asked != 0 {
		t.Errorf("the host was asked %d times", host.asked)
	}
	again := mustPath(t, frame.PathConfig{Src: key.Local, Dst: key.Peer, Hop: table.learned(key, hopOther)})
	table.LookUp(again)
	fresh, _ = table.takeWork()
	if table.refresh(host, fresh); len(fresh) != 1 || host.asked != 1 {
		t.Errorf("%d hops to be looked up, the host was asked %d times", len(fresh), host.asked)
	}
}

// TestHopsApart: a packet from an address does not change the hop that a target has learned
// from another packet of this address. A hop that the resolver finds replaces all learned
// ones.
func TestHopsApart(t *testing.T) {
	key, first, second, third := hopKey(hopPeer), frame.MAC{2, 1}, frame.MAC{2, 2}, frame.MAC{2, 3}
	table := New(Config{MAC: hopOwn})
	table.maintained.Store(true)
	apart := func(mac frame.MAC) *frame.Path {
		t.Helper()
		p, err := table.LearnApart(key.Local, key.Peer, mac)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	count := func(want int) {
		t.Helper()
		if n, _ := table.Count(); n != want {
			t.Errorf("%d hops, want %d", n, want)
		}
	}
	one, two, three := apart(first), apart(second), apart(third)
	qp1, err := table.Learn(key.Local, key.Peer, third, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := table.AnswerOnce(key.Local, key.Peer, third)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []struct {
		name string
		path *frame.Path
		mac  frame.MAC
	}{{"the first", one, first}, {"the second", two, second}, {"the third", three, third}, {"that of QP 1", qp1, third}, {"the answer", answer, third}} {
		wantHop(t, p.name, p.path.Hop(), hopOwn, p.mac)
	}
	count(4)
	table.setMAC(hopOther)
	wantHop(t, "with another address of the device", one.Hop(), hopOther, first)
	table.setMAC(hopOwn)
	table.Unlearn(two) // in the middle of the list
	count(3)
	table.Unlearn(two)
	table.Unlearn(answer)
	count(3)

	table.LookUp(one)
	fresh, _ := table.takeWork()
	host := &fakeHost{routes: map[netip.Addr]hostnet.Neighbour{hopPeer: {Addr: hopPeer, MAC: hopOther}}}
	table.refresh(host, fresh)
	wantHop(t, "looked up", one.Hop(), hopOwn, hopOther)
	wantHop(t, "not looked up", three.Hop(), hopOwn, third)
	host.routes[hopPeer] = hostnet.Neighbour{Addr: hopPeer, MAC: second}
	table.NeighboursChanged(host, map[netip.Addr]struct{}{hopPeer: {}})
	wantHop(t, "the peer has moved", one.Hop(), hopOwn, second)

	resolved := table.get(key, Neighbour{MAC: hopOther, Addr: hopPeer}, false)
	for name, p := range map[string]*frame.Path{"one": one, "three": three, "QP 1": qp1} {
		wantHop(t, "resolved: "+name, p.Hop(), hopOwn, hopOther)
	}
	if apart(first).Hop() != resolved {
		t.Error("a target's path does not use the resolved hop")
	}
	table.Unlearn(one)
	table.Unlearn(three)
	table.Unlearn(qp1)
	count(1)
	runtime.KeepAlive(resolved)
}
