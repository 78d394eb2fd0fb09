package gsi

import (
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/route"
)

// maxPaths is how many paths QP 1 keeps, those with users aside.
const maxPaths = 4096

// pathCache keeps the paths to the peers that datagrams of QP 1 go to: those that were
// resolved, and those back to peers that wrote to us. When there are too many, the path
// goes that was made, or released, longest ago. That takes no search: each packet from a
// new address may need it.
type pathCache struct {
	byKey  map[route.Key]*cachedPath
	unused cachedPath // head of the ring of paths without users, oldest first
}

// cachedPath is a path and how many connections and requests use it.
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

// put keeps a path. It returns the path that made room, if one had to.
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

// retain counts one more user of a path, until release. It returns nil if there is none
// with that key.
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

// release takes a user away; nil has none.
func (c *pathCache) release(p *cachedPath) {
	if p == nil {
		return
	}
	if p.users--; p.users == 0 {
		c.link(p)
	}
}

// link enters a path without users into the ring, as the youngest.
func (c *pathCache) link(p *cachedPath) {
	p.prev, p.next = c.unused.prev, &c.unused
	p.prev.next, p.next.prev = p, p
}

// unlink takes a path out of the ring.
func (p *cachedPath) unlink() {
	p.prev.next, p.next.prev = p.next, p.prev
	p.prev, p.next = nil, nil
}
