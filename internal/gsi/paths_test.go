package gsi

import (
	"net/netip"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/route"
)

// strangerKey is the key of the path to stranger i.
func strangerKey(i int) route.Key {
	return route.Key{Peer: bth.GIDFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))}
}

// TestPathCacheEvictsWithoutSearch: a new path evicts one without reading any but the oldest unused
// one: each packet from a new address may need room. The paths in use are nil
// here: reading one would panic.
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

// TestPathCacheEvictsOldest: the path goes that was made, or released, longest ago, and none in use.
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
