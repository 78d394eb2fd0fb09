// Package gso has functions for super-packets. A super-packet stands for many UDP packets of equal size (the last one
// may be shorter) that share one header. Packet i has the payload from i*size on, and the IPv4 Identification of the
// header plus i. The kernel segments a super-packet as late as possible, or never if the other end takes it
// whole.
package gso

import (
	"encoding/binary"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

const (
	// MaxSegments is the limit of packets in a super-packet (UDP_MAX_SEGMENTS); FewSegments is the limit of
	// kernels before Linux 6.9 and its stable contemporaries.
	MaxSegments = 128
	FewSegments = 64

	// MaxSuper is the size of the largest super-packet that a driver sends, with the Ethernet header. The kernel
	// segments larger ones before the device.
	MaxSuper = 65535

	udpLen = 8

	etherIPv4 = 0x0800
	etherIPv6 = 0x86DD
	etherVLAN = 0x8100
	etherQinQ = 0x88A8
	protoUDP  = 17
)

// The header in front of every frame on a socket with PACKET_VNET_HDR (struct
// virtio_net_hdr), in the host's byte order.
const (
	VnetLen = 10

	NeedsCsum = 1    // Flags: the checksum from CsumStart on is missing
	None      = 0    // Type
	UDP4      = 5    // Type: UDP segmentation
	ECN       = 0x80 // may be or-ed to Type
)

// VnetHeader has the fields of that header.
type VnetHeader struct {
	Flags, Type           uint8
	HeaderLen, Size       uint16
	CsumStart, CsumOffset uint16
}

// Put writes the header to b[0:].
func (h *VnetHeader) Put(b []byte) {
	b[0], b[1] = h.Flags, h.Type
	binary.NativeEndian.PutUint16(b[2:], h.HeaderLen)
	binary.NativeEndian.PutUint16(b[4:], h.Size)
	binary.NativeEndian.PutUint16(b[6:], h.CsumStart)
	binary.NativeEndian.PutUint16(b[8:], h.CsumOffset)
}

// Get reads the header from b[0:].
func (h *VnetHeader) Get(b []byte) {
	h.Flags, h.Type = b[0], b[1]
	h.HeaderLen = binary.NativeEndian.Uint16(b[2:])
	h.Size = binary.NativeEndian.Uint16(b[4:])
	h.CsumStart = binary.NativeEndian.Uint16(b[6:])
	h.CsumOffset = binary.NativeEndian.Uint16(b[8:])
}

// Headers has the offsets of the headers of a frame.
type Headers struct {
	IP, UDP, Body int // offsets
	V6            bool
}

// Look finds the headers of an Ethernet frame with UDP to port 4791 in an IPv4
// packet without options or an IPv6 packet without extensions.
func Look(b []byte) (e Headers, ok bool) {
	if len(b) < 14 {
		return e, false
	}
	t := binary.BigEndian.Uint16(b[12:])
	e.IP = 14
	if t == etherVLAN || t == etherQinQ {
		if len(b) < 18 {
			return e, false
		}
		t = binary.BigEndian.Uint16(b[16:])
		e.IP = 18
	}
	switch t {
	case etherIPv4:
		e.UDP = e.IP + 20
		ok = len(b) >= e.UDP+udpLen && b[e.IP] == 0x45 && b[e.IP+9] == protoUDP &&
			binary.BigEndian.Uint16(b[e.IP+6:])&0x3FFF == 0
	case etherIPv6:
		e.V6 = true
		e.UDP = e.IP + 40
		ok = len(b) >= e.UDP+udpLen && b[e.IP]>>4 == 6 && b[e.IP+6] == protoUDP
	}
	e.Body = e.UDP + udpLen
	return e, ok && binary.BigEndian.Uint16(b[e.UDP+2:]) == bth.UDPPort
}

// ClearChecksum removes the UDP checksum of a frame that was never on a wire: it is a partial sum of the kernel. The
// ICRC does not cover the field.
func ClearChecksum(b []byte) {
	if e, ok := Look(b); ok {
		b[e.UDP+6], b[e.UDP+7] = 0, 0
	}
}

// SetLengths writes the IP and UDP lengths for a payload, and the IPv4 header
// checksum.
func SetLengths(b []byte, e Headers, bodyLen int) {
	binary.BigEndian.PutUint16(b[e.UDP+4:], uint16(udpLen+bodyLen))
	if e.V6 {
		binary.BigEndian.PutUint16(b[e.IP+4:], uint16(udpLen+bodyLen))
		return
	}
	binary.BigEndian.PutUint16(b[e.IP+2:], uint16(20+udpLen+bodyLen))
	b[e.IP+10], b[e.IP+11] = 0, 0
	binary.BigEndian.PutUint16(b[e.IP+10:], ^frame.Fold16(frame.Sum16(b[e.IP:e.UDP])))
}

// Segment writes the i-th packet of a super-packet to dst. The super-packet must have it.
func Segment(dst, super []byte, e Headers, size, i int) {
	body := super[e.Body+i*size:]
	body = body[:min(size, len(body))]
	copy(dst, super[:e.Body])
	if !e.V6 {
		id := binary.BigEndian.Uint16(super[e.IP+4:]) + uint16(i)
		binary.BigEndian.PutUint16(dst[e.IP+4:], id)
	}
	SetLengths(dst, e, len(body))
	dst[e.UDP+6], dst[e.UDP+7] = 0, 0
	copy(dst[e.Body:], body)
}
