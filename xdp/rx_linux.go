package xdp

import (
	"sync/atomic"

	"github.com/goroce/roce/internal/xsk"
	"github.com/goroce/roce/link"
)

// rx is the receive side of a Port. Only the owner uses it.
type rx struct {
	socks []*xsk.Socket // one for each queue
	turn  int           // index of the socket that Recv reads first
	busy  bool          // poll the interface when there is nothing

	held [][]uint64 // slots of each socket that go back to its Fill ring

	ailing atomic.Bool // poll(2) has reported an error, or the interface is gone
}

func (r *rx) init(p *Port) {
	r.busy = p.card.cfg.BusyPoll > 0
	r.held = make([][]uint64, len(r.socks))
	for i := range r.held {
		r.held[i] = make([]uint64, 0, p.card.cfg.RingSize)
	}
}

// Recv implements link.Port.
func (p *Port) Recv(fr []link.Frame) (n int, err error) {
	if !p.gate.Enter() {
		return 0, link.ErrClosed
	}
	r := &p.rx
	bytes := uint64(0)
	for range r.socks {
		s := r.socks[r.turn]
		p.refill(r.turn)
		got, b := p.receive(r.turn, fr[n:])
		n += got
		bytes += b
		if got == 0 && (r.busy || s.Fill.NeedWakeup()) {
			s.KickRX()
		}
		if n == len(fr) {
			break // the next Recv continues with this socket
		}
		if r.turn++; r.turn == len(r.socks) {
			r.turn = 0
		}
	}
	if n > 0 {
		p.count.Received(n, bytes)
		p.alive()
		p.sleeper.Busy()
	}
	if r.ailing.Load() && r.ailing.Swap(false) {
		err = p.look("receive")
	}
	p.gate.Leave() // not deferred: that costs each poll time
	return n, err
}

// refill returns the slots of frames that were read to the kernel.
func (p *Port) refill(i int) {
	r := &p.rx
	held := r.held[i]
	if len(held) == 0 {
		return
	}
	ring := &r.socks[i].Fill
	n := min(len(held), int(ring.Free(uint32(len(held)))))
	for _, addr := range held[:n] {
		p.tx.pool.Pass(addr, xsk.Reading, xsk.Filling)
		ring.Put(addr)
	}
	ring.Submit()
	r.held[i] = held[:copy(held, held[n:])]
}

// receive takes frames from one socket.
func (p *Port) receive(i int, fr []link.Frame) (n int, bytes uint64) {
	ring := &p.rx.socks[i].RX
	ready := ring.Ready(uint32(len(fr)))
	used := uint32(0)
	for used < ready && n < len(fr) {
		b, pieces := p.frame(i, used, ready)
		used += pieces
		if b == nil {
			p.count.RxErrors.Add(1)
			continue
		}
		clearChecksum(b)
		fr[n] = link.Frame{Data: b}
		bytes += uint64(len(b))
		n++
	}
	if used > 0 {
		ring.Release(used)
	}
	return n, bytes
}

// frame returns the frame that begins at descriptor at of a socket's ring, and the
// number of its descriptors; ready is how many descriptors the ring has from there
// on. b is nil if the frame is unusable. The kernel publishes all descriptors of a
// frame at once.
//
// The first piece of a frame in several pieces ends at the end of a chunk, and
// the rest of that slot is free. frame moves the later pieces, the smaller part,
// there, so that the frame is contiguous.
func (p *Port) frame(i int, at, ready uint32) (b []byte, pieces uint32) {
	r, pool, mem := &p.rx, p.tx.pool, p.card.mem.Bytes
	ring := &r.socks[i].RX
	var slot, end uint64 // start of the frame's slot; end of the pieces moved so far
	good := true
	for at < ready {
		d := ring.Get(at)
		at++
		pieces++
		size := uint64(d.Len)
		if !pool.Has(d.Addr) || size > uint64(pool.Chunk) {
			return nil, pieces // no known kernel does this
		}
		own := pool.Start(d.Addr)
		pool.Pass(own, xsk.Filling, xsk.Reading)
		r.held[i] = append(r.held[i], own)
		switch {
		case pieces == 1:
			slot, end = own, d.Addr+size
			b = mem[d.Addr : end : slot+uint64(pool.Slot)]
		case end+size > slot+uint64(pool.Slot):
			good = false
		default:
			copy(mem[end:], mem[d.Addr:d.Addr+size])
			end += size
			b = b[:uint64(len(b))+size]
		}
		if d.Options&xsk.Continued == 0 {
			if !good {
				b = nil
			}
			return b[:len(b):len(b)], pieces
		}
	}
	return nil, pieces
}
