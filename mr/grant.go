package mr

import (
	"runtime"
	"sync/atomic"

	"github.com/goroce/roce/bth"
)

// grant is what one key opens: a range of addresses, the memory behind it and
// the rights. A region has one; a window is a further grant on the memory of a
// region. It fills one cache line, the only one a lookup reads.
//
// The grant of a user's region changes only while every user of the table
// stands still. The others are revocable: one shard binds, registers or
// invalidates while others look up. For those the word decides: everything
// else is read only by who holds a pin and has seen the word valid then, and
// written only by who has claimed the grant and has seen the pins go. (The
// pin's Add and the publishing compare-and-swap order what lies between them.)
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

// kind tells what a grant is, and so who may change it. It never changes.
type kind uint8

func (g *grant) kind() kind { return kind(g.name & variantMask) }

const (
	userRegion kind = iota
	fastRegion
	indirectRegion
	window1
	window2
)

// window reports whether the grant is of a window.
func (k kind) window() bool { return k >= window1 }

// revocable reports whether grants of the kind change while others look.
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

// opens reports whether a word is of a grant that key opens. The upper bits
// of the key need no look: they led here.
func opens(word uint64, key uint32) bool {
	return word&(variantMask|stateMask) == uint64(key&variantMask)|stateValid
}

// ended reports whether the object of the grant is closed.
func (g *grant) ended() bool { return g.word.Load()&stateMask == stateEnded }

// windows returns how many windows are bound to the region.
func (g *grant) windows() int { return int(g.word.Load() / oneWindow) }

// pin keeps a grant as it is until unpin, if key opens it. The caller has seen
// that it did.
func (g *grant) pin(key uint32) bool {
	if opens(g.word.Add(onePin), key) {
		return true
	}
	g.unpin()
	return false
}

// pinned is pin for who knows the generation and not the key.
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

// pinValid is pin for who takes what there is.
func (g *grant) pinValid() bool {
	if g.word.Load()&stateMask != stateValid {
		return false // without a pin: who changes it waits for those to go
	}
	if g.word.Add(onePin)&stateMask == stateValid {
		return true
	}
	g.unpin()
	return false
}

// unpin lets go. Between the two lies one copy at most, so that who waits for
// the pins to go waits no longer than that.
func (g *grant) unpin() { g.word.Add(^uint64(onePin - 1)) }

// claim takes a grant that test accepts for a change: nobody looks at it any
// more when it returns true, and publish must follow. Another's change is
// waited for.
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

// publish ends a change: everything written before is seen by who finds the
// key with this state.
func (g *grant) publish(key uint32, state uint64) {
	for {
		w := g.word.Load()
		if g.word.CompareAndSwap(w, w&^(variantMask|stateMask)|uint64(key&variantMask)|state) {
			return
		}
	}
}

// addWindow counts a window in, if key still opens the region.
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

// dropWindow counts a window out.
func (g *grant) dropWindow() { g.word.Add(^uint64(oneWindow - 1)) }

// relax is called, with a count, by who waits for the few instructions of
// another shard; should that one not be running, it lets it.
func relax(i int) {
	if i&63 == 63 {
		runtime.Gosched()
	}
}
