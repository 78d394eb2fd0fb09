package mr

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// CompareSwap stores swap in the 64-bit word at off if the word equals cmp,
// and returns the previous value. The word is in the byte order of the host,
// as with every RDMA device (checked against rxe on a little-endian host). It
// is atomic with all RDMA atomics of the device and, where the memory is
// 8-byte aligned, with sync/atomic in the program.
func (v Memory) CompareSwap(off, cmp, swap uint64) (old uint64, f Fault) {
	f = v.word(off, func(b []byte) { old = v.m.table.compareSwap(b, cmp, swap) })
	return old, f
}

// FetchAdd adds add to the 64-bit word at off and returns the previous value.
// See [Memory.CompareSwap].
func (v Memory) FetchAdd(off, add uint64) (old uint64, f Fault) {
	f = v.word(off, func(b []byte) { old = v.m.table.fetchAdd(b, add) })
	return old, f
}

// AtomicWrite stores x in the 64-bit word at off atomically. See
// [Memory.CompareSwap].
func (v Memory) AtomicWrite(off, x uint64) Fault {
	return v.word(off, func(b []byte) { v.m.table.atomicWrite(b, x) })
}

func (t *Table) compareSwap(b []byte, cmp, swap uint64) (old uint64) {
	w := word(b)
	if t.exclusive(w != nil) {
		t.lockAtomics()
		defer t.unlockAtomics() // also if the memory was unmapped
	}
	if w == nil {
		if old = load(b); old == cmp {
			store(b, swap)
		}
		return old
	}
	for {
		old = atomic.LoadUint64(w)
		if old != cmp || atomic.CompareAndSwapUint64(w, old, swap) {
			return old
		}
	}
}

func (t *Table) fetchAdd(b []byte, add uint64) (old uint64) {
	w := word(b)
	if t.exclusive(w != nil) {
		t.lockAtomics()
		defer t.unlockAtomics() // also if the memory was unmapped
	}
	if w == nil {
		old = load(b)
		store(b, old+add)
		return old
	}
	return atomic.AddUint64(w, add) - add
}

func (t *Table) atomicWrite(b []byte, x uint64) {
	w := word(b)
	if t.exclusive(w != nil) {
		t.lockAtomics()
		defer t.unlockAtomics() // also if the memory was unmapped
	}
	if w == nil {
		store(b, x)
		return
	}
	atomic.StoreUint64(w, x)
}

// word returns b as a word for sync/atomic, or nil if the memory is not
// aligned: addresses on the wire are multiples of 8, but a slice may start
// anywhere and a region may have any address.
func word(b []byte) *uint64 {
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)&7 != 0 {
		return nil
	}
	return (*uint64)(p)
}

// exclusive reports whether an atomic needs the lock: one on a misaligned word does, and all do if an operand
// may have several words.
func (t *Table) exclusive(aligned bool) bool { return !aligned || t.wide.Load() }

// lockAtomics waits for other shards' atomics on misaligned words and on operands of several words.
// If an aligned and a misaligned region cover the same memory, the atomics of one are not atomic with
// those of the other.
func (t *Table) lockAtomics() {
	for i := 0; !t.excluded.CompareAndSwap(0, 1); i++ {
		relax(i)
	}
}

func (t *Table) unlockAtomics() { t.excluded.Store(0) }

// load and store access a word of any alignment in host byte order.
func load(b []byte) uint64     { return binary.NativeEndian.Uint64(b) }
func store(b []byte, v uint64) { binary.NativeEndian.PutUint64(b, v) }
