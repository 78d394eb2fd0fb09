package share

import (
	"encoding/binary"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// Packets from one process to another are sent in datagrams to the socket of the slot, several
// in one datagram. The kernel tells which user has sent a datagram; the receiver drops those of
// other users. Each packet is a record:
//
//	2 bytes  length of what follows the flags
//	1 byte   flags
//	52 bytes the envelope, if there is one: source, destination, source port, traffic class,
//	         hop limit, flow label, number in the super-packet, Identification, VLAN, source MAC
//	then the packet: with an envelope from the BTH on, otherwise a frame of Ethernet

const (
	fromNetwork  = 1 << 0 // the packet came from the network
	withEnvelope = 1 << 1 // an envelope precedes the packet
	idSeen       = 1 << 2 // of the envelope
	idMerged     = 1 << 3

	recordHeader = 3
	envelopeLen  = 16 + 16 + 2 + 1 + 1 + 4 + 2 + 2 + 2 + 6
	maxDatagram  = 60 << 10 // of packets to another process
)

// traffic has the counters of Stats.
type traffic struct{ sent, received, strays, dropped atomic.Uint64 }

// Stats implements [Shared].
func (p *Place) Stats() Stats {
	t := &p.traffic
	return Stats{Sent: t.sent.Load(), Received: t.received.Load(), Strays: t.strays.Load(), Dropped: t.dropped.Load()}
}

// outlet implements [Outlet].
type outlet struct {
	place *Place
	buf   []byte
	to    Slot
	count uint64
	names [Slots]unix.RawSockaddrUnix
	sizes [Slots]uint32
}

// NewOut implements [Shared].
func (p *Place) NewOut() Outlet { return p.newOut() }

func (p *Place) newOut() *outlet {
	o := &outlet{place: p, buf: make([]byte, 0, maxDatagram)}
	for s := range Slot(Slots) {
		name := slotName(p.config.Key, s).Name[1:]
		raw := &o.names[s]
		raw.Family = unix.AF_UNIX
		for i := range len(name) {
			raw.Path[i+1] = int8(name[i])
		}
		o.sizes[s] = uint32(unsafe.Offsetof(raw.Path)) + 1 + uint32(len(name))
	}
	return o
}

// Add implements [Outlet].
func (o *outlet) Add(to Slot, f *link.Frame, network bool) {
	size := len(f.Data)
	var flags byte
	if network {
		flags |= fromNetwork
	}
	if f.Env != nil {
		flags |= withEnvelope
		size += envelopeLen
		if f.Env.IDSeen {
			flags |= idSeen
		}
		if f.Env.IDMerged {
			flags |= idMerged
		}
	}
	if recordHeader+size > maxDatagram {
		o.place.traffic.dropped.Add(1)
		return
	}
	if o.count > 0 && (to != o.to || len(o.buf)+recordHeader+size > maxDatagram) {
		o.Flush()
	}
	o.to = to
	o.count++
	be := binary.BigEndian
	b := append(be.AppendUint16(o.buf, uint16(size)), flags)
	if e := f.Env; e != nil {
		b = append(append(b, e.Src[:]...), e.Dst[:]...)
		b = append(be.AppendUint16(b, e.SrcPort), e.TrafficClass, e.HopLimit)
		b = be.AppendUint16(be.AppendUint16(be.AppendUint32(b, e.FlowLabel), f.Segment), e.ID)
		b = append(be.AppendUint16(b, e.VLAN), e.SrcMAC[:]...)
	}
	o.buf = append(b, f.Data...)
}

// Flush implements [Outlet].
func (o *outlet) Flush() {
	if o.count == 0 {
		return
	}
	o.place.courier.send(o.to, o.buf, o.count, &o.names[o.to], o.sizes[o.to])
	o.buf, o.count = o.buf[:0], 0
}

// Crowded implements [Outlet].
func (o *outlet) Crowded(to Slot) bool { return o.place.courier.crowded(to) }

// Receive implements [Shared]. Each slot has a goroutine.
func (p *Place) Receive(take func(*Packet)) error {
	p.running.Go(p.courier.run)
	for i, fd := range p.pass {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(own), "slot") // not blocking, so the runtime's poller knows it
		conn, err := f.SyscallConn()
		if err != nil {
			f.Close()
			return err
		}
		in := &inlet{place: p, slot: p.slots[i], take: take}
		p.running.Go(func() {
			<-p.done
			f.Close()
		})
		p.running.Go(func() { in.run(conn) })
	}
	return nil
}

// inlet receives at the socket of a slot.
type inlet struct {
	place    *Place
	slot     Slot
	take     func(*Packet)
	room     [maxDatagram]byte
	oob      [32]byte // unix.CmsgSpace(unix.SizeofUcred): no room for descriptors
	iov      unix.Iovec
	msg      unix.Msghdr
	size     int
	errno    unix.Errno
	packet   Packet
	envelope frame.Envelope
}

func (in *inlet) run(conn syscall.RawConn) {
	in.iov.Base = &in.room[0]
	in.iov.SetLen(len(in.room))
	in.msg.Iov = &in.iov
	in.msg.SetIovlen(1)
	for conn.Read(in.receive) == nil {
		if in.errno == 0 && in.trusted() {
			in.open(in.room[:in.size])
		}
	}
}

// receive receives a datagram. It returns false if there is none yet.
func (in *inlet) receive(fd uintptr) bool {
	in.msg.Control = &in.oob[0]
	in.msg.SetControllen(len(in.oob))
	n, _, errno := unix.Syscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&in.msg)), unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	in.size, in.errno = int(n), errno
	return errno != unix.EAGAIN
}

// trusted reports whether the datagram is from a process of this user, or of another one that
// shares the address.
func (in *inlet) trusted() bool {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&in.oob[0]))
	n := int(in.msg.Controllen)
	if n < unix.CmsgLen(unix.SizeofUcred) || h.Level != unix.SOL_SOCKET || h.Type != unix.SCM_CREDENTIALS || in.msg.Flags&unix.MSG_CTRUNC != 0 {
		return false
	}
	c := (*unix.Ucred)(unsafe.Pointer(&in.oob[unix.CmsgLen(0)]))
	return c.Pid == in.place.pid || isUser(c.Uid) && (c.Uid == in.place.uid || in.place.board.hasUser(c.Uid))
}

// open delivers the packets of a datagram.
func (in *inlet) open(b []byte) {
	be := binary.BigEndian
	t := &in.place.traffic
	for len(b) >= recordHeader {
		size, flags := int(be.Uint16(b)), b[2]
		if b = b[recordHeader:]; size > len(b) {
			return
		}
		record := b[:size]
		b = b[size:]
		pk := &in.packet
		*pk = Packet{Slot: in.slot, Network: flags&fromNetwork != 0}
		if flags&withEnvelope != 0 {
			if size < envelopeLen {
				return
			}
			e := &in.envelope
			*e = frame.Envelope{Src: bth.GID(record[:16]), Dst: bth.GID(record[16:32]), SrcPort: be.Uint16(record[32:]), TrafficClass: record[34], HopLimit: record[35],
				FlowLabel: be.Uint32(record[36:]), ID: be.Uint16(record[42:]), VLAN: be.Uint16(record[44:]), SrcMAC: frame.MAC(record[46:52]), IDSeen: flags&idSeen != 0, IDMerged: flags&idMerged != 0}
			e.Seal()
			pk.Frame.Env, pk.Frame.Segment = e, be.Uint16(record[40:])
			record = record[envelopeLen:]
		}
		pk.Frame.Data = record
		t.received.Add(1)
		if pk.Network {
			t.strays.Add(1)
		}
		in.take(pk)
	}
}
