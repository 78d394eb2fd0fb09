package raw

import (
	"encoding/binary"

	"github.com/goroce/roce/bth"
)

// A super-packet is many UDP packets of equal size, the last one perhaps
// shorter, that share one header: segment i has the payload bytes from i*size,
// and the IPv4 Identification of the header plus i. The kernel makes packets of
// it as late as it can, or never if the other end takes it whole.

const (
	// maxSegments is how many packets a super-packet may hold: the least
	// UDP_MAX_SEGMENTS of all kernels.
	maxSegments = 64

	// maxSuper is the largest super-packet, from the IP header on.
	maxSuper = 65535

	udpLen = 8
)

// The header in front of every frame on a socket with PACKET_VNET_HDR (struct
// virtio_net_hdr), in the host's byte order.
const (
	vnetLen = 10

	vnetNeedsCsum = 1 // flags: checksum from csum_start on is still to be made
	vnetGSOUDP4   = 5 // gso_type: UDP segmentation
	vnetGSONone   = 0
	vnetGSOECN    = 0x80 // may be or-ed to gso_type
)

type vnetHeader struct {
	flags, gsoType     uint8
	hdrLen, gsoSize    uint16
	csumStart, csumOff uint16
}

func (h *vnetHeader) put(b []byte) {
	b[0], b[1] = h.flags, h.gsoType
	binary.NativeEndian.PutUint16(b[2:], h.hdrLen)
	binary.NativeEndian.PutUint16(b[4:], h.gsoSize)
	binary.NativeEndian.PutUint16(b[6:], h.csumStart)
	binary.NativeEndian.PutUint16(b[8:], h.csumOff)
}

func (h *vnetHeader) get(b []byte) {
	h.flags, h.gsoType = b[0], b[1]
	h.hdrLen = binary.NativeEndian.Uint16(b[2:])
	h.gsoSize = binary.NativeEndian.Uint16(b[4:])
	h.csumStart = binary.NativeEndian.Uint16(b[6:])
	h.csumOff = binary.NativeEndian.Uint16(b[8:])
}

// envelope is where the headers of a frame are.
type envelope struct {
	ip, udp, body int // offsets
	v6            bool
}

// look finds the headers of an Ethernet frame with UDP to port 4791 in an IPv4
// packet without options or an IPv6 packet without extensions.
func look(b []byte) (e envelope, ok bool) {
	if len(b) < 14 {
		return e, false
	}
	t := binary.BigEndian.Uint16(b[12:])
	e.ip = 14
	if t == etherVLAN || t == etherQinQ {
		if len(b) < 18 {
			return e, false
		}
		t = binary.BigEndian.Uint16(b[16:])
		e.ip = 18
	}
	switch t {
	case etherIPv4:
		e.udp = e.ip + 20
		ok = len(b) >= e.udp+udpLen && b[e.ip] == 0x45 && b[e.ip+9] == protoUDP &&
			binary.BigEndian.Uint16(b[e.ip+6:])&0x3FFF == 0
	case etherIPv6:
		e.v6 = true
		e.udp = e.ip + 40
		ok = len(b) >= e.udp+udpLen && b[e.ip]>>4 == 6 && b[e.ip+6] == protoUDP
	}
	e.body = e.udp + udpLen
	return e, ok && binary.BigEndian.Uint16(b[e.udp+2:]) == bth.UDPPort
}

// clearChecksum removes the UDP checksum of a frame that was never on a wire:
// the kernel has put a partial sum there. The ICRC does not cover the field.
func clearChecksum(b []byte) {
	if e, ok := look(b); ok {
		b[e.udp+6], b[e.udp+7] = 0, 0
	}
}

// follows reports whether frame b may be the next segment of a super-packet
// that begins with frame a, k segments in: everything but the lengths, the
// IPv4 Identification and its checksum is equal, and neither has a UDP
// checksum. The caller compares the lengths.
func follows(a, b []byte, e envelope, k int) bool {
	if len(b) < e.body || string(a[:e.ip]) != string(b[:e.ip]) {
		return false
	}
	if e.v6 {
		if string(a[e.ip:e.ip+4]) != string(b[e.ip:e.ip+4]) || string(a[e.ip+6:e.udp+4]) != string(b[e.ip+6:e.udp+4]) {
			return false
		}
	} else {
		id := binary.BigEndian.Uint16(a[e.ip+4:]) + uint16(k)
		if binary.BigEndian.Uint16(b[e.ip+4:]) != id ||
			string(a[e.ip:e.ip+2]) != string(b[e.ip:e.ip+2]) ||
			string(a[e.ip+6:e.ip+10]) != string(b[e.ip+6:e.ip+10]) ||
			string(a[e.ip+12:e.udp+4]) != string(b[e.ip+12:e.udp+4]) {
			return false
		}
	}
	return a[e.udp+6]|a[e.udp+7]|b[e.udp+6]|b[e.udp+7] == 0
}

// superHeader makes the headers of a super-packet of bodyLen payload bytes: a
// copy of its first frame's with the lengths of the whole, and the sum of the
// UDP pseudo header for whoever completes the checksum.
func superHeader(dst, first []byte, e envelope, bodyLen int) {
	copy(dst, first[:e.body])
	setLengths(dst, e, bodyLen)
	addresses := dst[e.ip+12 : e.udp]
	if e.v6 {
		addresses = dst[e.ip+8 : e.udp]
	}
	sum := fold(add(uint32(protoUDP+udpLen+bodyLen), addresses))
	binary.BigEndian.PutUint16(dst[e.udp+6:], sum)
}

// setLengths writes the IP and UDP lengths for a payload, and the IPv4 header
// checksum.
func setLengths(b []byte, e envelope, bodyLen int) {
	binary.BigEndian.PutUint16(b[e.udp+4:], uint16(udpLen+bodyLen))
	if e.v6 {
		binary.BigEndian.PutUint16(b[e.ip+4:], uint16(udpLen+bodyLen))
		return
	}
	binary.BigEndian.PutUint16(b[e.ip+2:], uint16(20+udpLen+bodyLen))
	b[e.ip+10], b[e.ip+11] = 0, 0
	binary.BigEndian.PutUint16(b[e.ip+10:], ^fold(add(0, b[e.ip:e.udp])))
}

// segment writes the i-th packet of a super-packet to dst and returns its
// length; 0 when there is no such packet, or dst is too small, which bad tells.
func segment(dst, super []byte, e envelope, size, i int) (n int, bad bool) {
	body := super[e.body:]
	at := i * size
	if size <= 0 || at >= len(body) {
		return 0, false
	}
	body = body[at:min(at+size, len(body))]
	if len(dst) < e.body+len(body) {
		return 0, true
	}
	copy(dst, super[:e.body])
	if !e.v6 {
		id := binary.BigEndian.Uint16(super[e.ip+4:]) + uint16(i)
		binary.BigEndian.PutUint16(dst[e.ip+4:], id)
	}
	setLengths(dst, e, len(body))
	dst[e.udp+6], dst[e.udp+7] = 0, 0
	return e.body + copy(dst[e.body:], body), false
}

// add and fold are the Internet checksum (RFC 1071) of an even number of bytes,
// few enough not to overflow.
func add(sum uint32, b []byte) uint32 {
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(b[0])<<8 | uint32(b[1])
	}
	return sum
}

func fold(sum uint32) uint16 {
	sum = sum&0xFFFF + sum>>16
	return uint16(sum + sum>>16)
}
