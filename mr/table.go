// Package mr holds protection domains and memory regions: which memory the
// engine may touch, on whose behalf and how.
//
// A [Table] belongs to a device. It finds the memory of a key in constant
// time without allocating. There are three classes of operations:
//
//   - while an operation makes or ends a key ([Table.Register], [MR.Reregister], [MR.Deregister],
//     [Table.AllocMW], [MW.Dealloc] and the like) or changes a [PD], nobody else may use the table;
//   - work requests that change the memory of an existing key ([Table.Bind], [Table.RegisterFast],
//     [Table.Invalidate], [Table.UnbindAll]) run on one shard while the others continue;
//   - lookups and the copy methods of [Memory] run side by side.
//
// The last two classes need no lock between them: see grant. When the
// invalidation of a key returns, the last copy through it has ended, and none
// begins later.
//
// # Keys
//
// A key opens one of these objects:
//
//   - a region of the program, for as long as it is registered ([Table.Register]);
//   - a fast registration ([Table.AllocFast]) or an indirect region, made of
//     parts of others ([Table.AllocIndirect]), which work requests register and
//     invalidate again and again;
//   - a null region, which has no memory ([Table.RegisterNull]);
//   - a memory window ([Table.AllocMW]) on any of these, which work requests
//     bind and invalidate, and which is for peers only.
//
// The upper 24 bits of a key are a random number, which the object keeps. Every registration
// and every bind changes the low byte, so the previous key opens nothing any more.
//
// # Memory
//
// A region is memory of the program. Go's garbage collector does not move it and the region keeps
// it alive, so nothing is pinned. The engine's goroutine copies data into it with plain stores, and
// the program may read the data once it has polled their completion. For data that peers write
// without a completion here, the program has three ways to read them without a data race: a region
// registered [Watched], all of whose memory both sides load and store by words, with [Load64],
// [Store64] and the like; a word that only RDMA atomics and ATOMIC_WRITE change, because they are
// atomics of the CPU; a FLUSH, which [MR.Flushes] counts. docs/memory.md has the rules. A slice
// does not show whether its memory is mapped read-only or not mapped at all: a program that
// registers such memory has a bug (ibv_reg_mr would return EFAULT), and the first access ends the
// process.
package mr

import (
	"cmp"
	"math"
	"sync/atomic"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/ids"
	"github.com/goroce/roce/mono"
)

// MaxRegions and MaxWindows are how many memory regions and windows a table
// can hold (max_mr, max_mw).
const (
	MaxRegions = 1 << 20
	MaxWindows = 1 << 20
)

// MaxLength is the longest memory region in bytes (max_mr_size).
const MaxLength = math.MaxInt

// Table holds all regions and windows of one device.
type Table struct {
	keys    *ids.Table[grant]
	windows map[*grant]*MW // changes only while nobody else uses the table
	rnd     func() uint64
	part    ids.Part // of the numbers in keys

	regions    int
	maxRegions int
	maxWindows int
	lends      int // regions of memory that may be sent in place

	// excluded is a spin lock, held (1) during an atomic on a word that the CPU
	// cannot access atomically or, if wide, during every atomic. A waiter spins
	// only for the few instructions of another shard's atomic.
	excluded atomic.Uint32
	wide     atomic.Bool // there may be operands of more than 8 bytes
}

// NewTable returns an empty table. rnd returns the random numbers of the keys;
// outside of tests they must be unpredictable.
func NewTable(rnd func() uint64) *Table {
	return &Table{keys: newKeys(rnd), windows: map[*grant]*MW{}, rnd: rnd, maxRegions: MaxRegions, maxWindows: MaxWindows}
}

// SetLimits lowers how many regions and windows the table holds. At first they are
// [MaxRegions] and [MaxWindows].
func (t *Table) SetLimits(regions, windows int) {
	t.maxRegions, t.maxWindows = min(regions, MaxRegions), min(windows, MaxWindows)
}

// Limits returns how many regions and windows the table holds.
func (t *Table) Limits() (regions, windows int) { return t.maxRegions, t.maxWindows }

// Divide makes the table hand out only keys whose numbers are in a part, from now on: tables of other
// parts never hand out the same key. It lowers the limits to the number of keys in the part.
func (t *Table) Divide(p ids.Part) {
	t.part = p
	t.SetLimits(min(t.maxRegions, p.Size()/4), min(t.maxWindows, p.Size()/4))
}

// Len returns how many regions and windows there are.
func (t *Table) Len() int { return t.regions + len(t.windows) }

// Lends reports whether a region has memory that a link can send in place. If not,
// [Memory.InPlace] always returns false.
func (t *Table) Lends() bool { return t.lends > 0 }

func lends(inPlace bool) int {
	if inPlace {
		return 1
	}
	return 0
}

// Local finds the memory of a scatter/gather element of a work request that
// was posted in domain pd. need is [LocalWrite] to write, 0 to read. The
// caller passes the offset to the copy methods of the memory.
func (t *Table) Local(pd *PD, s SGE, need Access) (Memory, uint64, Fault) {
	var r Trail
	return r.Local(t, pd, s, need)
}

// Remote finds the memory of a peer's key and address, for an operation of n
// bytes that arrived on queue pair qpn of domain pd. need is the right for the
// operation: [RemoteWrite], [RemoteRead], [RemoteAtomic] or [FlushGlobal]. A
// zero-length operation has no valid key on the wire, and the caller does not
// call Remote for it (IBTA C9-88); Remote with n 0 checks key and range, too,
// and then va may also be the end of the region.
func (t *Table) Remote(pd *PD, qpn bth.QPN, key bth.RKey, va, n uint64, need Access) (Memory, uint64, Fault) {
	var r Trail
	return r.Remote(t, pd, qpn, key, va, n, need)
}

// Trail is a cache of one lookup, for a caller that uses the same key again and again. The zero
// value is empty. It is for one table and one goroutine at a time.
//
// Invariant: a lookup by a trail has the same result as one by an empty trail. The trail
// keeps the grant of the upper bits of a key until that grant has ended. An ended grant
// never comes back, and another grant may get its bits afterwards. Each lookup checks key,
// queue pair, right and range anew.
type Trail struct{ last *grant }

// Local is [Table.Local].
func (r *Trail) Local(t *Table, pd *PD, s SGE, need Access) (Memory, uint64, Fault) {
	if g := r.last; g != nil && g.allows(pd, uint32(s.LKey), s.Addr, uint64(s.Length), need) {
		return Memory{m: g.mr}, s.Addr - g.iova, OK
	}
	return t.find(r, pd, 0, uint32(s.LKey), s.Addr, uint64(s.Length), need)
}

// Remote is [Table.Remote].
func (r *Trail) Remote(t *Table, pd *PD, qpn bth.QPN, key bth.RKey, va, n uint64, need Access) (Memory, uint64, Fault) {
	if g := r.last; g != nil && g.allows(pd, uint32(key), va, n, need) {
		return Memory{m: g.mr}, va - g.iova, OK
	}
	return t.find(r, pd, qpn, uint32(key), va, n, need)
}

// allows is the fast path of find, for nearly every packet. It reports whether the grant is of a user's region and
// find would find nothing wrong. Such a region has neither a base nor a queue pair.
func (g *grant) allows(pd *PD, key uint32, va, n uint64, need Access) bool {
	return g.name == key&^variantMask && opens(g.word.Load(), key) &&
		g.pd == pd && g.access&need == need && n <= g.length && va-g.iova <= g.length-n
}

// fill returns the grant that the table has for a key, or nil, and remembers it.
func (r *Trail) fill(t *Table, key uint32) *grant {
	g := t.keys.Find(key >> 8)
	if g != nil {
		r.last = g
	}
	return g
}

// find looks a key up. It allocates nothing and reads one cache line of the
// table, or none, and that of the grant.
func (t *Table) find(r *Trail, pd *PD, qpn bth.QPN, key uint32, va, n uint64, need Access) (Memory, uint64, Fault) {
	g := r.last
	// An ended grant does not come back: if a new grant has the same name now, it is in
	// the table.
	if g == nil || !sameName(g.name, key) || g.ended() {
		g = r.fill(t, key)
	}
	if g == nil || !opens(g.word.Load(), key) {
		return Memory{}, 0, BadKey
	}
	if !g.kind().revocable() {
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
	if g.kind().window() && qpn == 0 {
		f = BadKey // the R_Key of a window is not an L_Key
	}
	v := Memory{m: g.mr, g: g, gen: g.gen}
	g.unpin()
	if f != OK {
		return Memory{}, 0, f
	}
	return v, off, OK
}

// check does the checks of IBTA vol. 1, 10.6.3 and 9.7.4.1.3 after the lookup
// of the key: domain, queue pair, right, bounds.
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

// newGrant makes a grant with a key. The key opens nothing yet. It returns nil if there is
// no free key.
func (t *Table) newGrant(pd *PD, k kind) *grant {
	g := &grant{pd: pd}
	n, ok := t.keys.Draw(0, g, t.part)
	if !ok {
		return nil
	}
	key := cmp.Or(n<<8|uint32(t.rnd()&variantMask), 1)
	g.name = key&^variantMask | uint32(k)
	g.publish(key, stateFree)
	return g
}

// key returns the key that the grant has at the moment.
func (g *grant) key() uint32 { return g.name&^variantMask | uint32(g.word.Load()&variantMask) }

// end ends a grant for good and frees its key.
func (t *Table) end(g *grant) {
	g.mr, g.pd, g.iova, g.length, g.base, g.access, g.qpn = nil, nil, 0, 0, 0, 0, 0
	g.word.Store(stateEnded)
	t.keys.Free(g.name>>8, mono.Never)
}
