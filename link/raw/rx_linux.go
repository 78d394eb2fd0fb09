package raw

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/gso"
	"github.com/goroce/roce/internal/mmsg"
	"github.com/goroce/roce/internal/order"
	"github.com/goroce/roce/link"
)

const (
	vlanTag = 4

	// rxRoom is the room for any frame, including super-packets, and before
	// it for the VLAN tag that the kernel has removed.
	rxRoom = vlanTag + 14 + gso.MaxSuper + 1

	// rxGoal is about the number of bytes that one receive should return, so
	// that they are still in the cache when they are handled.
	rxGoal = 256 << 10

	// auxRoom is the room for one control message with a tpacket_auxdata.
	auxRoom = 64
)

// rx is the receive side of a Port. It belongs to the owner.
type rx struct {
	vnet bool // the kernel puts a virtio_net_hdr in front of each frame
	aux  bool // the kernel adds a control message with a tpacket_auxdata

	calls mmsg.Receiver
	room  []byte // rxRoom bytes for each message; unused pages cost nothing
	msgs  [link.Batch]unix.Mmsghdr
	iov   [2 * link.Batch]unix.Iovec
	vnets [link.Batch][gso.VnetLen]byte
	auxs  [link.Batch][auxRoom / 8]uint64 // aligned for the structs in it

	most        int                        // capacity in messages
	want        int                        // messages to ask for
	next, count int                        // messages [next:count] are not returned yet
	envs        [link.Batch]frame.Envelope // of super-packets, by message
	flow        frame.SuperFlow            // of the last super-packet
	super       []byte                     // rest of message next, if it is a super-packet
	size        int                        // bytes of its next packet
	seg         uint16                     // number of its next packet
	header      int                        // bytes of its headers
}

// init allocates room for the given number of messages in one receive, at
// most link.Batch.
func (r *rx) init(messages int) {
	r.most = messages
	r.room = make([]byte, messages*rxRoom)
	r.want = messages
	for i := range r.msgs[:messages] {
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
		if r.aux {
			m.Control = (*byte)(unsafe.Pointer(&r.auxs[i]))
			m.SetControllen(auxRoom)
		}
	}
}

// frame returns the room of message i.
func (r *rx) frame(i int) []byte { return r.room[i*rxRoom : (i+1)*rxRoom : (i+1)*rxRoom] }

// Recv implements link.Port. It returns the data first, then a few management datagrams.
func (p *Port) Recv(fr []link.Frame) (n int, err error) {
	if p.Gate.Closed() {
		return 0, link.ErrClosed
	}
	switch {
	case p.mads == nil:
		n, err = p.recv(fr)
	case p.Reads.DataOnly():
		n, err = p.recv(fr)
		p.Reads.GotData(n)
	default:
		n, err = p.Reads.Recv(fr, p.recv, p.mads.recv)
	}
	p.Left()
	return n, err
}

// recv fills fr from the Port's own socket.
func (p *Port) recv(fr []link.Frame) (n int, err error) {
	r := &p.rx
	if r.next == r.count {
		if err := p.receive(len(fr)); err != nil {
			return 0, err
		}
	}
	bytes := 0
	for n < len(fr) && r.next < r.count {
		if r.super == nil {
			b := r.message(p)
			if b == nil {
				r.next++
				continue
			}
			if r.super == nil { // a single packet
				fr[n] = link.Frame{Data: b}
				bytes += len(b)
				n++
				r.next++
				continue
			}
		}
		env, left, size, seg := &r.envs[r.next], r.super, r.size, r.seg
		for n < len(fr) && len(left) > 0 {
			size = min(size, len(left))
			f := &fr[n] // set field by field: the compiler would build a composite literal elsewhere and copy it
			f.Data, f.Env, f.Segment = left[:size:size], env, seg
			left = left[size:]
			bytes += r.header + size
			seg++
			n++
		}
		r.super, r.seg = left, seg
		if len(left) == 0 {
			r.super = nil
			r.next++
		}
	}
	p.Count.Received(n, uint64(bytes))
	if left := r.next < r.count; left != p.Backlog.Load() {
		p.Backlog.Store(left)
	}
	return n, nil
}

// receive gets the next batch of messages from the kernel.
func (p *Port) receive(most int) error {
	if !p.Gate.Enter() {
		return link.ErrClosed
	}
	err := p.receiveOpen(most)
	p.Gate.Leave() // not deferred: that costs each poll time
	return err
}

// receiveOpen is receive while the socket is in use.
func (p *Port) receiveOpen(most int) error {
	r := &p.rx
	most = r.calls.Most(min(most, r.want))
	if r.aux {
		for i := range r.msgs[:r.count] { // set the fields that the kernel has changed
			r.msgs[i].Hdr.SetControllen(auxRoom)
		}
	}
	r.next, r.count = 0, 0
	if most == 0 {
		return nil
	}
	got, errno := r.calls.Receive(p.FD, r.msgs[:most])
	switch errno {
	case 0:
		order.Received()
		r.count = got
		r.adapt()
		p.Alive()
		p.Sleeper.Busy()
		return nil
	case unix.EAGAIN, unix.EINTR:
		return nil
	case unix.EINVAL:
		// A super-packet of a kind for which the kernel has no virtio_net_hdr.
		// It is lost.
		p.Count.RxErrors.Add(1)
		return nil
	case unix.ENETDOWN:
		// The kernel reports this once when the interface goes down, and when
		// it is removed.
		p.Look()
		if err := p.LinkState("receive"); err != nil {
			return err
		}
	}
	return p.Fail("receive", errno)
}

// adapt sets the number of messages for the next receive, so that it returns
// about rxGoal bytes if they resemble the last ones: megabytes of super-packets
// would leave the cache before they are handled.
func (r *rx) adapt() {
	bytes := 0
	for i := range r.msgs[:r.count] {
		bytes += int(r.msgs[i].Len)
	}
	r.want = min(max(rxGoal*r.count/max(bytes, 1), 2), r.most)
}

// message returns the frame of message next, with its VLAN tag and without a
// partial checksum. If it is a super-packet, message sets r.super.
func (r *rx) message(p *Port) []byte {
	m := &r.msgs[r.next]
	room := r.frame(r.next)
	n := int(m.Len)
	if r.vnet {
		n -= gso.VnetLen
	}
	if n < 14 || m.Hdr.Flags&unix.MSG_TRUNC != 0 || n > len(room)-vlanTag {
		p.Count.RxErrors.Add(1)
		return nil
	}
	b := room[vlanTag : vlanTag+n : vlanTag+n]
	partial := false // the UDP checksum is a partial sum
	if r.aux {
		a := auxdata(&r.auxs[r.next], int(m.Hdr.Controllen))
		partial = a.Status&unix.TP_STATUS_CSUMNOTREADY != 0
		if a.Status&unix.TP_STATUS_VLAN_VALID != 0 && a.Vlan_tci != 0 {
			copy(room, b[:12])
			b = room[: vlanTag+n : vlanTag+n]
			proto := uint16(unix.ETH_P_8021Q)
			if a.Status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
				proto = a.Vlan_tpid
			}
			binary.BigEndian.PutUint16(b[12:], proto)
			binary.BigEndian.PutUint16(b[14:], a.Vlan_tci)
		}
	}
	if r.vnet {
		var h gso.VnetHeader
		h.Get(r.vnets[r.next][:])
		if h.Type != gso.None {
			r.size = int(h.Size)
			if h.Type&^gso.ECN != gso.UDP4 || r.size == 0 || !r.divide(b) {
				p.Count.RxErrors.Add(1)
				return nil
			}
			return b
		}
		partial = h.Flags&gso.NeedsCsum != 0
	}
	if partial {
		gso.ClearChecksum(b)
	}
	return b
}

// divide makes the body of super-packet b the super-packet whose packets recv returns, and describes it. It returns
// false if a header is wrong.
func (r *rx) divide(b []byte) bool {
	env := &r.envs[r.next]
	if r.header, r.super = r.flow.Match(env, b); r.super == nil {
		if r.header, r.super = describe(env, b); r.super == nil {
			return false
		}
		r.flow.Learn(env, r.header, b)
	}
	r.seg = 0
	return true
}

// auxdata returns the PACKET_AUXDATA in the first n bytes of control messages,
// the only kind that the socket requests; zero if there is none.
func auxdata(room *[auxRoom / 8]uint64, n int) (a unix.TpacketAuxdata) {
	need := unix.CmsgLen(int(unsafe.Sizeof(a)))
	h := (*unix.Cmsghdr)(unsafe.Pointer(room))
	if n < need || n > auxRoom || h.Level != unix.SOL_PACKET || h.Type != unix.PACKET_AUXDATA || int(h.Len) < need {
		return a
	}
	return *(*unix.TpacketAuxdata)(unsafe.Add(unsafe.Pointer(room), unix.CmsgLen(0)))
}
