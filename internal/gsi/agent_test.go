package gsi

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"runtime/debug"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/hostnet"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/mr"
)

var (
	ownAddr  = netip.MustParseAddr("10.0.0.1")
	peerAddr = netip.MustParseAddr("10.0.0.9")
)

// testHost is a resolver, and a host without neighbours.
type testHost struct{ asked int }

func (*testHost) Resolve(context.Context, netip.Addr, netip.Addr) (route.Neighbour, error) {
	return route.Neighbour{MAC: frame.MAC{2, 9}, Addr: peerAddr}, nil
}

func (h *testHost) Known(netip.Addr, netip.Addr) (hostnet.Neighbour, bool, error) {
	h.asked++
	return hostnet.Neighbour{}, false, context.Canceled
}

func (*testHost) Verify(netip.Addr) error { return nil }

// testAgent makes an agent of a polled NIC on a network in the process.
func testAgent(t *testing.T, host route.Resolver) *Agent {
	t.Helper()
	port, err := mem.NewHub(mem.Config{}).Port("p", frame.MAC{2, 1})
	if err != nil {
		t.Fatal(err)
	}
	routes := route.New(route.Config{MAC: port.Info().MAC, Resolver: host, GIDs: []bth.GID{bth.GIDFrom(ownAddr)}})
	n, err := nic.New(nic.Config{Ports: []link.Port{port}, Routes: routes, Polled: true, Rand: rand.Uint64, Notify: func(nic.Event) {}})
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(Config{NIC: n, Memory: mr.NewTable(rand.Uint64), Rand: rand.Uint64, Manager: cm.Config{GUID: 1}})
	if err != nil {
		t.Fatal(err)
	}
	n.Start(g)
	t.Cleanup(func() { n.Close(-1) })
	return g
}

// TestStrangersPaths: the numbers of paths, of next hops learned from packets, and of waiting
// lookups stay bounded for any number of strangers, without the help of the garbage collector.
// The resolved path in use stays.
func TestStrangersPaths(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const strangers = 4 * maxPaths
	host := &testHost{}
	g := testAgent(t, host)
	done := make(chan struct{})
	close(done)
	work := g.nic.Routes().Follow(host, done)
	r, err := g.Route(t.Context(), netip.Addr{}, peerAddr, 0)
	if err != nil {
		t.Fatal(err)
	}
	g.shard.Lock()
	defer g.shard.Unlock()
	g.remember(r.key(), r.path)
	kept := g.retain(r.key())
	for i := range strangers {
		p := &frame.Packet{Dst: r.local, Src: bth.GIDFrom(netip.AddrFrom4([4]byte{10, byte(1 + i>>16), byte(i >> 8), byte(i)})), SrcMAC: frame.MAC{2, 3}}
		g.learn(p)
		for range 2 {
			g.paths.release(g.retain(route.Key{Local: p.Dst, Peer: p.Src})) // a request that is over soon
		}
	}
	hops, unknown := g.nic.Routes().Count()
	if n := len(g.paths.byKey); n > maxPaths+1 || hops > maxPaths+1 {
		t.Errorf("%d paths and %d hops of %d strangers", n, hops, strangers)
	}
	if unknown == 0 || unknown > 256 {
		t.Errorf("%d hops are to be looked up", unknown)
	}
	if g.paths.byKey[r.key()] != kept || kept.path != r.path {
		t.Error("the path that is in use is forgotten")
	}
	if work(); host.asked > 64 {
		t.Errorf("the host was asked %d times by a device that is closed", host.asked)
	}
}

// TestEphemeralPorts: every port of the range comes once before any comes again, wherever the
// sequence begins and whatever its step.
func TestEphemeralPorts(t *testing.T) {
	for _, class := range []portClass{{0, 1}, {0, 64}, {63, 64}, {2, 3}} {
		for _, rnd := range []uint64{0, 3529 << 32, 5 * 3529 << 32, 28231<<32 | 28231, ^uint64(0), rand.Uint64()} {
			var g Agent
			g.ports.init(rnd, class)
			seen := map[uint16]bool{}
			for range portRange / class.modulus {
				p := g.EphemeralPort()
				if p < 32768 || p > 60999 || seen[p] || !g.HasPort(p) || uint32(p-32768)%class.modulus != class.residue {
					t.Fatalf("random number %#x, class %v: port %d after %d others", rnd, class, p, len(seen))
				}
				seen[p] = true
			}
		}
	}
}
