package mr

import (
	"runtime"
	"sync/atomic"

	"github.com/goroce/roce/bth"
)

// grant is the object that one key opens: a range of addresses, its memory and
// the rights. A region has one grant; a window is a further grant on the
// memory of a region. A grant fills one cache line, and a lookup reads no
// other.
//
// The grant of a region that the program registered changes only while nobody else uses the
// table. All other grants are revocable: one shard binds, registers or invalidates while
// others look keys up. The word of a revocable grant guards its other fields; it has a count
// of pins and a state. A reader adds a pin, checks that the state is valid, and only then
// reads the other fields. A writer claims the grant by its state, waits until there are no
// pins, and only then writes them. (The Add of the pin and the compare-and-swap that
// publishes the change order the accesses between them.)
type grant struct {
	word   atomic.Uint64
	mr     *MR // memory behind it
	pd     *PD
	iova   uint64 // first address
	length uint64
	base   uint64 // offset of iova in the memory
	access Access
	qpn    bth.QPN // only through this queue pair; 0: any
	gen    uint32  // counts the changes of what it opens
	name   uint32  // the upper 24 bits of its keys; below them its kind
}

// kind is the kind of a grant's object; it determines which code may change the grant. It
// never changes.
type kind uint8

func (g *grant) kind() kind { return kind(g.name & variantMask) }

const (
	userRegion kind = iota
	fastRegion
	indirectRegion
	nullRegion
	window1
	window2
)

// window reports whether the grant is of a window.
func (k kind) window() bool { return k >= window1 }

// revocable reports whether grants of the kind change while other shards look keys up.
func (k kind) revocable() bool { return k != userRegion }

// The word of a grant: the variant of the key (bits 0–7), the state (8–15),
// the copies under way (16–31) and the windows bound to the region (32–63).
const (
	variantMask = 0xFF
	stateMask   = 0xFF << 8
	onePin      = 1 << 16
	pinMask     = 0xFFFF << 16
	oneWindow   = 1 << 32

	stateEnded   = 0 << 8 // its object is closed
	stateFree    = 1 << 8 // opens nothing: the FREE of the standard
	stateClaimed = 2 << 8 // being changed
	stateValid   = 3 << 8
)

// opens reports whether a key opens the grant of a word. It does not compare the upper
// bits of the key: the lookup has used them to find the grant.
func opens(word uint64, key uint32) bool {
	return word&(variantMask|stateMask) == uint64(key&variantMask)|stateValid
}

// ended reports whether the object of the grant is closed.
func (g *grant) ended() bool { return g.word.Load()&stateMask == stateEnded }

// windows returns how many windows are bound to the region.
func (g *grant) windows() int { return int(g.word.Load() / oneWindow) }

// pin keeps a grant unchanged until unpin, and reports whether key opens it; if not, there is
// no pin.
func (g *grant) pin(key uint32) bool {
	if opens(g.word.Add(onePin), key) {
		return true
	}
	g.unpin()
	return false
}

// pinned is pin for a caller that knows the generation of the grant instead of a key.
func (g *grant) pinned(gen uint32) bool {
	if !g.pinValid() {
		return false
	}
	if g.gen == gen {
		return true
	}
	g.unpin()
	return false
}

// pinValid is pin for a caller that accepts any key and generation.
func (g *grant) pinValid() bool {
	if g.word.Load()&stateMask != stateValid {
		return false // without a pin: a writer waits until there are none
	}
	if g.word.Add(onePin)&stateMask == stateValid {
		return true
	}
	g.unpin()
	return false
}

// unpin removes the pin. Between pin and unpin is at most one copy, so a writer waits no longer
// than that.
func (g *grant) unpin() { g.word.Add(^uint64(onePin - 1)) }

// claim claims a grant for a change if test accepts its word, and reports whether it did. No
// reader has a pin when it returns true, and the caller must publish. claim waits for a change
// by another shard.
func (g *grant) claim(test func(word uint64) bool) bool {
	for i := 0; ; i++ {
		w := g.word.Load()
		switch {
		case w&stateMask == stateClaimed:
			relax(i)
			continue
		case !test(w):
			return false
		}
		if g.word.CompareAndSwap(w, w&^stateMask|stateClaimed) {
			break
		}
	}
	for i := 0; g.word.Load()&pinMask != 0; i++ {
		relax(i)
	}
	return true
}

// publish ends a change. A reader that sees the new state sees all fields written before.
func (g *grant) publish(key uint32, state uint64) {
	for {
		w := g.word.Load()
		if g.word.CompareAndSwap(w, w&^(variantMask|stateMask)|uint64(key&variantMask)|state) {
			return
		}
	}
}

// addWindow counts a window that is bound to the region, if key still opens the region.
func (g *grant) addWindow(key uint32) bool {
	for {
		w := g.word.Load()
		if !opens(w, key) {
			return false
		}
		if g.word.CompareAndSwap(w, w+oneWindow) {
			return true
		}
	}
}

// dropWindow takes a window off the count.
func (g *grant) dropWindow() { g.word.Add(^uint64(oneWindow - 1)) }

// relax is called in a loop that waits for a few instructions of another shard; i counts the calls. It yields the
// processor in case the goroutine of that shard does not run.
func relax(i int) {
	if i&63 == 63 {
		runtime.Gosched()
	}
}
