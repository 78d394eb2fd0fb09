// Package mr holds protection domains and memory regions: which memory the
// engine may touch, on whose behalf and how.
//
// A [Table] belongs to a device. It turns a key into memory in constant time
// without allocating. It has no lock: Register and Deregister, everything that
// changes a [PD], and later binding and invalidation, need all users of the
// table to stand still; lookups and the copy methods of [MR] may run side by
// side.
//
// # Memory
//
// A region is memory of the program. Go's garbage collector does not move it
// and the region keeps it alive, so nothing is pinned. Data arrives in it by
// plain copies made by the engine's goroutine, which the program may read once
// it has polled the completion that announces them. A region that is written
// by the peer without a completion here (RDMA WRITE) can be watched only
// racily, as on real hardware. Memory that is mapped read-only, or not mapped
// at all, cannot be told from the slice: registering it is the program's
// fault (ibv_reg_mr would say EFAULT), and the first access ends the process.
package mr

import (
	"fmt"
	"math"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/goroce/roce/bth"
)

// MaxRegions is how many memory regions a table can hold (max_mr).
const MaxRegions = 1 << 20

// MaxLength is the longest memory region in bytes (max_mr_size).
const MaxLength = math.MaxInt

// Table is all that is registered on one device.
type Table struct {
	perm   *permutation
	grants []grant  // by slot
	free   []uint32 // slots to use again, oldest first from freeAt
	freeAt int
	rnd    func() uint64

	// misaligned is held (1) during an atomic on a word that the CPU cannot
	// operate on atomically. It only ever spins for the few instructions of
	// another shard's atomic.
	misaligned atomic.Uint32
}

// NewTable returns an empty table. rnd gives the random numbers that make keys
// unpredictable; it must be good for that outside of tests.
func NewTable(rnd func() uint64) *Table {
	return &Table{perm: newPermutation(rnd), rnd: rnd}
}

// Len returns how many regions are registered.
func (t *Table) Len() int { return len(t.grants) - (len(t.free) - t.freeAt) }

// Local finds the memory of a scatter/gather element of a work request that
// was posted in domain pd. need is [LocalWrite] to write, 0 to read. The
// offset is for the copy methods of the memory.
func (t *Table) Local(pd *PD, s SGE, need Access) (Memory, uint64, Fault) {
	return t.find(pd, 0, uint32(s.LKey), s.Addr, uint64(s.Length), need)
}

// Remote finds the memory a peer names by key and address, for an operation of
// n bytes that arrived on queue pair qpn of domain pd. need is what the
// operation does: [RemoteWrite], [RemoteRead], [RemoteAtomic] or [FlushGlobal].
// A zero-length operation carries no valid key on the wire and the caller does
// not ask (IBTA C9-88); Remote with n 0 checks all the same, and then va may
// also be the end of the region.
func (t *Table) Remote(pd *PD, qpn bth.QPN, key bth.RKey, va, n uint64, need Access) (Memory, uint64, Fault) {
	return t.find(pd, qpn, uint32(key), va, n, need)
}

// find looks a key up. It allocates nothing and reads one cache line of the
// table.
func (t *Table) find(pd *PD, qpn bth.QPN, key uint32, va, n uint64, need Access) (Memory, uint64, Fault) {
	slot := t.perm.inverse(key >> 8)
	if slot >= uint32(len(t.grants)) {
		return Memory{}, 0, BadKey
	}
	g := &t.grants[slot]
	if !opens(g.word.Load(), key) {
		return Memory{}, 0, BadKey
	}
	if !g.kind.revocable() {
		off, f := g.check(pd, qpn, va, n, need)
		if f != OK {
			return Memory{}, 0, f
		}
		return Memory{m: g.mr}, off, OK
	}
	if !g.pin(key) {
		return Memory{}, 0, BadKey
	}
	off, f := g.check(pd, qpn, va, n, need)
	v := Memory{m: g.mr, g: g, gen: g.gen}
	g.unpin()
	if f != OK {
		return Memory{}, 0, f
	}
	return v, off, OK
}

// check is that of IBTA vol. 1, 10.6.3 and 9.7.4.1.3 once the key is found:
// domain, queue pair, right, bounds.
func (g *grant) check(pd *PD, qpn bth.QPN, va, n uint64, need Access) (uint64, Fault) {
	if g.pd != pd {
		return 0, BadPD
	}
	if g.qpn != 0 && g.qpn != qpn {
		return 0, BadQP
	}
	if g.access&need != need {
		return 0, BadAccess
	}
	// An address below iova wraps to an offset beyond any length, because
	// iova+length does not wrap; n is subtracted from the length and not added
	// to the address, which may wrap.
	off := va - g.iova
	if n > g.length || off > g.length-n {
		return 0, BadRange
	}
	return g.base + off, OK
}

// Invalidate ends a key on behalf of a work request or a peer's
// SEND_WITH_INVALIDATE on queue pair qpn of domain pd. A region that was
// registered by the program cannot be invalidated (IBTA C10-77, rxe).
func (t *Table) Invalidate(pd *PD, qpn bth.QPN, key bth.RKey) Fault {
	slot := t.perm.inverse(uint32(key) >> 8)
	if slot >= uint32(len(t.grants)) {
		return BadKey
	}
	g := &t.grants[slot]
	switch {
	case !opens(g.word.Load(), uint32(key)):
		return BadKey
	case g.pd != pd:
		return BadPD
	case g.qpn != 0 && g.qpn != qpn:
		return BadQP
	}
	return NotInvalidable
}

// Options are the rarer choices of Register.
type Options struct {
	// IOVA is the address by which the region is known, to SGEs and to peers
	// (ibv_reg_mr_iova). It counts if HasIOVA is set; otherwise the region is
	// known by the address of its memory.
	IOVA    uint64
	HasIOVA bool

	// Persist says that the memory survives a loss of power, and how what was
	// written to b, a part of it, is made to: msync of a mapped file, write-back
	// of the cache lines. [FlushPersistent] needs it. It runs while a FLUSH is
	// executed, on the engine's goroutine and under its owner's lock: it must
	// not call back, and while it blocks nothing else is done. If it fails so
	// does the FLUSH, with a NAK (remote operational error).
	Persist func(b []byte) error
}

// Register makes buf accessible to the engine (ibv_reg_mr, ibv_reg_mr_iova).
// Local reads are always allowed; acc says what else is. The errors are
// *[Error] and wrap what ibv_reg_mr returns:
//
//   - EINVAL: no memory, an address range that wraps, unknown rights,
//     RemoteWrite or RemoteAtomic without LocalWrite, FlushPersistent for
//     memory that is not persistent (without opt.Persist);
//   - EOPNOTSUPP: OnDemand, HugeTLB;
//   - ENOMEM: [MaxRegions] are registered.
func (t *Table) Register(pd *PD, buf []byte, acc Access, opt Options) (*MR, error) {
	fail := func(e syscall.Errno, format string, args ...any) (*MR, error) {
		return nil, &Error{"register", e, fmt.Sprintf(format, args...)}
	}
	iova := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf))))
	switch {
	case opt.HasIOVA && acc&ZeroBased != 0 && opt.IOVA != 0:
		return fail(syscall.EINVAL, "ZERO_BASED and address %#x contradict each other", opt.IOVA)
	case opt.HasIOVA:
		iova = opt.IOVA
	case acc&ZeroBased != 0:
		iova = 0
	}
	switch {
	case pd == nil || pd.dead:
		return fail(syscall.EINVAL, "no protection domain")
	case acc&unsupported != 0:
		return fail(syscall.EOPNOTSUPP, "access %v is not offered", acc&unsupported)
	case acc&FlushPersistent != 0 && opt.Persist == nil:
		return fail(syscall.EINVAL, "access %v needs persistent memory", FlushPersistent)
	case acc&^supported != 0:
		return fail(syscall.EINVAL, "unknown access bits %v", acc&^supported)
	case acc&(RemoteWrite|RemoteAtomic) != 0 && acc&LocalWrite == 0:
		return fail(syscall.EINVAL, "access %v needs LOCAL_WRITE", acc)
	case len(buf) == 0:
		return fail(syscall.EINVAL, "the memory is empty")
	case iova+uint64(len(buf)) < iova:
		return fail(syscall.EINVAL, "%d bytes from address %#x wrap around", len(buf), iova)
	}
	slot, ok := t.slot()
	if !ok {
		return fail(syscall.ENOMEM, "%d regions are registered, the limit", MaxRegions)
	}
	m := &MR{table: t, buf: buf, slot: slot, key: t.newKey(slot), pd: pd, iova: iova, length: len(buf), access: acc, persist: opt.Persist}
	g := &t.grants[slot]
	g.mr, g.pd, g.iova, g.length, g.access, g.kind = m, pd, iova, uint64(len(buf)), acc, userRegion
	g.word.Store(uint64(m.key&variantMask) | stateValid)
	pd.users++
	return m, nil
}

// slot takes a free slot, the one freed longest ago, or a new one.
func (t *Table) slot() (uint32, bool) {
	if t.freeAt < len(t.free) {
		s := t.free[t.freeAt]
		t.freeAt++
		if t.freeAt == len(t.free) {
			t.free, t.freeAt = t.free[:0], 0
		}
		return s, true
	}
	if len(t.grants) >= MaxRegions {
		return 0, false
	}
	t.grants = append(t.grants, grant{})
	return uint32(len(t.grants) - 1), true
}

// newKey returns a key for slot that differs from the one it had last. 0 is
// never given, so that a forgotten key does not happen to work.
func (t *Table) newKey(slot uint32) uint32 {
	index := t.perm.forward(slot) << 8
	last := index | uint32(t.grants[slot].word.Load()&variantMask)
	key := index | uint32(t.rnd()&variantMask)
	for key == last || key == 0 {
		key = incKey(key)
	}
	return key
}

// release frees a slot. The variant of its last key stays in the grant, for
// newKey.
func (t *Table) release(slot uint32) {
	g := &t.grants[slot]
	g.mr, g.pd, g.iova, g.length, g.base, g.access, g.qpn = nil, nil, 0, 0, 0, 0, 0
	g.word.Store(g.word.Load()&variantMask | slotFree)
	if t.freeAt > 0 && len(t.free) == cap(t.free) {
		// Make room at the front rather than grow for ever.
		n := copy(t.free, t.free[t.freeAt:])
		t.free, t.freeAt = t.free[:n], 0
	}
	t.free = append(t.free, slot)
}
