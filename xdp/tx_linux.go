package xdp

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/xsk"
	"github.com/goroce/roce/link"
)

// packet is a committed frame.
type packet struct {
	addr  uint64 // of the slot
	n     int    // bytes in all
	lent  uint64 // address of the payload sent in place
	nLent int    // bytes of that payload; 0: the whole frame is in the slot
	front int    // bytes of the frame before that payload, at the beginning of the slot
}

// tx is the transmit side of a Port. Only the owner uses it.
type tx struct {
	sock       *xsk.Socket           // of rx, or one of our own: see Port.setUpTX
	completion *xsk.Consumer[uint64] // of the queue
	pool       *xsk.Pool
	mtu        int

	arena   *xsk.Arena
	inPlace int // smallest payload that is sent in place

	lent    []byte
	slot    packet // the slot of lent
	kept    bool   // slot is reserved, also while nothing is lent
	scratch []byte // room for frames beyond the MTU
	over    bool   // lent is in scratch
	id      uint16 // Identification of the next IPv4 packet
	failure error  // of a Flush inside Begin, for the next Flush

	queue []packet // committed and not in the ring
	sizes []int    // bytes of the frame that ends at an entry of the ring
	sent  uint32   // account has counted the entries of the ring before this index

	voided atomic.Uint64 // descriptors made invalid
}

func (t *tx) init(mtu, ring int, arena *xsk.Arena) {
	t.mtu, t.arena = mtu, arena
	t.queue = make([]packet, 0, queueLen(ring))
	t.sizes = make([]int, ring)
}

// Begin implements frame.Sink.
func (p *Port) Begin(path *frame.Path, n int) (body []byte, crc bth.CRC, ok bool) {
	t := &p.tx
	t.lent = nil
	if n < 0 || p.gate.Closed() {
		return nil, 0, false
	}
	size := path.HeaderLen(frame.LayoutEthernet) + n
	t.over = path.HeaderLen(frame.LayoutIP)+n > t.mtu
	if t.over {
		if len(t.scratch) < size {
			t.scratch = make([]byte, size)
		}
		t.lent = t.scratch[:size:size]
	} else {
		if !p.room() {
			return nil, 0, false
		}
		at := t.slot.addr
		t.slot = packet{addr: at, n: size}
		t.lent = p.card.mem.Bytes[at : at+uint64(size) : at+uint64(size)]
	}
	body, crc = path.Put(t.lent, frame.LayoutEthernet, n, t.id)
	return body, crc, true
}

// room reserves a slot and an entry in the queue. It reports whether there were
// both.
func (p *Port) room() bool {
	t := &p.tx
	if t.kept && len(t.queue) < cap(t.queue) {
		return true
	}
	for tries := 0; ; tries++ {
		if !t.kept {
			t.slot.addr, t.kept = t.pool.Get(xsk.Building)
		}
		if t.kept && len(t.queue) < cap(t.queue) {
			return true
		}
		if tries > 0 {
			break
		}
		if err := p.send(); err != nil && t.failure == nil {
			t.failure = err
		}
	}
	p.starve()
	return false
}

// Lent implements link.Port.
func (p *Port) Lent() []byte { return p.tx.lent }

// Commit implements frame.Sink.
func (p *Port) Commit() {
	t := &p.tx
	if t.lent == nil {
		return
	}
	t.id++
	t.lent = nil
	if t.over {
		p.count.TxOversize.Add(1)
		return
	}
	if t.slot.nLent > 0 {
		t.lend(&t.slot)
		p.count.TxInPlace.Add(1)
	}
	t.queue = append(t.queue, t.slot)
	t.kept = false
}

// Flush implements link.Port.
func (p *Port) Flush() error {
	t := &p.tx
	if p.gate.Closed() {
		return link.ErrClosed
	}
	err := p.send()
	if err == nil {
		err = t.failure
	}
	t.failure = nil
	return err
}

// send passes the committed frames to the kernel. Frames that find no room
// there stay in the queue or in the ring.
func (p *Port) send() error {
	t := &p.tx
	if len(t.queue) == 0 && t.sent == t.sock.TX.Next() && (t.kept || t.pool.Len() > 0) {
		p.unblock()
		return nil // the slots of sent frames are taken back in the next call with frames to send
	}
	if !p.gate.Enter() {
		return link.ErrClosed
	}
	err := p.sendQueued()
	p.gate.Leave() // not deferred: that costs each packet time
	return err
}

// sendQueued is send while the socket is in use.
func (p *Port) sendQueued() error {
	t := &p.tx
	asked := false // whether the link is up, in this call
	for idle := 0; idle < 3; {
		p.reap()
		t.fill()
		if len(t.queue) == 0 && t.sent == t.sock.TX.Next() {
			p.unblock()
			return nil
		}
		if !t.sock.TX.NeedWakeup() { // the driver is already reading the ring
			p.account(false)
			if len(t.queue) > 0 {
				p.starve()
			}
			return nil
		}
		errno := t.sock.KickTX()
		n := p.account(errno == unix.EBUSY)
		switch errno {
		case 0, unix.EINTR:
		case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM:
			p.count.TxRetries.Add(1)
		case unix.EBUSY:
			// The kernel has dropped one frame: the device has no room, or no
			// carrier.
			p.count.TxRetries.Add(1)
			if !asked {
				asked = true
				if down := p.card.linkState("send"); down != nil {
					return p.giveUp(down)
				}
			}
		case unix.ENETDOWN, unix.ENXIO, unix.ENODEV:
			down := p.card.linkState("send")
			if down == nil {
				down = failure("send", p.info.Interface, errno)
			}
			return p.giveUp(down)
		default:
			p.count.TxErrors.Add(uint64(p.discard()))
			p.unblock()
			return failure("send", p.info.Interface, errno)
		}
		if n > 0 {
			p.alive()
			idle = 0
		} else {
			idle++
		}
	}
	p.starve()
	return nil
}

// fill moves frames from the queue to the ring, as many whole ones as fit.
func (t *tx) fill() {
	ring := &t.sock.TX
	n := 0
	for i := range t.queue {
		f := &t.queue[i]
		if f.nLent > 0 {
			if !t.fillInPlace(f) {
				break
			}
			n++
			continue
		}
		descs := t.pool.Descs(f.n)
		if ring.Free(descs) < descs {
			break
		}
		t.pool.Send(f.addr, descs)
		chunk := t.pool.Chunk
		for at := 0; at < f.n; at += chunk {
			d := xsk.Desc{Addr: f.addr + uint64(at), Len: uint32(min(chunk, f.n-at))}
			size := f.n
			if at+chunk < f.n {
				d.Options, size = xsk.Continued, 0
			}
			t.put(d, size)
		}
		n++
	}
	if n > 0 {
		ring.Submit()
		t.queue = t.queue[:copy(t.queue, t.queue[n:])]
	}
}

// put writes an entry of the ring. size is the size of the frame if this is its last entry, else 0.
func (t *tx) put(d xsk.Desc, size int) {
	ring := &t.sock.TX
	t.sizes[ring.Put(d)&(ring.Size()-1)] = size
}

// account counts the frames that the kernel has taken out of the ring, and
// returns the number of their descriptors. If lost is set the kernel has
// dropped the last frame.
func (p *Port) account(lost bool) int {
	t := &p.tx
	ring := &t.sock.TX
	end := ring.Consumed()
	taken := int(int32(end - t.sent))
	if taken <= 0 {
		return 0
	}
	frames, bytes, last := 0, uint64(0), 0
	for ; t.sent != end; t.sent++ {
		if size := t.sizes[t.sent&(ring.Size()-1)]; size > 0 {
			frames++
			bytes += uint64(size)
			last = size
		}
	}
	if lost && frames > 0 {
		frames--
		bytes -= uint64(last)
		p.count.TxDrops.Add(1)
	}
	p.count.Sent(frames, bytes)
	return taken
}

// reap takes back the slots of sent frames.
func (p *Port) reap() {
	t := &p.tx
	ring := t.completion
	n := ring.Ready(ring.Size())
	if n == 0 {
		return
	}
	for i := range n {
		t.complete(*ring.Get(i))
	}
	ring.Release(n)
}

// starve makes Wait wait for room, too. It also affects a Wait in progress.
func (p *Port) starve() {
	if !p.starved.Swap(true) {
		p.Wake()
	}
}

// unblock undoes starve: no packet waits for room any more.
func (p *Port) unblock() {
	if p.starved.Load() {
		p.starved.Store(false)
	}
}

// giveUp drops all packets because the link is down or gone.
func (p *Port) giveUp(err error) error {
	p.look("send")
	p.count.TxDrops.Add(uint64(p.discard()))
	p.unblock()
	return err
}

// nowhere is an invalid address: it is outside of every UMEM.
const nowhere = 1 << 62

// discard drops all frames that the kernel has not taken, and returns their
// number. It cannot take descriptors out of the ring: it makes them invalid and
// the kernel skips them, so that no old frame is sent when the link comes back.
func (p *Port) discard() (frames int) {
	t := &p.tx
	p.account(false)
	ring := &t.sock.TX
	for ; t.sent != ring.Next(); t.sent++ {
		d := ring.At(t.sent)
		addr := d.Addr
		*d = xsk.Desc{Addr: nowhere}
		p.voided(addr)
		if size := &t.sizes[t.sent&(ring.Size()-1)]; *size > 0 {
			frames++
			*size = 0
		}
	}
	for i := range t.queue {
		if t.queue[i].nLent > 0 {
			t.recall(&t.queue[i])
		}
		t.pool.Put(t.queue[i].addr, xsk.Building)
		frames++
	}
	t.queue = t.queue[:0]
	return frames
}

// voided takes back one descriptor that the kernel will not complete.
func (p *Port) voided(addr uint64) {
	p.tx.voided.Add(1)
	p.tx.complete(addr)
}

// complete takes back one descriptor from the kernel.
func (t *tx) complete(addr uint64) {
	if !t.pool.Complete(addr) && t.arena.Has(addr) {
		t.arena.Complete(addr)
	}
}
