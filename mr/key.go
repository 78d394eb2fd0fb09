package mr

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/ids"
)

// A memory key is a number of 24 bits, drawn at random from the free ones, and a variant of 8 bits. A peer that knows
// some keys cannot guess others: the published attacks on RDMA start from predictable keys (ReDMArk, USENIX Security
// 2021). The variant is the part of the key that, by the standard, the consumer of a fast registration or a type 2
// window chooses; at first it is random, too.

// keyRest is how many keys, the last that ended, the table does not hand out again. A peer
// that still uses one of them opens nothing.
const keyRest = 4096

func newKeys(rnd func() uint64) *ids.Table[grant] {
	return ids.NewTable[grant](ids.Config{Max: MaxRegions + MaxWindows, Rand: rnd, Rest: keyRest})
}

// newVariant returns a key of the same object that differs from last. It never returns 0,
// so that a key which a program forgot to set cannot work.
func (t *Table) newVariant(last uint32) uint32 {
	key := last&^variantMask | uint32(t.rnd()&variantMask)
	for key == last || key == 0 {
		key = incKey(key)
	}
	return key
}

// sameName reports whether two keys are of one object: whether only their variants differ.
func sameName(a, b uint32) bool { return (a^b)&^variantMask == 0 }

// IncRKey returns the key with its low byte, the consumer's part, incremented
// (ibv_inc_rkey, ib_inc_rkey). The new key is of the same object. A program
// uses it for a registration or a bind, so that the previous peer does not
// know the new key.
func IncRKey(k bth.RKey) bth.RKey { return bth.RKey(incKey(uint32(k))) }

func incKey(k uint32) uint32 { return k&^variantMask | (k+1)&variantMask }
