package xdp

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/xsk"
	"github.com/goroce/roce/link"
)

// A frame whose payload is sent in place has one descriptor for its headers, at the
// beginning of a slot, one for each chunk that has a part of the payload, and one for the
// pad and the ICRC, at trailerAt in the slot.
const (
	trailerAt = 256
	never     = math.MaxInt // of tx.inPlace

	// inPlaceZeroCopy is the default of Config.InPlace with zero copy: for a smaller payload three
	// descriptors are probably more work than a copy. It was not measured.
	inPlaceZeroCopy = 256
)

// inPlace returns the smallest size of a payload that is sent in place. If no payload is, it
// returns never, and notes the reason.
func (c *card) inPlace() int {
	switch {
	case c.cfg.Memory == 0:
		return never
	case !c.way.frags:
		c.info.Notes = append(c.info.Notes, "payload is copied: sending it in place needs native mode and frames in pieces")
		return never
	case c.cfg.InPlace > 0:
		return c.cfg.InPlace
	case c.zero:
		return inPlaceZeroCopy
	}
	return never
}

// AllocMemory implements link.Lender, with memory of Config.Memory, for all Ports of the
// interface. After Close the memory stays mapped and reads as zero until the last caller has
// dropped its free function.
func (p *Port) AllocMemory(n int) (b []byte, free func(), err error) {
	if !p.gate.Enter() {
		return nil, nil, link.ErrClosed
	}
	defer p.gate.Leave()
	c := p.card
	if c.cfg.Memory == 0 {
		return nil, nil, link.ErrUnsupported
	}
	b, ok := c.arena.Alloc(n)
	if !ok {
		return nil, nil, link.Fail("xdp", "allocate memory", c.info.Interface, nil, fmt.Errorf("%d contiguous bytes are not free: %w", n, unix.ENOMEM), fmt.Sprintf("the interface was opened with %d bytes for it (Config.Memory)", c.cfg.Memory))
	}
	return b, func() { c.arena.Free(b) }, nil
}

// BeginInPlace implements frame.InPlaceSink. Lent then returns only the headers of
// the packet.
func (p *Port) BeginInPlace(path *frame.Path, n int, payload []byte, tail int) (head, trailer []byte, crc bth.CRC, ok bool) {
	t := &p.tx
	t.lent = nil
	if len(payload) < t.inPlace || p.gate.Closed() {
		return nil, nil, 0, false
	}
	front := path.HeaderLen(frame.LayoutEthernet) + n
	whole := n + len(payload) + tail
	if front > trailerAt || trailerAt+tail > t.pool.Chunk || path.HeaderLen(frame.LayoutIP)+whole > t.mtu {
		return nil, nil, 0, false
	}
	from, own := t.arena.Offset(payload)
	if !own || !p.room() {
		return nil, nil, 0, false
	}
	at := t.slot.addr
	t.slot = packet{addr: at, n: front + len(payload) + tail, lent: from, nLent: len(payload), front: front}
	slot := p.card.mem.Bytes[at : at+uint64(t.pool.Slot)]
	body, crc := path.Put(slot, frame.LayoutEthernet, whole, t.id)
	t.over = false
	t.lent = slot[:front:front]
	return body[:n:n], slot[trailerAt : trailerAt+tail : trailerAt+tail], crc, true
}

// pieces calls do with each descriptor of a payload: no descriptor crosses the end of
// a chunk.
func (t *tx) pieces(f *packet, do func(addr uint64, n uint32)) {
	chunk := uint64(t.pool.Chunk)
	for at, end := f.lent, f.lent+uint64(f.nLent); at < end; {
		next := min(end, (at/chunk+1)*chunk)
		do(at, uint32(next-at))
		at = next
	}
}

// lend marks the payload of a packet as in use by the kernel; recall ends that.
func (t *tx) lend(f *packet) {
	t.pieces(f, func(addr uint64, _ uint32) { t.arena.Lend(addr) })
}

func (t *tx) recall(f *packet) {
	t.pieces(f, func(addr uint64, _ uint32) { t.arena.Complete(addr) })
}

// fillInPlace moves a packet to the ring, if there is room.
func (t *tx) fillInPlace(f *packet) bool {
	ring := &t.sock.TX
	descs := uint32(2)
	t.pieces(f, func(uint64, uint32) { descs++ })
	if ring.Free(descs) < descs {
		return false
	}
	t.pool.Send(f.addr, 2) // the other descriptors belong to the arena
	put := func(addr uint64, n uint32) { t.put(xsk.Desc{Addr: addr, Len: n, Options: xsk.Continued}, 0) }
	put(f.addr, uint32(f.front))
	t.pieces(f, put)
	t.put(xsk.Desc{Addr: f.addr + trailerAt, Len: uint32(f.n - f.front - f.nLent)}, f.n)
	return true
}

var _ link.Lender = (*Port)(nil)
