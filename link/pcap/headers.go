package pcap

import (
	"encoding/binary"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

const (
	etherIPv4 = 0x0800
	etherIPv6 = 0x86DD
	etherVLAN = 0x8100 // 802.1Q
	etherQinQ = 0x88A8 // 802.1ad

	protoUDP = 17
	notWhole = 0x3FFF // bits of the flags and the fragment offset that a fragment has

	udpLen  = 8
	ipv4Len = 20
	ipv6Len = 40
)

var be = binary.BigEndian

func isIP(typ uint16) bool   { return typ == etherIPv4 || typ == etherIPv6 }
func isVLAN(typ uint16) bool { return typ == etherVLAN || typ == etherQinQ }

// maxTags limits the VLAN tags of a frame, because every packet of a super-packet gets a copy of
// them.
const maxTags = 4

// etherType returns the Ethernet type at b[at:], or after the VLAN tags there, and the offset of
// the header that follows it. typ is 0 if b ends before.
func etherType(b []byte, at int) (typ uint16, n int) {
	for n = at + 2; len(b) >= n && n <= at+2+4*maxTags; n += 4 {
		if typ = be.Uint16(b[n-2:]); !isVLAN(typ) {
			return typ, n
		}
	}
	return 0, 0
}

// headers has the offsets of the headers of a UDP datagram to port 4791 in a record.
type headers struct {
	ip, udp, body int // where they begin
	end           int // of the body
	v6            bool
	noLength      bool // the length in the IP header is zero
}

// locate finds the headers. ok is false if the lengths in them do not agree; a length of zero is
// accepted.
func locate(b []byte, start int, layout frame.Layout) (h headers, ok bool) {
	h.ip = start
	if layout == frame.LayoutEthernet {
		typ, n := etherType(b[start:], 12)
		if h.ip += n; !isIP(typ) {
			return h, false
		}
	}
	ip := b[h.ip:]
	var total, length int // as the headers have them
	switch {
	case len(ip) >= ipv4Len+udpLen && ip[0] == 0x45 && ip[9] == protoUDP && be.Uint16(ip[6:])&notWhole == 0:
		h.udp = h.ip + ipv4Len
		total = int(be.Uint16(ip[2:]))
		h.noLength = total == 0
	case len(ip) >= ipv6Len+udpLen && ip[0]>>4 == 6 && ip[6] == protoUDP:
		h.udp, h.v6 = h.ip+ipv6Len, true
		total = int(be.Uint16(ip[4:]))
		if h.noLength = total == 0; !h.noLength {
			total += ipv6Len
		}
	default:
		return h, false
	}
	udp := b[h.udp:]
	h.body, h.end = h.udp+udpLen, h.ip+total
	length = int(be.Uint16(udp[4:]))
	if h.noLength {
		h.end = len(b)
		if end := h.udp + length; end > h.body && end < h.end && h.end-h.ip <= 0xFFFF {
			h.end = end // the rest is padding
		}
		return h, be.Uint16(udp[2:]) == bth.UDPPort
	}
	if end := h.udp + length; end <= h.end && end > h.body {
		h.end = end
		return h, be.Uint16(udp[2:]) == bth.UDPPort
	}
	return h, false
}

// complete fills in the lengths and checksums that a card would fill in for a single packet.
func (h *headers) complete(b []byte) (marks Mark) {
	if h.noLength {
		marks |= NoLength
		if h.end-h.ip <= 0xFFFF {
			h.setLengths(b)
		}
	}
	if !h.v6 && (be.Uint16(b[h.ip+10:]) == 0 || h.noLength) {
		if !h.noLength {
			marks |= NoIPChecksum
		}
		h.setIPChecksum(b)
	}
	switch sum := be.Uint16(b[h.udp+6:]); {
	case sum == 0 || frame.Fold16(h.pseudoSum(b)+frame.Sum16(b[h.udp:h.end])) == 0xFFFF:
	case h.noLength || sum == frame.Fold16(h.pseudoSum(b)):
		marks |= PartialUDPChecksum
		h.setUDPChecksum(b)
	default:
		marks |= WrongUDPChecksum
	}
	return marks
}

// setLengths writes the lengths of the headers of a datagram that ends at h.end.
func (h *headers) setLengths(b []byte) {
	be.PutUint16(b[h.udp+4:], uint16(h.end-h.udp))
	if h.v6 {
		be.PutUint16(b[h.ip+4:], uint16(h.end-h.udp))
		return
	}
	be.PutUint16(b[h.ip+2:], uint16(h.end-h.ip))
}

func (h *headers) setIPChecksum(b []byte) {
	be.PutUint16(b[h.ip+10:], 0)
	be.PutUint16(b[h.ip+10:], ^frame.Fold16(frame.Sum16(b[h.ip:h.udp])))
}

func (h *headers) setUDPChecksum(b []byte) {
	be.PutUint16(b[h.udp+6:], 0)
	sum := ^frame.Fold16(h.pseudoSum(b) + frame.Sum16(b[h.udp:h.end]))
	if sum == 0 {
		sum = 0xFFFF // zero means none
	}
	be.PutUint16(b[h.udp+6:], sum)
}

// pseudoSum returns the sum of the pseudo header of the UDP checksum.
func (h *headers) pseudoSum(b []byte) uint32 {
	addresses := h.udp - 8
	if h.v6 {
		addresses = h.udp - 32
	}
	return frame.Sum16(b[addresses:h.udp]) + protoUDP + uint32(h.end-h.udp)
}

// envelope returns the header fields that all packets of the super-packet share.
func (h *headers) envelope(b []byte) frame.Envelope {
	e := frame.Envelope{SrcPort: be.Uint16(b[h.udp:]), IDSeen: true, IDMerged: true}
	if h.v6 {
		e.Src, e.Dst = bth.GID(b[h.ip+8:]), bth.GID(b[h.ip+24:])
	} else {
		e.ID = be.Uint16(b[h.ip+4:])
		e.Src, e.Dst = mapped(b[h.ip+12:]), mapped(b[h.ip+16:])
	}
	e.Seal()
	return e
}

// mapped returns the IPv4 address at b[0:] as a GID.
func mapped(b []byte) bth.GID {
	return bth.GID{10: 0xFF, 11: 0xFF, 12: b[0], 13: b[1], 14: b[2], 15: b[3]}
}
