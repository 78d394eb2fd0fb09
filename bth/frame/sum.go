package frame

import (
	"encoding/binary"
	"math/bits"

	"github.com/goroce/roce/bth"
)

var le = binary.LittleEndian

// Sum16 returns the Internet sum of b (RFC 1071): its big-endian 16-bit words added up, the
// last one padded with a zero. b has at most 256 KiB; the sum fits in 16 bits.
func Sum16(b []byte) uint32 {
	// Words of 32 bits add up to the same, once folded.
	var s uint64
	for len(b) >= 4 {
		s += uint64(be.Uint32(b))
		b = b[4:]
	}
	if len(b) >= 2 {
		s += uint64(be.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	for s>>16 != 0 {
		s = s&0xFFFF + s>>16
	}
	return uint32(s)
}

// Fold16 brings a sum of a few 16-bit words down to 16 bits. The Internet checksum is its
// complement.
func Fold16(s uint32) uint16 {
	s = s&0xFFFF + s>>16
	return uint16(s + s>>16)
}

// validIPv4 reports whether the checksum of an IPv4 header without options is
// right: its sum is all ones. That holds in either byte order (RFC 1071, 2(B)).
func validIPv4(h *[ipv4Len]byte) bool {
	s, carry := bits.Add64(le.Uint64(h[0:]), le.Uint64(h[8:]), 0)
	s, carry = bits.Add64(s, uint64(le.Uint32(h[16:])), carry)
	s = s>>32 + s&0xFFFFFFFF + carry
	s = s>>16 + s&0xFFFF
	return Fold16(uint32(s)) == 0xFFFF
}

// Masks of the IP headers, by little-endian words.
const (
	ones8 = 0xFFFF00FF          // IPv4: bytes 8, 10 and 11
	ones0 = 0xFF0000_00FFFFFF0F // IPv6: bytes 0 (lower half), 1 to 3, 7
)

// maskedCRC returns the ICRC register after an IP header of 20 or 40 bytes and
// a UDP header, with everything routers may change as ones (IBTA A17.3.3): of
// IPv4 the type of service, time to live and checksum; of IPv6 the traffic
// class, flow label and hop limit; of UDP the checksum.
func maskedCRC(ip []byte, sport, length uint16) bth.CRC {
	c := bth.CRCSeed
	if len(ip) == ipv4Len {
		h := (*[ipv4Len]byte)(ip)
		c = c.Update64(le.Uint64(h[0:]) | 0xFF<<8).Update64(le.Uint64(h[8:]) | ones8).Update32(le.Uint32(h[16:]))
	} else {
		h := (*[ipv6Len]byte)(ip)
		c = c.Update64(le.Uint64(h[0:]) | ones0)
		for i := 8; i < ipv6Len; i += 8 {
			c = c.Update64(le.Uint64(h[i:]))
		}
	}
	const checksum = 0xFFFF
	return c.Update64(bits.ReverseBytes64(uint64(sport)<<48 | bth.UDPPort<<32 | uint64(length)<<16 | checksum))
}

// A CRC is linear: the register after a string is the exclusive or of those
// after its parts, each with zeros in place of the others. So a field that
// varies from packet to packet costs two table look-ups, and the rest of the
// headers is summed up once per path.

// field16 is the contribution of each value of a 16-bit field to the
// register, by its high and its low byte.
type field16 [2][256]bth.CRC

func (t *field16) of(v uint16) bth.CRC { return t[0][v>>8] ^ t[1][v&0xFF] }

// The contributions of the fields at the end of the UDP header. The IP
// headers end eight bytes before it.
var (
	crcIPv4Len = newField16(ipv4Len + udpLen - 2)
	crcIPv4ID  = newField16(ipv4Len + udpLen - 4)
	crcIPv6Len = newField16(ipv6Len + udpLen - 4)
	crcUDPLen  = newField16(udpLen - 4)
)

// newField16 makes the table of a field that starts before the given number of
// bytes.
func newField16(before int) (t field16) {
	for half := range t {
		for bit := range 8 {
			var b [ipv6Len + udpLen]byte
			b[0] = 1 << bit
			t[half][1<<bit] = bth.CRC(0).UpdateShort(b[:before-half])
		}
		for v := range t[half] {
			low := v & -v
			t[half][v] = t[half][v-low] ^ t[half][low]
		}
	}
	return t
}
