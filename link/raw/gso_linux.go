package raw

import (
	"encoding/binary"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

// A super-packet is many UDP packets of equal size, the last one perhaps
// shorter, that share one header: segment i has the payload bytes from i*size,
// and the IPv4 Identification of the header plus i. The kernel makes packets of
// it as late as it can, or never if the other end takes it whole.

const (
	// maxSegments is how many packets a super-packet may hold (UDP_MAX_SEGMENTS), and
	// fewSegments how many with a kernel before Linux 6.9 and its contemporaries.
	maxSegments = 128
	fewSegments = 64

	// maxSuper is the largest super-packet that is sent, from the Ethernet
	// header on. Larger ones are taken apart before the device.
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

// superHeader turns the headers of the first packet into those of a super-packet of bodyLen
// payload bytes: the lengths of the whole, and the sum of the UDP pseudo header, from which
// the kernel or the device completes the checksum.
func superHeader(b []byte, e envelope, bodyLen int) {
	setLengths(b, e, bodyLen)
	addresses := b[e.ip+12 : e.udp]
	if e.v6 {
		addresses = b[e.ip+8 : e.udp]
	}
	sum := frame.Fold16(uint32(protoUDP+udpLen+bodyLen) + frame.Sum16(addresses))
	binary.BigEndian.PutUint16(b[e.udp+6:], sum)
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
	binary.BigEndian.PutUint16(b[e.ip+10:], ^frame.Fold16(frame.Sum16(b[e.ip:e.udp])))
}

// segment writes the i-th packet of a super-packet that has it to dst.
func segment(dst, super []byte, e envelope, size, i int) {
	body := super[e.body+i*size:]
	body = body[:min(size, len(body))]
	copy(dst, super[:e.body])
	if !e.v6 {
		id := binary.BigEndian.Uint16(super[e.ip+4:]) + uint16(i)
		binary.BigEndian.PutUint16(dst[e.ip+4:], id)
	}
	setLengths(dst, e, len(body))
	dst[e.udp+6], dst[e.udp+7] = 0, 0
	copy(dst[e.body:], body)
}

// describe checks the headers of a super-packet that look has found as
// [frame.Packet.Parse] does those of a packet, and fills in an envelope. It
// returns the payload, nil if there is something wrong.
func describe(env *frame.Envelope, b []byte, e envelope) (body []byte) {
	ip, udp := b[e.ip:e.udp], b[e.udp:]
	length := int(binary.BigEndian.Uint16(udp[4:]))
	var total int // as the IP header has it
	*env = frame.Envelope{DstMAC: frame.MAC(b), SrcMAC: frame.MAC(b[6:]), SrcPort: binary.BigEndian.Uint16(udp), IDSeen: true, IDMerged: true}
	if e.ip == 18 {
		env.VLAN = binary.BigEndian.Uint16(b[14:]) & 0x0FFF
	}
	if e.v6 {
		env.TrafficClass, env.HopLimit = ip[0]<<4|ip[1]>>4, ip[7]
		env.FlowLabel = binary.BigEndian.Uint32(ip) & (1<<20 - 1)
		env.Src, env.Dst = bth.GID(ip[8:]), bth.GID(ip[24:])
		if env.Src.Is4() || env.Dst.Is4() {
			return nil
		}
		total = 40 + int(binary.BigEndian.Uint16(ip[4:]))
	} else {
		env.TrafficClass, env.HopLimit = ip[1], ip[8]
		env.ID = binary.BigEndian.Uint16(ip[4:])
		env.Src = bth.GID{10: 0xFF, 11: 0xFF, 12: ip[12], 13: ip[13], 14: ip[14], 15: ip[15]}
		env.Dst = bth.GID{10: 0xFF, 11: 0xFF, 12: ip[16], 13: ip[17], 14: ip[18], 15: ip[19]}
		if frame.Fold16(frame.Sum16(ip)) != 0xFFFF {
			return nil
		}
		total = int(binary.BigEndian.Uint16(ip[2:]))
	}
	if length <= udpLen || len(ip)+length > total || total > len(b)-e.ip {
		return nil
	}
	env.Seal()
	return udp[udpLen:length:length]
}
