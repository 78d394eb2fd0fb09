// Package xdpblast benchmarks the rings of an AF_XDP port without a protocol: the upper bound for a protocol on the same
// link. Both ends compute the ICRC and copy the payload, as any stack must.
package xdpblast

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/xsk"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/xdp"
)

// rings returns the rings of a port. The caller uses them instead of the port's methods.
func rings(p link.Port) (*xdp.Port, *xsk.Memory, *xsk.Pool, *xsk.Socket, error) {
	x, ok := link.As[*xdp.Port](p)
	if !ok {
		return nil, nil, nil, nil, fmt.Errorf("a port of driver %s: %w", p.Info().Driver, unix.EINVAL)
	}
	mem, pool, socks := x.Rings()
	return x, mem, pool, socks[0], nil
}

// batch is how many frames go to the kernel at once.
const batch = 256

// sender describes the packets of send.
type sender struct {
	payload int // bytes, a multiple of 4

	// inPlace avoids the copy of the payload: send writes only headers and ICRC, and a packet has three descriptors. It
	// needs a port with scatter-gather and a payload that fits into a chunk.
	inPlace bool
}

// send sends packets as fast as the kernel takes them. It calls stop before each batch, and ends when stop returns true.
// It returns how many packets the kernel took. Nothing else may use the port, before or after.
func (c sender) send(p link.Port, path *frame.Path, stop func() bool) (packets int, err error) {
	_, mem, pool, s, err := rings(p)
	if err != nil {
		return 0, err
	}
	n := bth.BTHLen + c.payload + bth.ICRCLen
	header := path.HeaderLen(frame.LayoutEthernet)
	size := header + n
	descs := pool.Descs(size)
	payload := make([]byte, c.payload)
	at, _ := pool.Get(xsk.Building) // of the payload in place
	scratch := make([]byte, size)
	if c.inPlace {
		descs = 3
		payload = mem.Bytes[at : at+uint64(c.payload)]
	}
	id := uint16(0)
	build := func(addr uint64) {
		room := mem.Bytes[addr : addr+uint64(pool.Slot)]
		frameOf := room[:size]
		if c.inPlace {
			frameOf = scratch
		}
		body, crc := path.Put(frameOf, frame.LayoutEthernet, n, id)
		id++
		bth.PutBTH(body, bth.RCSendOnly, 0, 0, bth.DefaultPKey, 1, bth.PSN(id))
		crc = crc.UpdateBTH(body[:bth.BTHLen])
		if c.inPlace {
			pool.Send(addr, 2)  // the third is of the payload
			const trailer = 256 // where the ICRC lies in the slot
			copy(room, scratch[:header+bth.BTHLen])
			bth.PutICRC(room[trailer:], crc.Update(payload))
			s.TX.Put(xsk.Desc{Addr: addr, Len: uint32(header + bth.BTHLen), Options: xsk.Continued})
			s.TX.Put(xsk.Desc{Addr: at, Len: uint32(c.payload), Options: xsk.Continued})
			s.TX.Put(xsk.Desc{Addr: addr + trailer, Len: bth.ICRCLen})
			return
		}
		pool.Send(addr, descs)
		bth.PutICRC(body[n-bth.ICRCLen:], crc.Copy(body[bth.BTHLen:], payload))
		for at := 0; at < size; at += pool.Chunk {
			d := xsk.Desc{Addr: addr + uint64(at), Len: uint32(min(pool.Chunk, size-at))}
			if at+pool.Chunk < size {
				d.Options = xsk.Continued
			}
			s.TX.Put(d)
		}
	}
	first := s.TX.Consumed()
	for !stop() {
		done := s.Completion.Ready(s.Completion.Size())
		for i := range done {
			pool.Complete(*s.Completion.Get(i))
		}
		s.Completion.Release(done)
		for range batch {
			if s.TX.Free(descs) < descs {
				break
			}
			addr, ok := pool.Get(xsk.Building)
			if !ok {
				break
			}
			build(addr)
		}
		s.TX.Submit()
		switch errno := s.KickTX(); errno {
		case 0, unix.EAGAIN, unix.EBUSY, unix.ENOBUFS, unix.EINTR:
		default:
			return 0, fmt.Errorf("send: %w", errno)
		}
	}
	return int((s.TX.Consumed() - first) / descs), nil
}

// receive receives packets. It calls stop when no packet has arrived, and ends when stop returns true. It returns the
// numbers of packets with a right and with a wrong ICRC. Nothing else may use the port, before or after.
func receive(p link.Port, stop func() bool) (packets, bad int, err error) {
	x, mem, pool, s, err := rings(p)
	if err != nil {
		return 0, 0, err
	}
	into := make([]byte, x.Info().MTU)
	var whole []byte // of a frame in pieces
	var packet frame.Packet
	for {
		n := s.RX.Ready(link.Batch)
		if n == 0 {
			if stop() {
				return packets, bad, nil
			}
			runtime.Gosched()
			continue
		}
		for i := range n {
			d := s.RX.Get(i)
			b := mem.Bytes[d.Addr : d.Addr+uint64(d.Len)]
			slot := pool.Start(d.Addr)
			pool.Pass(slot, xsk.Filling, xsk.Reading)
			pool.Pass(slot, xsk.Reading, xsk.Filling)
			s.Fill.Put(slot)
			if d.Options&xsk.Continued != 0 || len(whole) > 0 {
				whole = append(whole, b...)
				if d.Options&xsk.Continued != 0 {
					continue
				}
				b = whole
			}
			whole = whole[:0]
			if packet.Parse(b, frame.LayoutEthernet) != nil || !packet.CheckICRC() {
				bad++
				continue
			}
			copy(into, packet.Payload())
			packets++
		}
		s.RX.Release(n)
		s.Fill.Submit()
	}
}
