package frame

import "github.com/goroce/roce/bth"

// sum16 adds b up as big-endian 16-bit words, the last one padded with a zero
// (RFC 1071), for up to 64 KiB.
func sum16(b []byte) uint32 {
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

// fold16 brings a sum of a few 16-bit words down to 16 bits.
func fold16(s uint32) uint16 {
	s = s&0xFFFF + s>>16
	return uint16(s + s>>16)
}

// maskedCRC returns the ICRC register after an IP header and a UDP header with
// everything routers may change as ones (IBTA A17.3.3): of IPv4 the type of
// service, time to live and checksum; of IPv6 the traffic class, flow label
// and hop limit; of UDP the checksum.
func maskedCRC(ip []byte, sport, length uint16) bth.CRC {
	var m [ipv6Len + udpLen]byte
	n := copy(m[:ipv6Len], ip)
	if n == ipv4Len {
		m[1], m[8], m[10], m[11] = 0xFF, 0xFF, 0xFF, 0xFF
	} else {
		m[0] |= 0x0F
		m[1], m[2], m[3], m[7] = 0xFF, 0xFF, 0xFF, 0xFF
	}
	u := m[n : n+udpLen]
	be.PutUint16(u, sport)
	be.PutUint16(u[2:], bth.UDPPort)
	be.PutUint16(u[4:], length)
	u[6], u[7] = 0xFF, 0xFF
	return bth.CRCSeed.UpdateShort(m[:n+udpLen])
}

// A CRC is linear: the register after a string is the exclusive or of those
// after its parts, each with zeros in place of the others. So a field that
// varies from packet to packet costs two table look-ups, and the rest of the
// headers is summed up once per path.

// field16 is what each value of a 16-bit field adds to the register, by its
// high and its low byte.
type field16 [2][256]bth.CRC

func (t *field16) of(v uint16) bth.CRC { return t[0][v>>8] ^ t[1][v&0xFF] }

// What the fields add at the end of the UDP header. The IP headers end eight
// bytes before it.
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
