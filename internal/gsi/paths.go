package gsi

import (
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/route"
)

// maxPaths is the number of paths without users that QP 1 keeps.
const maxPaths = 4096

// pathCache keeps the paths for datagrams of QP 1: resolved ones, and paths back to the
// sources of datagrams. When there are too many, it evicts the path that was made or
// released longest ago. It needs no search for that, because each packet from a new
// address may cause an eviction.
type pathCache struct {
	byKey  map[route.Key]*cachedPath
	unused cachedPath // head of the ring of paths without users, oldest first
}

// cachedPath is a path with the number of connections and requests that use
// it.
type cachedPath struct {
	key        route.Key
	path       *frame.Path
	users      int
	prev, next *cachedPath // in the ring, nil while there are users
}

func newPathCache() *pathCache {
	c := &pathCache{byKey: map[route.Key]*cachedPath{}}
	c.unused.prev, c.unused.next = &c.unused, &c.unused
	return c
}

// put stores a path. It returns the evicted path, if any.
func (c *pathCache) put(key route.Key, path *frame.Path) (evicted *frame.Path) {
	if p := c.byKey[key]; p != nil {
		p.path = path
		return nil
	}
	if oldest := c.unused.next; len(c.byKey) >= maxPaths && oldest != &c.unused {
		oldest.unlink()
		delete(c.byKey, oldest.key)
		evicted = oldest.path
	}
	p := &cachedPath{key: key, path: path}
	c.byKey[key] = p
	c.link(p)
	return evicted
}

// retain adds a user to a path, until release. It returns nil if there is no path with
// that key.
func (c *pathCache) retain(key route.Key) *cachedPath {
	p := c.byKey[key]
	if p == nil {
		return nil
	}
	if p.users == 0 {
		p.unlink()
	}
	p.users++
	return p
}

// release removes a user. It does nothing for nil.
func (c *pathCache) release(p *cachedPath) {
	if p == nil {
		return
	}
	if p.users--; p.users == 0 {
		c.link(p)
	}
}

// link adds a path without users to the ring, as the youngest.
func (c *pathCache) link(p *cachedPath) {
	p.prev, p.next = c.unused.prev, &c.unused
	p.prev.next, p.next.prev = p, p
}

// unlink removes a path from the ring.
func (p *cachedPath) unlink() {
	p.prev.next, p.next.prev = p.next, p.prev
	p.prev, p.next = nil, nil
}
