package udp

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

// ipv6FlowInfo is IPV6_FLOWINFO of <linux/in6.h>: the first word of the header.
const ipv6FlowInfo = 11

// Control messages are struct cmsghdr and data, padded to words.
var (
	cmsgHeader = unix.CmsgLen(0)
	space16    = unix.CmsgSpace(2)
)

// controlRoom holds all control messages of a packet, sent or received.
const controlRoom = 192

// control is aligned for the structs in it.
type control [controlRoom / 8]uint64

func (c *control) bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(c)), controlRoom) }

// put appends a control message at offset n. It returns the offset for the next one, and
// the data of this one, which the caller fills in.
func (c *control) put(n int, level, kind int32, size int) (next int, data []byte) {
	b := c.bytes()[n:]
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = level, kind
	h.SetLen(unix.CmsgLen(size))
	return n + unix.CmsgSpace(size), b[cmsgHeader : cmsgHeader+size]
}

func (c *control) putInt(n int, level, kind int32, value uint32) int {
	n, data := c.put(n, level, kind, 4)
	binary.NativeEndian.PutUint32(data, value)
	return n
}

// destination has the arguments of sendmsg(2) for a path: the destination
// address, and control messages with the source address and the values that differ
// from the socket's defaults. The room before them is for UDP_SEGMENT. It can be
// compared.
type destination struct {
	name    unix.RawSockaddrInet6 // or a RawSockaddrInet4
	nameLen uint32
	size    int // of the control messages
	control control
}

// set makes d the destination of a path.
func (d *destination) set(p *Port, c *frame.PathConfig) {
	*d = destination{}
	n := space16
	port := binary.NativeEndian.Uint16([]byte{bth.UDPPort >> 8, bth.UDPPort & 0xFF})
	if p.v6 {
		d.name.Family, d.name.Port, d.name.Addr = unix.AF_INET6, port, c.Dst
		d.nameLen = unix.SizeofSockaddrInet6
		if c.Dst.IsLinkLocal() || c.Dst.IsMulticast() {
			d.name.Scope_id = uint32(p.Desc.Index)
		}
	} else {
		to := (*unix.RawSockaddrInet4)(unsafe.Pointer(&d.name))
		to.Family, to.Port, to.Addr = unix.AF_INET, port, [4]byte(c.Dst[12:])
		d.nameLen = unix.SizeofSockaddrInet4
	}
	level, class, hops := int32(unix.IPPROTO_IPV6), int32(unix.IPV6_TCLASS), int32(unix.IPV6_HOPLIMIT)
	if c.Dst.Is4() {
		level, class, hops = unix.IPPROTO_IP, unix.IP_TOS, unix.IP_TTL
	}
	if p.bound.IsZero() {
		var data []byte
		if c.Dst.Is4() {
			n, data = d.control.put(n, level, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
			copy(data[4:], c.Src[12:]) // Spec_dst
		} else {
			n, data = d.control.put(n, level, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
			copy(data, c.Src[:])
			if c.Src.IsLinkLocal() {
				binary.NativeEndian.PutUint32(data[16:], uint32(p.Desc.Index))
			}
		}
	}
	if c.TrafficClass != 0 {
		n = d.control.putInt(n, level, class, uint32(c.TrafficClass))
	}
	if c.HopLimit != hopLimit {
		n = d.control.putInt(n, level, hops, uint32(c.HopLimit))
	}
	d.size = n
}

// take makes d a copy of from, but leaves the rest of the room for control messages: it is large, and usually unused.
func (d *destination) take(from *destination) {
	d.name, d.nameLen, d.size = from.name, from.nameLen, from.size
	if d.size > space16 {
		copy(d.control.bytes()[space16:d.size], from.control.bytes()[space16:])
	}
}

// header fills in a message to d. segment is the size of its segments, or 0 for a single
// packet.
func (d *destination) header(h *unix.Msghdr, segment int) {
	h.Name, h.Namelen = (*byte)(unsafe.Pointer(&d.name)), d.nameLen
	from := space16
	if segment != 0 {
		from = 0
		_, data := d.control.put(0, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 2)
		binary.NativeEndian.PutUint16(data, uint16(segment))
	}
	h.Control = nil
	if d.size > from {
		h.Control = &d.control.bytes()[from]
	}
	h.SetControllen(d.size - from)
}

// received has the properties of a received message, from its address and its control messages.
type received struct {
	src, dst     bth.GID
	port         uint16
	trafficClass uint8
	hopLimit     uint8
	flowLabel    uint32
	segment      int // bytes of each datagram of a super-packet; 0: the message is one datagram
}

// take reads address and control messages.
func (r *received) take(name *unix.RawSockaddrInet6, c *control, n int) {
	*r = received{port: binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&name.Port))[:])}
	if name.Family == unix.AF_INET {
		r.src = mapped((*unix.RawSockaddrInet4)(unsafe.Pointer(name)).Addr)
	} else {
		r.src = name.Addr
	}
	b := c.bytes()[:min(n, controlRoom)]
	for len(b) >= cmsgHeader {
		h, data, rest, err := unix.ParseOneSocketControlMessage(b)
		if err != nil {
			return
		}
		r.message(h.Level, h.Type, data)
		b = rest
	}
}

// message reads a control message.
func (r *received) message(level, kind int32, data []byte) {
	if len(data) == 0 {
		return
	}
	word := uint32(data[0])
	if len(data) >= 4 {
		word = binary.NativeEndian.Uint32(data)
	}
	switch {
	case level == unix.IPPROTO_UDP && kind == unix.UDP_GRO:
		r.segment = int(uint16(word))
	case level == unix.IPPROTO_IP && kind == unix.IP_TOS:
		r.trafficClass = uint8(word)
	case level == unix.IPPROTO_IP && kind == unix.IP_TTL:
		r.hopLimit = uint8(word)
	case level == unix.IPPROTO_IP && kind == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
		r.dst = mapped([4]byte(data[8:]))
	case level == unix.IPPROTO_IPV6 && kind == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
		r.dst = bth.GID(data)
	case level == unix.IPPROTO_IPV6 && kind == unix.IPV6_HOPLIMIT:
		r.hopLimit = uint8(word)
	case level == unix.IPPROTO_IPV6 && kind == ipv6FlowInfo && len(data) >= 4:
		flow := binary.BigEndian.Uint32(data)
		r.trafficClass, r.flowLabel = uint8(flow>>20), flow&0xFFFFF
	}
}

// mapped returns the GID of an IPv4 address.
func mapped(a [4]byte) bth.GID {
	return bth.GID{10: 0xFF, 11: 0xFF, 12: a[0], 13: a[1], 14: a[2], 15: a[3]}
}
