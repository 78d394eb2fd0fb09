package gsi

import (
	"net/netip"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/mono"
)

// strangerKey is the key of the path to stranger i.
func strangerKey(i int) route.Key {
	return route.Key{Peer: bth.GIDFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))}
}

// TestPathCacheEvictsWithoutSearch: to evict a path, put reads only the oldest unused one, because
// each packet from a new address may need room. The paths in use are nil here, so reading one would
// panic.
func TestPathCacheEvictsWithoutSearch(t *testing.T) {
	c := newPathCache()
	for i := range maxPaths {
		c.byKey[strangerKey(i)] = nil
	}
	c.put(strangerKey(maxPaths), nil)
	c.put(strangerKey(maxPaths+1), nil)
	if len(c.byKey) != maxPaths+1 || c.byKey[strangerKey(maxPaths)] != nil || c.byKey[strangerKey(maxPaths+1)] == nil {
		t.Errorf("%d paths; want those in use and the last one", len(c.byKey))
	}
}

// TestPathCacheEvictsOldest: put evicts the path that was made or released longest ago, and never a
// path in use.
func TestPathCacheEvictsOldest(t *testing.T) {
	c := newPathCache()
	for i := range maxPaths {
		c.put(strangerKey(i), nil)
	}
	c.retain(strangerKey(1)) // stays in use
	c.release(c.retain(strangerKey(2)))
	for i, gone := range []int{0, 3, 4} {
		c.put(strangerKey(maxPaths+i), nil)
		if _, there := c.byKey[strangerKey(gone)]; there || len(c.byKey) != maxPaths {
			t.Errorf("the path %d is there: %v, of %d", gone, there, len(c.byKey))
		}
	}
	for _, i := range []int{1, 2, 5} {
		if c.byKey[strangerKey(i)] == nil {
			t.Errorf("the path %d is gone", i)
		}
	}
}

// TestPathOfLeaving: a destroyed connection repeats its DREQ, so it keeps its path until the peer
// has answered, even if many strangers send datagrams meanwhile.
func TestPathOfLeaving(t *testing.T) {
	g := testAgent(t, &testHost{})
	r, err := g.Route(t.Context(), netip.Addr{}, peerAddr, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := g.NewConn(Handler{})
	if err := c.Connect(r, cm.ConnectParam{ServiceID: cm.Service(cm.PortSpaceTCP, 1)}); err != nil {
		t.Fatal(err)
	}
	receive := func(m cm.Message) {
		var b [cm.MADLen]byte
		m.Put(&b)
		g.do(func(now mono.Time) { g.manager.HandleMAD(now, r.DGID, r.local, b[:]) })
	}
	receive(&cm.REP{LocalID: 7, RemoteID: c.Info().LocalID(), LocalGUID: 2, QPN: 0x20})
	if err := c.ReadyToUse(nil); err != nil {
		t.Fatal(err)
	}
	c.Destroy()
	for i := range 2 * maxPaths {
		g.do(func(mono.Time) {
			g.learn(&frame.Packet{Dst: r.local, Src: bth.GIDFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})), SrcMAC: frame.MAC{2, 3}})
		})
	}
	if g.paths.byKey[r.key()] == nil {
		t.Fatal("the path is forgotten while the DREQ is repeated")
	}
	receive(&cm.DREP{LocalID: 7, RemoteID: c.Info().LocalID()})
	if p, n := g.Census(), g.paths.byKey[r.key()]; p.Conns != 0 || p.PathUsers != 0 || n == nil {
		t.Errorf("after the DREP: %+v", p)
	}
}
