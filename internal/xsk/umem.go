package xsk

import (
	"math/bits"
	"slices"
)

// Headroom is the space that the kernel leaves in front of a received frame (XDP_PACKET_HEADROOM).
const Headroom = 256

// MaxChunk is the size of the kernel's largest chunk: a page.
const MaxChunk = 4096

// smallChunk is the size of a chunk that has room for a frame of the usual MTU.
const smallChunk = 2048

// Geometry is the layout of frames in a UMEM. A frame that we send is in a slot of one chunk or several adjacent ones, so
// a frame of any length is one piece of memory. For the kernel a descriptor must stay inside its chunk: a longer frame
// has several descriptors.
type Geometry struct {
	Chunk int // bytes; a power of two
	Slot  int // bytes; a power of two, at least Chunk
}

// wholeKiB lists the drivers that receive with zero copy into the whole KiB of a chunk behind the headroom: igb, and
// ixgbe on its oldest card. Into a chunk of 2048 bytes they receive 1024. igb passes the rest of a longer frame as another
// frame, ixgbe drops the frame.
var wholeKiB = []string{"igb", "ixgbe"}

// GeometryFor returns the layout for frames of up to size bytes on an interface of a driver.
func GeometryFor(size int, driver string) Geometry {
	need := Headroom + size
	g := Geometry{Chunk: smallChunk, Slot: smallChunk}
	if slices.Contains(wholeKiB, driver) && size > (smallChunk-Headroom)&^1023 {
		need = max(need, smallChunk+1)
	}
	if need > g.Chunk {
		g = Geometry{Chunk: MaxChunk, Slot: MaxChunk}
	}
	if need > g.Slot {
		g.Slot = 1 << bits.Len(uint(need-1))
	}
	return g
}

// neverShort lists the drivers that must never lack a frame for an entry of the card's ring with zero copy. If igb gets
// fewer frames than it asks for when it fills the end of that ring (igb_alloc_rx_buffers_zc), it leaves the length of an old
// packet in the next entry, takes that for a new packet, and passes on a frame that the kernel does not own.
var neverShort = []string{"igb"}

// FillFor returns how many frames the kernel gets for one queue. ring is the size of the RX ring, card that of the card's
// ring. Elsewhere a full RX ring is enough. A driver that must never lack a frame gets one for each entry of the card's ring
// besides those in the RX ring and those that its reader holds, at most as many.
func FillFor(ring, card int, driver string) int {
	if slices.Contains(neverShort, driver) {
		return card + 2*ring
	}
	return ring
}

// RingFor returns the size of a ring with room for n entries.
func RingFor(n int) int { return 1 << bits.Len(uint(n-1)) }

// Descs returns the number of descriptors for a frame of n bytes at the beginning of a slot.
func (g Geometry) Descs(n int) uint32 { return uint32((n + g.Chunk - 1) / g.Chunk) }

// Owner says which part of the program, or the kernel, has a frame.
type Owner uint8

const (
	Pooled   Owner = iota // free: it is in the pool
	Building              // the sender writes into it
	Sending               // the kernel has it: it is in the TX ring or was taken from it
	Filling               // the kernel has it: it is in the Fill ring or was taken from it
	Reading               // the receiver, between RX and Fill ring
)

var ownerNames = [...]string{"pool", "sender", "kernel (TX)", "kernel (RX)", "receiver"}

func (o Owner) String() string { return ownerNames[o] }

// Pool is a stack of the slots of one part of a UMEM: Get returns the last used slot, which is still in the cache. Built
// with the tag roceframes it records the owner of every slot, and panics if another one touches the slot.
type Pool struct {
	Geometry
	base  uint64 // a multiple of Slot
	shift uint   // Slot is 1<<shift
	free  []uint32
	refs  []uint8 // number of descriptors of each slot that the kernel has not completed
	debug
}

// NewPool returns a pool of n slots that begin at an offset in the UMEM.
func NewPool(g Geometry, base uint64, n int) *Pool {
	p := &Pool{Geometry: g, base: base, shift: uint(bits.TrailingZeros(uint(g.Slot))), free: make([]uint32, n), refs: make([]uint8, n)}
	for i := range p.free {
		p.free[i] = uint32(n - 1 - i)
	}
	p.debug.init(n)
	return p
}

// Len returns the number of free slots.
func (p *Pool) Len() int { return len(p.free) }

// Get takes a slot from the pool and returns its address.
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

// Put returns a slot to the pool. addr is any address in it.
func (p *Pool) Put(addr uint64, from Owner) {
	i := p.index(addr)
	p.debug.move(i, from, Pooled)
	p.free = append(p.free, i)
}

// Pass notes that a slot has a new owner.
func (p *Pool) Pass(addr uint64, from, to Owner) {
	if debugging {
		p.debug.move(p.index(addr), from, to)
	}
}

// Send notes that a slot goes to the kernel in descs descriptors.
func (p *Pool) Send(addr uint64, descs uint32) {
	p.Pass(addr, Building, Sending)
	p.refs[p.index(addr)] = uint8(descs)
}

// Complete notes that the kernel has returned one descriptor of a slot; with the last one the slot returns to the pool.
// It returns false if the kernel had no descriptor at this address of the pool.
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

// Start returns the address of the slot that contains an address.
func (p *Pool) Start(addr uint64) uint64 { return addr &^ uint64(p.Slot-1) }

// Has reports whether an address is in the pool's part of the UMEM.
func (p *Pool) Has(addr uint64) bool {
	return addr >= p.base && addr-p.base < uint64(len(p.refs))<<p.shift
}

func (p *Pool) index(addr uint64) uint32 { return uint32((addr - p.base) >> p.shift) }
