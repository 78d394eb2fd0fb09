package xsk

import "math/bits"

// Headroom is what the kernel leaves in front of a frame it receives
// (XDP_PACKET_HEADROOM).
const Headroom = 256

// MaxChunk is the size of the largest chunk the kernel takes: a page.
const MaxChunk = 4096

// Geometry says how frames lie in a UMEM. A frame of ours is in a slot: one chunk
// or several adjacent ones, so that it is one piece of memory whatever its length.
// To the kernel a descriptor must not leave its chunk: a longer frame is several
// descriptors.
type Geometry struct {
	Chunk int // bytes; a power of two
	Slot  int // bytes; a power of two, at least Chunk
}

// GeometryFor returns how frames of up to size bytes lie.
func GeometryFor(size int) Geometry {
	need := Headroom + size
	g := Geometry{Chunk: 2048, Slot: 2048}
	if need > g.Chunk {
		g = Geometry{Chunk: MaxChunk, Slot: MaxChunk}
	}
	if need > g.Slot {
		g.Slot = 1 << bits.Len(uint(need-1))
	}
	return g
}

// Descs returns how many descriptors a frame of n bytes at the beginning of a
// slot takes.
func (g Geometry) Descs(n int) uint32 { return uint32((n + g.Chunk - 1) / g.Chunk) }

// Owner says what a frame is used for.
type Owner uint8

const (
	Pooled   Owner = iota // free: it is in the pool
	Building              // the sender writes into it
	Sending               // the kernel, in the TX ring or behind
	Filling               // the kernel, in the Fill ring or behind
	Reading               // the receiver, between RX and Fill ring
)

var ownerNames = [...]string{"pool", "sender", "kernel (TX)", "kernel (RX)", "receiver"}

func (o Owner) String() string { return ownerNames[o] }

// Pool is a stack of the slots of one part of a UMEM: the one used last is lent
// first, while it is in the cache. Built with the tag roceframes it records the owner of
// every slot, and panics if one that does not own a slot touches it.
type Pool struct {
	Geometry
	base  uint64 // a multiple of Slot
	shift uint   // Slot is 1<<shift
	free  []uint32
	refs  []uint8 // descriptors of a slot that the kernel has not completed
	debug
}

// NewPool returns a pool of n slots from an offset in the UMEM on.
func NewPool(g Geometry, base uint64, n int) *Pool {
	p := &Pool{Geometry: g, base: base, shift: uint(bits.TrailingZeros(uint(g.Slot))), free: make([]uint32, n), refs: make([]uint8, n)}
	for i := range p.free {
		p.free[i] = uint32(n - 1 - i)
	}
	p.debug.init(n)
	return p
}

// Len returns how many slots are in the pool.
func (p *Pool) Len() int { return len(p.free) }

// Get takes a slot out of the pool and returns its address.
func (p *Pool) Get(to Owner) (addr uint64, ok bool) {
	n := len(p.free)
	if n == 0 {
		return 0, false
	}
	i := p.free[n-1]
	p.free = p.free[:n-1]
	p.debug.move(i, Pooled, to)
	return p.base + uint64(i)<<p.shift, true
}

// Put gives a slot back. addr is any address in it.
func (p *Pool) Put(addr uint64, from Owner) {
	i := p.index(addr)
	p.debug.move(i, from, Pooled)
	p.free = append(p.free, i)
}

// Pass notes that a slot changes hands.
func (p *Pool) Pass(addr uint64, from, to Owner) {
	if debugging {
		p.debug.move(p.index(addr), from, to)
	}
}

// Send notes that a slot goes to the kernel as a number of descriptors.
func (p *Pool) Send(addr uint64, descs uint32) {
	p.Pass(addr, Building, Sending)
	p.refs[p.index(addr)] = uint8(descs)
}

// Complete takes back one descriptor of a slot from the kernel, and the slot with
// the last of them. It reports whether the address was one of this pool that the
// kernel had.
func (p *Pool) Complete(addr uint64) bool {
	if !p.Has(addr) {
		return false
	}
	i := p.index(addr)
	if p.refs[i] == 0 {
		return false
	}
	if p.refs[i]--; p.refs[i] == 0 {
		p.Put(addr, Sending)
	}
	return true
}

// Start returns the address of the slot that an address is in.
func (p *Pool) Start(addr uint64) uint64 { return addr &^ uint64(p.Slot-1) }

// Has reports whether an address is in the pool's part of the UMEM.
func (p *Pool) Has(addr uint64) bool {
	return addr >= p.base && addr-p.base < uint64(len(p.refs))<<p.shift
}

func (p *Pool) index(addr uint64) uint32 { return uint32((addr - p.base) >> p.shift) }
