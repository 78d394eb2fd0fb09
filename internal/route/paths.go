package route

import (
	"runtime"
	"sync"
	"weak"

	"github.com/goroce/roce/bth/frame"
)

// paths are the paths in use of a device with one source port. Queue pairs with the same route
// to the same peer share one: thousands of them then take less memory and fewer cache misses.
// [Table] has a pointer to it: with a value, a path would be reachable from its own cleanup.
type paths struct {
	mu    sync.Mutex
	inUse map[frame.PathConfig]weak.Pointer[frame.Path]
}

func newPaths() *paths {
	return &paths{inUse: map[frame.PathConfig]weak.Pointer[frame.Path]{}}
}

// get returns the path of a configuration; others may share it.
func (ps *paths) get(c frame.PathConfig) (*frame.Path, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.inUse[c].Value(); p != nil {
		return p, nil
	}
	p, err := frame.NewPath(c)
	if err != nil {
		return nil, err
	}
	ps.inUse[c] = weak.Make(p)
	runtime.AddCleanup(p, ps.forget, c)
	return p, nil
}

// forget drops a path without users.
func (ps *paths) forget(c frame.PathConfig) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.inUse[c].Value() == nil {
		delete(ps.inUse, c)
	}
}
