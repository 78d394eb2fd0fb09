package frame

import (
	"math/bits"

	"github.com/goroce/roce/bth"
)

// A plain UDP socket hides the IP header. The driver still knows all fields of
// an IPv6 header that the ICRC covers: lengths, ports, addresses. Of an IPv4
// header it does not know the identification. Since the CRC is linear, the
// package can compute it: the difference between the right register and the
// register with identification 0 determines the 16 bits, if any fit.

// unseenCRC returns the ICRC register after the headers of a datagram between
// two addresses, with IPv4 identification 0 and not to be fragmented.
func unseenCRC(src, dst *bth.GID, sport, length uint16) bth.CRC {
	var ip [ipv6Len]byte
	if is4(src) {
		ip[0], ip[9] = 0x45, protoUDP
		be.PutUint16(ip[2:], length+ipv4Len)
		be.PutUint16(ip[6:], dontFragment)
		copy(ip[12:], src[12:])
		copy(ip[16:], dst[12:])
		return maskedCRC(ip[:ipv4Len], sport, length)
	}
	ip[0], ip[6] = 6<<4, protoUDP
	be.PutUint16(ip[4:], length)
	copy(ip[8:], src[:])
	copy(ip[24:], dst[:])
	return maskedCRC(ip[:], sport, length)
}

// RecoverIPv4ID returns the identification the IPv4 header of a packet must
// have had for its ICRC to be right, when the header itself was not seen. Src,
// Dst and SrcPort must be set. It assumes that the header had no options and
// DF set, as in all RoCEv2 packets. ok is false if no identification makes the
// ICRC right: then the packet is damaged. RecoverIPv4ID accepts a damaged
// packet with probability 2^-16, less if the caller knows which identification
// to expect.
func (p *Packet) RecoverIPv4ID() (id uint16, ok bool) {
	if !is4(&p.Src) {
		return 0, false
	}
	c := p.bodyCRC(unseenCRC(&p.Src, &p.Dst, p.SrcPort, uint16(len(p.Data))+udpLen))
	return p.solve(c, 0, len(p.Data)-bth.ICRCLen)
}

// solve returns the identification that makes the ICRC right. c is the
// register after the whole packet with the identification guess; fed is how many
// bytes were fed after the UDP header.
func (p *Packet) solve(c bth.CRC, guess uint16, fed int) (id uint16, ok bool) {
	diff := c ^ bth.CRC(^p.ICRC())
	// Rewind the difference to the identification. There its two bytes are the
	// lower half of the register, and the upper half is zero.
	const fromID = ipv4Len - 4 + udpLen
	diff = rewind(diff, fed+fromID)
	return guess ^ bits.ReverseBytes16(uint16(diff)), diff>>16 == 0
}

// rewind returns the register that n zero bytes would have turned into c. Feeding zero
// bytes multiplies the register by a power of x modulo the CRC polynomial, so rewind
// multiplies by the inverse power, four binary digits of n at a time.
func rewind(c bth.CRC, n int) bth.CRC {
	for i := 0; n != 0; i, n = i+4, n>>4 {
		if d := n & 15; d != 0 {
			c = multiply(c, unshift[i/4][d])
		}
	}
	return c
}

// unshift[j][d] is x to the power of -8·d·16^j.
var unshift = buildUnshift()

func buildUnshift() (t [4][16]bth.CRC) {
	const one = 1 << 31 // x^0: the register is reflected
	step := bth.CRC(one)
	for range 8 {
		// Division by x: the polynomial has a constant term, so one of c and
		// c+P is divisible.
		if step&one != 0 {
			step ^= 0xEDB88320
			step = step<<1 | 1
		} else {
			step <<= 1
		}
	}
	for j := range t {
		t[j][0] = one
		for d := 1; d < 16; d++ {
			t[j][d] = multiply(t[j][d-1], step)
		}
		step = multiply(t[j][15], step)
	}
	return t
}

// multiply returns a·b modulo the CRC polynomial, all reflected: bit 31 is x^0.
func multiply(a, b bth.CRC) (p bth.CRC) {
	for range 32 {
		p ^= b & -(a >> 31)
		a <<= 1
		b = b>>1 ^ 0xEDB88320&-(b&1)
	}
	return p
}
