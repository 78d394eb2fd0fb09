package roce

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

// gsiPaths is how many paths QP 1 remembers that nothing relies on, less those
// that something does.
const gsiPaths = 4096

type pathKey struct{ local, peer bth.GID }

// ways lead to the peers that datagrams of QP 1 go to: those we resolved, and those
// that wrote to us, which are answered where they came from. When there are too
// many, the one goes that was made, or given back, longest ago. It takes no search:
// each packet from a new address may need it.
type ways struct {
	byKey map[pathKey]*way
	idle  way // head of the ring of those without users, oldest first
}

// way is a path and how many connections and requests rely on it.
type way struct {
	key        pathKey
	path       *frame.Path
	users      int
	prev, next *way // in the ring, nil while there are users
}

func newWays() *ways {
	w := &ways{byKey: map[pathKey]*way{}}
	w.idle.prev, w.idle.next = &w.idle, &w.idle
	return w
}

// remember keeps a path. It returns the one that made room, if one had to.
func (ws *ways) remember(key pathKey, p *frame.Path) (gone *frame.Path) {
	if w := ws.byKey[key]; w != nil {
		w.path = p
		return nil
	}
	if oldest := ws.idle.next; len(ws.byKey) >= gsiPaths && oldest != &ws.idle {
		oldest.leave()
		delete(ws.byKey, oldest.key)
		gone = oldest.path
	}
	w := &way{key: key, path: p}
	ws.byKey[key] = w
	ws.rest(w)
	return gone
}

// hold relies on a way, nil if it is not known, until release. Both are called
// with the shard locked.
func (ws *ways) hold(key pathKey) *way {
	w := ws.byKey[key]
	if w == nil {
		return nil
	}
	if w.users == 0 {
		w.leave()
	}
	w.users++
	return w
}

func (ws *ways) release(w *way) {
	if w == nil {
		return
	}
	if w.users--; w.users == 0 {
		ws.rest(w)
	}
}

// rest enters a way without users as the youngest.
func (ws *ways) rest(w *way) {
	w.prev, w.next = ws.idle.prev, &ws.idle
	w.prev.next, w.next.prev = w, w
}

// leave takes a way out of the ring.
func (w *way) leave() {
	w.prev.next, w.next.prev = w.next, w.prev
	w.prev, w.next = nil, nil
}
