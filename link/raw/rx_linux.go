package raw

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/link"
)

const (
	vlanTag = 4

	// rxRoom is room for any frame, super-packets included, and before it for
	// the VLAN tag that the kernel took out.
	rxRoom = vlanTag + 14 + maxSuper + 1

	// auxRoom is that for one control message with a tpacket_auxdata.
	auxRoom = 64
)

// rx is the receive side of a Port. It belongs to the owner.
type rx struct {
	vnet bool

	room  []byte // Batch times rxRoom; pages never used cost nothing
	msgs  [link.Batch]unix.Mmsghdr
	iov   [2 * link.Batch]unix.Iovec
	vnets [link.Batch][vnetLen]byte
	aux   [link.Batch][auxRoom / 8]uint64 // aligned for the structs in it

	next, count int    // messages [next:count] are not handed out yet
	super       []byte // message next is a super-packet, being taken apart
	where       envelope
	size, seg   int // bytes and number of its next segment

	parts  []byte // Batch times part: segments handed out
	part   int
	filled int
}

func (r *rx) init(mtu int) {
	r.room = make([]byte, link.Batch*rxRoom)
	r.part = mtu + 14 + vlanTag
	for i := range r.msgs {
		m := &r.msgs[i].Hdr
		v := r.iov[2*i : 2*i+2]
		v[0] = buffer(r.vnets[i][:])
		v[1] = buffer(r.frame(i)[vlanTag:])
		if r.vnet {
			m.Iov = &v[0]
			m.SetIovlen(2)
		} else {
			m.Iov = &v[1]
			m.SetIovlen(1)
		}
		m.Control = (*byte)(unsafe.Pointer(&r.aux[i]))
	}
}

// frame is the room of message i.
func (r *rx) frame(i int) []byte { return r.room[i*rxRoom : (i+1)*rxRoom : (i+1)*rxRoom] }

// Recv implements link.Port.
func (p *Port) Recv(fr []link.Frame) (n int, err error) {
	r := &p.rx
	if p.gate.Closed() {
		return 0, link.ErrClosed
	}
	if r.next == r.count {
		if err := p.receive(len(fr)); err != nil {
			return 0, err
		}
	}
	r.filled = 0
	bytes := uint64(0)
	for n < len(fr) && r.next < r.count {
		b, more := r.take(p)
		if b != nil {
			fr[n] = link.Frame{Data: b}
			bytes += uint64(len(b))
			n++
		} else if more {
			break // no room for segments in this batch
		}
	}
	p.count.Received(n, bytes)
	if left := r.next < r.count; left != p.backlog.Load() {
		p.backlog.Store(left)
	}
	return n, nil
}

// receive gets the next batch of messages from the kernel.
func (p *Port) receive(most int) error {
	r := &p.rx
	if !p.gate.Enter() {
		return link.ErrClosed
	}
	defer p.gate.Leave()
	most = min(most, len(r.msgs))
	for i := range r.msgs[:most] {
		r.msgs[i].Hdr.SetControllen(auxRoom)
	}
	r.next, r.count = 0, 0
	if most == 0 {
		return nil
	}
	got, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(p.fd),
		uintptr(unsafe.Pointer(&r.msgs)), uintptr(most), unix.MSG_DONTWAIT, 0, 0)
	switch errno {
	case 0:
		r.count = int(got)
		p.count.SetDown(false)
		return nil
	case unix.EAGAIN, unix.EINTR:
		return nil
	case unix.ENETDOWN:
		// Said once when the interface goes down, and when it is removed.
		p.count.SetDown(true)
		if err := p.linkState("receive"); err != nil {
			return err
		}
	}
	return p.failed("receive", errno)
}

// take hands out the next frame. nil means none this time: the message was
// unusable, or, with more set, it has segments but this batch has no room.
func (r *rx) take(p *Port) (b []byte, more bool) {
	if r.super == nil {
		b = r.message(p)
		if b == nil || r.super == nil {
			r.next++
			return b, false
		}
	}
	if r.filled == link.Batch {
		return nil, true
	}
	part := r.parts[r.filled*r.part : (r.filled+1)*r.part]
	n, bad := segment(part, r.super, r.where, r.size, r.seg)
	if n == 0 {
		if bad {
			p.count.RxErrors.Add(1)
		}
		r.super = nil
		r.next++
		return nil, false
	}
	r.filled++
	r.seg++
	if r.seg*r.size >= len(r.super)-r.where.body {
		r.super = nil
		r.next++
	}
	return part[:n:n], false
}

// message is the frame of message next, with its VLAN tag and without a
// checksum that is not one. If it is a super-packet, r.super is set.
func (r *rx) message(p *Port) []byte {
	m := &r.msgs[r.next]
	room := r.frame(r.next)
	n := int(m.Len)
	if r.vnet {
		n -= vnetLen
	}
	if n < 14 || m.Hdr.Flags&unix.MSG_TRUNC != 0 || n > len(room)-vlanTag {
		p.count.RxErrors.Add(1)
		return nil
	}
	b := room[vlanTag : vlanTag+n : vlanTag+n]
	a := auxdata(&r.aux[r.next], int(m.Hdr.Controllen))
	if a.Status&unix.TP_STATUS_VLAN_VALID != 0 && a.Vlan_tci != 0 {
		copy(room, b[:12])
		b = room[: vlanTag+n : vlanTag+n]
		proto := uint16(etherVLAN)
		if a.Status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
			proto = a.Vlan_tpid
		}
		binary.BigEndian.PutUint16(b[12:], proto)
		binary.BigEndian.PutUint16(b[14:], a.Vlan_tci)
	}
	if a.Status&unix.TP_STATUS_CSUMNOTREADY != 0 {
		clearChecksum(b)
	}
	if !r.vnet {
		return b
	}
	var h vnetHeader
	h.get(r.vnets[r.next][:])
	if h.gsoType == vnetGSONone {
		return b
	}
	e, ok := look(b)
	if !ok || h.gsoType&^vnetGSOECN != vnetGSOUDP4 || h.gsoSize == 0 || len(b) <= e.body {
		p.count.RxErrors.Add(1)
		return nil
	}
	if r.parts == nil {
		r.parts = make([]byte, link.Batch*r.part)
	}
	r.super, r.where, r.size, r.seg = b, e, int(h.gsoSize), 0
	return b
}

// auxdata finds the PACKET_AUXDATA among the first n bytes of control messages,
// of which it is the only one we asked for; zero if it is not there.
func auxdata(room *[auxRoom / 8]uint64, n int) (a unix.TpacketAuxdata) {
	need := unix.CmsgLen(int(unsafe.Sizeof(a)))
	h := (*unix.Cmsghdr)(unsafe.Pointer(room))
	if n < need || n > auxRoom || h.Level != unix.SOL_PACKET || h.Type != unix.PACKET_AUXDATA || int(h.Len) < need {
		return a
	}
	return *(*unix.TpacketAuxdata)(unsafe.Add(unsafe.Pointer(room), unix.CmsgLen(0)))
}
