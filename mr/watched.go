package mr

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/goroce/roce/errs"
)

// In a watched region the engine accesses aligned words of 8 bytes, each
// atomically, from the first to the last. A program that uses [Load64],
// [Store64] and the rest of this file on the same memory has no data race with
// it, sees no torn word, and sees the words in the order in which they were
// written.

// checkWatched validates the memory of a watched region: it must consist of
// whole words, because the engine stores the whole word of each byte.
func checkWatched(op string, buf []byte) error {
	if uintptr(unsafe.Pointer(unsafe.SliceData(buf)))&7 != 0 || len(buf)&7 != 0 {
		return errs.New(op, syscall.EINVAL, "WATCHED memory must be aligned to 8 bytes and a multiple of them long, this is %d bytes at %p", len(buf), buf)
	}
	return nil
}

// Load64 returns the word at b[0:8], in host byte order, with the meaning of
// atomic.LoadUint64. It panics if b is shorter or the memory is not aligned to 8 bytes.
func Load64(b []byte) uint64 { return atomic.LoadUint64(alignedWord(b)) }

// Store64 stores a word at b[0:8], in host byte order, with the meaning of
// atomic.StoreUint64. It panics if b is shorter or the memory is not aligned to 8 bytes.
func Store64(b []byte, x uint64) { atomic.StoreUint64(alignedWord(b), x) }

func alignedWord(b []byte) *uint64 {
	w := word((*[8]byte)(b)[:]) // b[:8] would reach beyond the end of b into its capacity
	if w == nil {
		panic(fmt.Sprintf("mr: the memory at %p is not aligned to 8 bytes", b))
	}
	return w
}

// LoadWords copies from memory of a watched region: it loads each aligned word
// atomically, from the first to the last.
func LoadWords(dst, src []byte) {
	for len(dst) > 0 {
		w, at := around(src)
		x := atomic.LoadUint64(w)
		var b [8]byte
		binary.NativeEndian.PutUint64(b[:], x)
		n := copy(dst, b[at:])
		dst, src = dst[n:], src[n:]
		for len(dst) >= 8 { // src is aligned from here on
			binary.NativeEndian.PutUint64(dst, atomic.LoadUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(src)))))
			dst, src = dst[8:], src[8:]
		}
	}
}

// StoreWords copies to memory of a watched region: it stores each aligned word
// atomically, from the first to the last. If it writes a part of a word, the
// other bytes keep their values, even those that someone stores meanwhile.
func StoreWords(dst, src []byte) {
	for len(src) > 0 {
		w, at := around(dst)
		n := min(8-at, len(src))
		if n == 8 {
			atomic.StoreUint64(w, binary.NativeEndian.Uint64(src))
		} else {
			for {
				was := atomic.LoadUint64(w)
				var b [8]byte
				binary.NativeEndian.PutUint64(b[:], was)
				copy(b[at:], src[:n])
				if atomic.CompareAndSwapUint64(w, was, binary.NativeEndian.Uint64(b[:])) {
					break
				}
			}
		}
		dst, src = dst[n:], src[n:]
		for len(src) >= 8 { // dst is aligned from here on
			atomic.StoreUint64((*uint64)(unsafe.Pointer(unsafe.SliceData(dst))), binary.NativeEndian.Uint64(src))
			dst, src = dst[8:], src[8:]
		}
	}
}

// around returns the word that contains the first byte of b, and the place of
// that byte in it.
func around(b []byte) (w *uint64, at int) {
	p := unsafe.Pointer(unsafe.SliceData(b))
	at = int(uintptr(p) & 7)
	return (*uint64)(unsafe.Add(p, -at)), at
}

// get copies out of a piece of the region's memory.
func (m *MR) get(dst, b []byte) Fault {
	if m.special {
		return m.getSpecial(dst, b)
	}
	copy(dst, b)
	return OK
}

// put copies into a piece of the region's memory.
func (m *MR) put(b, src []byte) Fault {
	if m.special {
		return m.putSpecial(b, src)
	}
	copy(b, src)
	return OK
}

func (m *MR) getSpecial(dst, b []byte) Fault {
	switch {
	case m.watched:
		LoadWords(dst, b)
	case m.foreign:
		return getForeign(dst, b)
	default: // b is zeros
		copy(dst, b)
	}
	return OK
}

func (m *MR) putSpecial(b, src []byte) Fault {
	switch {
	case m.watched:
		StoreWords(b[:len(src)], src)
	case m.foreign:
		return putForeign(b, src)
	}
	return OK // a null region has no memory: the data are discarded
}
