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
	kind   kind
}

// kind tells what a grant is, and so who may change it. It stays as long as
// the slot is in use.
type kind uint8

const (
	userRegion kind = iota
)

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

	slotFree     = 0 << 8 // nobody's
	stateFree    = 1 << 8 // opens nothing: the FREE of the standard
	stateClaimed = 2 << 8 // being changed
	stateValid   = 3 << 8
)

// opens reports whether a word is of a grant that key opens. The upper bits
// of the key need no look: they led here.
func opens(word uint64, key uint32) bool {
	return word&(variantMask|stateMask) == uint64(key&variantMask)|stateValid
}

// windows returns how many windows are bound to the region.
func (g *grant) windows() int { return int(g.word.Load() >> 32) }

// pin keeps a grant as it is until unpin, if key opens it.
func (g *grant) pin(key uint32) bool {
	if opens(g.word.Add(onePin), key) {
		return true
	}
	g.unpin()
	return false
}

// unpin lets go. Between the two lies one copy at most, so that who waits for
// the pins to go waits for that long.
func (g *grant) unpin() { g.word.Add(^uint64(onePin - 1)) }

// pinned is pin for who knows the generation and not the key.
func (g *grant) pinned(gen uint32) bool {
	if g.word.Add(onePin)&stateMask == stateValid && g.gen == gen {
		return true
	}
	g.unpin()
	return false
}

// relax lets others run while one waits for the few instructions of another
// shard.
func relax() { runtime.Gosched() }
