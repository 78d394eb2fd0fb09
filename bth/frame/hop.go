package frame

import "sync/atomic"

// Hop holds the Ethernet addresses of packets to a next hop: the sender's own, and that
// of the peer or of the router on the way. Paths that are made with a Hop share it:
// packets that are built after Set have the new addresses. Any goroutine may call its
// methods at any time. A packet that is built during Set may have one new address and
// one old one.
type Hop struct {
	owner    any
	src, dst atomic.Uint64 // in the low 48 bits
}

// NewHop returns a Hop. Owner returns owner.
func NewHop(owner any, src, dst MAC) *Hop {
	h := &Hop{owner: owner}
	h.Set(src, dst)
	return h
}

// Owner returns the owner that NewHop was given.
func (h *Hop) Owner() any { return h.owner }

// Set changes the addresses.
func (h *Hop) Set(src, dst MAC) {
	h.src.Store(src.number())
	h.dst.Store(dst.number())
}

// Addrs returns the addresses.
func (h *Hop) Addrs() (src, dst MAC) { return macOf(h.src.Load()), macOf(h.dst.Load()) }

// put writes the addresses at the beginning of a frame.
func (h *Hop) put(b []byte) {
	_ = b[11]
	dst, src := h.dst.Load(), h.src.Load()
	be.PutUint32(b, uint32(dst>>16))
	be.PutUint16(b[4:], uint16(dst))
	be.PutUint16(b[6:], uint16(src>>32))
	be.PutUint32(b[8:], uint32(src))
}

func (m MAC) number() uint64 {
	return uint64(be.Uint16(m[:]))<<32 | uint64(be.Uint32(m[2:]))
}

func macOf(n uint64) (m MAC) {
	be.PutUint16(m[:], uint16(n>>32))
	be.PutUint32(m[2:], uint32(n))
	return m
}
