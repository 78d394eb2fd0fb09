package xsk

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// arenaPage is the allocation unit of an Arena. It is a multiple of every chunk size.
const arenaPage = MaxChunk

// Arena is the part of a UMEM for memory that an application sends in place. Any goroutine may allocate and free memory,
// in whole pages. Memory that the kernel still has when it is freed stays allocated until the kernel is done.
type Arena struct {
	mem  *Memory
	base uint64
	lent []atomic.Int32 // number of descriptors that the kernel has, by the page in which they begin

	mu      sync.Mutex
	free    []span // by address, never adjacent
	waiting []span // freed, but lent to the kernel
}

// span is a number of pages.
type span struct{ at, n int }

// NewArena returns an Arena of n bytes (whole pages) that begins at an offset in the UMEM.
func NewArena(mem *Memory, base uint64, n int) *Arena {
	a := &Arena{mem: mem, base: base, lent: make([]atomic.Int32, n/arenaPage)}
	a.put(span{0, len(a.lent)})
	return a
}

// ArenaSize returns the size of an Arena with room for n bytes.
func ArenaSize(n int) int { return pagesOf(n) * arenaPage }

func pagesOf(n int) int { return (n + arenaPage - 1) / arenaPage }

// Alloc allocates n zero bytes; false: there are not so many in one piece.
func (a *Arena) Alloc(n int) (b []byte, ok bool) {
	pages := pagesOf(n)
	if n <= 0 || pages > len(a.lent) {
		return nil, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting = slices.DeleteFunc(a.waiting, func(s span) bool {
		if a.busy(s) {
			return false
		}
		a.put(s)
		return true
	})
	for i := range a.free {
		s := &a.free[i]
		if s.n < pages {
			continue
		}
		at := s.at
		if s.at, s.n = s.at+pages, s.n-pages; s.n == 0 {
			a.free = slices.Delete(a.free, i, i+1)
		}
		start := a.base + uint64(at)*arenaPage
		b = a.mem.Bytes[start : start+uint64(n) : start+uint64(n)]
		clear(b)
		return b, true
	}
	return nil, false
}

// Free frees memory that Alloc returned.
func (a *Arena) Free(b []byte) {
	at, ok := a.Offset(b)
	if !ok {
		panic("xsk: memory freed that is not of this arena")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := span{int((at - a.base) / arenaPage), pagesOf(len(b))}
	if a.busy(s) {
		a.waiting = append(a.waiting, s)
		return
	}
	a.put(s)
}

// put adds a span to the free ones.
func (a *Arena) put(s span) {
	if s.n == 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(a.free, s.at, func(f span, at int) int { return f.at - at })
	a.free = slices.Insert(a.free, i, s)
	for _, k := range []int{i, i - 1} { // merges with the next span, then with the previous one
		if k >= 0 && k+1 < len(a.free) && a.free[k].at+a.free[k].n == a.free[k+1].at {
			a.free[k].n += a.free[k+1].n
			a.free = slices.Delete(a.free, k+1, k+2)
		}
	}
}

func (a *Arena) busy(s span) bool {
	for i := range a.lent[s.at : s.at+s.n] {
		if a.lent[s.at+i].Load() != 0 {
			return true
		}
	}
	return false
}

// Offset returns the offset of b in the UMEM; false: b is not in the arena.
func (a *Arena) Offset(b []byte) (addr uint64, ok bool) {
	addr = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(a.mem.Bytes))))
	return addr, a.Has(addr) && uint64(len(b)) <= a.base+a.size()-addr
}

// Has reports whether an address in the UMEM is in the arena.
func (a *Arena) Has(addr uint64) bool { return addr >= a.base && addr-a.base < a.size() }

func (a *Arena) size() uint64 { return uint64(len(a.lent)) * arenaPage }

// Lend notes that a descriptor that begins at an address goes to the kernel.
func (a *Arena) Lend(addr uint64) { a.page(addr).Add(1) }

// Complete notes that the kernel has returned the descriptor.
func (a *Arena) Complete(addr uint64) { a.page(addr).Add(-1) }

func (a *Arena) page(addr uint64) *atomic.Int32 { return &a.lent[(addr-a.base)/arenaPage] }
