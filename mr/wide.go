package mr

import "sync/atomic"

// MaxOperand is the size of the largest operand of a masked atomic, in bytes.
const MaxOperand = 32

// Words is an operand of more than 8 bytes, or a mask or value for one: numbers of 8 bytes, each in the
// byte order of the host, as they lie in memory. An operand of 16 bytes uses the first two.
type Words [MaxOperand / 8]uint64

// AllowWide makes masked atomics of more than 8 bytes possible. No instruction changes so many bytes atomically: from now
// on every atomic of the device takes a lock, which makes all of them slower. No atomic may run during the call.
func (t *Table) AllowWide() { t.wide.Store(true) }

// WideCompareSwap is [Memory.MaskedCompareSwap] for 16 and 32 bytes: it compares all the bits in cmpMask, and stores all
// the bits in swapMask or none. It is atomic with the other atomics of the device. For the program each word of 8 bytes
// changes atomically, but it may see one word changed and another one not yet.
func (v Memory) WideCompareSwap(off uint64, o Operand, cmp, cmpMask, swap, swapMask *Words) (old Words, f Fault) {
	f = v.wide(off, o, func(b []byte) {
		equal := true
		for i := range len(b) / 8 {
			old[i] = loadWord(b[8*i:][:8])
			equal = equal && (old[i]^cmp[i])&cmpMask[i] == 0
		}
		for i := range len(b) / 8 {
			if equal {
				changeWord(b[8*i:][:8], func(x uint64) uint64 { return x&^swapMask[i] | swap[i]&swapMask[i] })
			}
		}
	})
	return old, f
}

// WideFetchAdd is [Memory.MaskedFetchAdd] for 16 and 32 bytes. The uppermost bit of every word of 8 bytes ends a field. See
// [Memory.WideCompareSwap].
func (v Memory) WideFetchAdd(off uint64, o Operand, add, boundary *Words) (old Words, f Fault) {
	f = v.wide(off, o, func(b []byte) {
		for i := range len(b) / 8 {
			old[i] = changeWord(b[8*i:][:8], func(x uint64) uint64 { return addFields(x, add[i], boundary[i]) })
		}
	})
	return old, f
}

// wide calls do with the bytes of an operand, while no other atomic of the device runs.
func (v Memory) wide(off uint64, o Operand, do func(b []byte)) Fault {
	t := v.m.table
	return v.piece(off, o.Size, func(b []byte, at uint64) {
		t.lockAtomics()
		defer t.unlockAtomics() // also if the memory was unmapped
		do(b[at : at+uint64(o.Size)])
	})
}

// loadWord reads a word of any alignment, atomically if it is aligned.
func loadWord(b []byte) uint64 {
	if w := word(b); w != nil {
		return atomic.LoadUint64(w)
	}
	return load(b)
}

// changeWord changes a word of any alignment, atomically if it is aligned. It returns the previous value. If the word
// is not aligned, the caller has locked the atomics.
func changeWord(b []byte, change func(uint64) uint64) (old uint64) {
	w := word(b)
	if w == nil {
		old = load(b)
		store(b, change(old))
		return old
	}
	for {
		old = atomic.LoadUint64(w)
		if n := change(old); n == old || atomic.CompareAndSwapUint64(w, old, n) {
			return old
		}
	}
}
