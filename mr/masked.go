package mr

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// Operand is the memory of a masked atomic: Size bytes (1, 2, 4, 8, 16 or 32) at the requester's address VA, a
// multiple of Size.
type Operand struct {
	VA   uint64
	Size int
}

// MaskedCompareSwap compares the operand at off with cmp, only in the bits of
// cmpMask. If they are equal, it stores the bits of swap that are in swapMask
// and leaves the others. It returns the previous value. The operand is a number
// in the byte order of the host.
//
// It is atomic with the other atomics of the device and, if the memory has the
// alignment of the address, with sync/atomic in the program. It changes a word
// of 8 bytes for an operand of 8, otherwise one of 4: it stores the bytes
// beside a small operand unchanged, and only if nobody has changed them
// meanwhile.
func (v Memory) MaskedCompareSwap(off uint64, o Operand, cmp, cmpMask, swap, swapMask uint64) (old uint64, f Fault) {
	return v.update(off, o, func(x uint64) uint64 {
		if (x^cmp)&cmpMask&o.mask() != 0 {
			return x
		}
		return x&^swapMask | swap&swapMask
	})
}

// MaskedFetchAdd adds to the operand at off field by field, without a carry
// from one field to the next. boundary has a one at the uppermost bit of every
// field; the uppermost bit of the operand always ends a field. MaskedFetchAdd
// returns the previous value. See [Memory.MaskedCompareSwap].
func (v Memory) MaskedFetchAdd(off uint64, o Operand, add, boundary uint64) (old uint64, f Fault) {
	return v.update(off, o, func(x uint64) uint64 { return addFields(x, add, boundary) })
}

// addFields adds field by field. Without their uppermost bits the fields have room for the carry; those
// bits are then added without one.
func addFields(x, add, boundary uint64) uint64 {
	return x&^boundary + add&^boundary ^ (x^add)&boundary
}

// mask has the bits of the operand.
func (o Operand) mask() uint64 { return ^uint64(0) >> (64 - 8*o.Size) }

// update changes an operand atomically. It may call change several times.
func (v Memory) update(off uint64, o Operand, change func(uint64) uint64) (old uint64, f Fault) {
	f = v.piece(off, o.Size, func(b []byte, at uint64) { old = v.m.table.update(b, at, o, change) })
	return old, f
}

func (t *Table) update(b []byte, at uint64, o Operand, change func(uint64) uint64) (old uint64) {
	x := b[at : at+uint64(o.Size)]
	half, shift := halfWord(b, at, o)
	whole := o.Size == 8 && word(x) != nil
	if t.exclusive(whole || half != nil) {
		t.lockAtomics()
		defer t.unlockAtomics() // also if the memory was unmapped
	}
	switch {
	case whole:
		return changeWord(x, change)
	case half != nil:
		for {
			was := atomic.LoadUint32(half)
			old = uint64(was>>shift) & o.mask()
			n := was&^uint32(o.mask()<<shift) | uint32(change(old)&o.mask()<<shift)
			if n == was || atomic.CompareAndSwapUint32(half, was, n) {
				return old
			}
		}
	}
	old = loadOperand(x)
	storeOperand(x, change(old))
	return old
}

// halfWord returns the aligned word of 4 bytes that holds the operand at b[at:],
// and the shift of the operand in it. w is nil if the operand is larger, if b
// does not contain the whole word, or if the memory is misaligned for 8-byte
// atomics at the same addresses, which then use the lock, too.
func halfWord(b []byte, at uint64, o Operand) (w *uint32, shift int) {
	p := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) + at
	in := p & 3 // of the operand in the word
	if o.Size > 4 || (p-o.VA)&7 != 0 || in > at || at-in+4 > uint64(len(b)) {
		return nil, 0
	}
	shift = int(8 * in)
	if bigEndian {
		shift = 8 * (4 - o.Size - int(in))
	}
	return (*uint32)(unsafe.Pointer(&b[at-in])), shift
}

// bigEndian reports whether the host is big-endian.
var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// loadOperand and storeOperand access an operand of any alignment in host byte
// order.
func loadOperand(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.NativeEndian.Uint16(b))
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return load(b)
}

func storeOperand(b []byte, x uint64) {
	switch len(b) {
	case 1:
		b[0] = byte(x)
	case 2:
		binary.NativeEndian.PutUint16(b, uint16(x))
	case 4:
		binary.NativeEndian.PutUint32(b, uint32(x))
	default:
		store(b, x)
	}
}
