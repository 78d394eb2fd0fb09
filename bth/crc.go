package bth

import (
	"encoding/binary"
	"hash/crc32"
)

var le = binary.LittleEndian

// CRC is the running register of the invariant CRC: CRC-32 of IEEE 802.3
// (reflected polynomial 0xEDB88320), not inverted. Start from [CRCSeed] or from
// the register after the envelope, feed the packet in any pieces, and call
// [CRC.Sum].
//
// The ICRC covers, in this order (IBTA A17.3.3):
//
//	8 bytes 0xFF        a local routing header that is not there; in CRCSeed
//	IP header           with the fields routers change as ones
//	UDP header          with the checksum as ones
//	BTH                 with byte 4 as ones: UpdateBTH, or UpdateBody for the BTH and the rest of the packet
//	extended headers, payload, pad, as they are: Update, Copy
//
// rxe computes a wrong ICRC for FLUSH; see [CRC.UpdateFlushQuirk].
type CRC uint32

// CRCSeed is the register after the eight 0xFF bytes every ICRC starts with.
const CRCSeed CRC = 0xDEBB20E3

// ICRCResidue is the Sum over a packet including its stored ICRC when that is
// right.
const ICRCResidue uint32 = 0x2144DF1C

// Update feeds b as it is.
func (c CRC) Update(b []byte) CRC {
	switch n := len(b); {
	case hasCLMUL && n >= 16 && n < clmulMax:
		if n &= 15; n < 4 {
			c, b = c.UpdateShort(b[:n]), b[n:]
		}
		return clmul(c, &b[0], len(b))
	case sparsePays && !hardwareCRC && n >= sparseMin:
		return c.sparse(b)
	case n >= clmulMin:
		// crc32 inverts the register on the way in and on the way out.
		n := len(b) &^ 15
		c = ^CRC(crc32.Update(^uint32(c), crc32.IEEETable, b[:n]))
		b = b[n:]
	}
	return c.UpdateShort(b)
}

// UpdateShort is [CRC.Update] for a few bytes, such as headers, that are on
// the caller's stack: unlike Update it does not make them escape to the heap.
func (c CRC) UpdateShort(b []byte) CRC {
	for len(b) >= 8 {
		c = c.Update64(le.Uint64(b))
		b = b[8:]
	}
	if len(b) >= 4 {
		c = c.Update32(le.Uint32(b))
		b = b[4:]
	}
	for _, v := range b {
		c = c>>8 ^ slicing[0][byte(c)^v]
	}
	return c
}

// UpdateBTH feeds the 12 bytes of the BTH at b[0:], with byte 4 (FECN, BECN
// and reserved bits) as 0xFF.
func (c CRC) UpdateBTH(b []byte) CRC {
	_ = b[BTHLen-1]
	return c.Update64(uint64(le.Uint32(b)) | uint64(le.Uint32(b[4:])|0xFF)<<32).Update32(le.Uint32(b[8:]))
}

// UpdateBody feeds a packet from its BTH at b[0:] on, with byte 4 as [CRC.UpdateBTH] does.
func (c CRC) UpdateBody(b []byte) CRC {
	if n := len(b); hasCLMUL && n >= 16 && n < clmulMax && n&3 == 0 && n&15 != 4 {
		return clmulBTH(c, &b[0], n)
	}
	return c.UpdateBTH(b).Update(b[BTHLen:])
}

// UpdateBodies is [CRC.UpdateBody] of the first n bytes of four packets. For short
// packets it is much faster than four calls of UpdateBody.
func UpdateBodies(c *[4]CRC, b *[4][]byte, n int) {
	if hasCLMUL && n >= 16 && n < clmulMax4 && n&3 == 0 && n&15 != 4 {
		_, _, _, _ = b[0][:n], b[1][:n], b[2][:n], b[3][:n]
		clmulBTH4(c, b, n)
		return
	}
	for i := range c {
		c[i] = c[i].UpdateBody(b[i][:n])
	}
}

// Copy copies src to dst and feeds it, piece by piece, so that the bytes are
// still in the first-level cache when they are fed. dst must be at least as
// long as src.
func (c CRC) Copy(dst, src []byte) CRC {
	dst = dst[:len(src)]
	for len(src) > copyChunk {
		copy(dst[:copyChunk], src)
		c = c.Update(dst[:copyChunk])
		dst, src = dst[copyChunk:], src[copyChunk:]
	}
	copy(dst, src)
	return c.Update(dst)
}

// UpdateFlushQuirk feeds the BTH, FETH and RETH of a FLUSH at b[0:32] once
// more, unmasked, after they have been fed as usual. rxe of Linux 6.12 does so
// when it computes and when it checks the ICRC of a FLUSH, because its opcode
// table has no payload offset for it; it drops a FLUSH whose ICRC is right. To
// have a FLUSH executed by such a peer, send with this quirk and accept its
// requests with frame.Packet.CheckICRCFlushQuirk. Observed on the wire.
func (c CRC) UpdateFlushQuirk(b []byte) CRC {
	return c.UpdateShort(b[:BTHLen+FETHLen+RETHLen])
}

// Sum returns the finished CRC.
func (c CRC) Sum() uint32 { return ^uint32(c) }

// PutICRC writes the finished CRC at b[0:4] and returns its length, 4. The
// ICRC is stored least significant byte first.
func PutICRC(b []byte, c CRC) int {
	le.PutUint32(b, c.Sum())
	return ICRCLen
}

// Update64 feeds eight bytes, read as a little-endian number. With
// [CRC.Update32] it feeds masked headers without a copy in memory.
func (c CRC) Update64(v uint64) CRC {
	v ^= uint64(c)
	t := &slicing
	return t[7][byte(v)] ^ t[6][byte(v>>8)] ^ t[5][byte(v>>16)] ^ t[4][byte(v>>24)] ^
		t[3][byte(v>>32)] ^ t[2][byte(v>>40)] ^ t[1][byte(v>>48)] ^ t[0][byte(v>>56)]
}

// Update32 feeds four bytes, read as a little-endian number.
func (c CRC) Update32(v uint32) CRC {
	v ^= uint32(c)
	t := &slicing
	return t[3][byte(v)] ^ t[2][byte(v>>8)] ^ t[1][byte(v>>16)] ^ t[0][byte(v>>24)]
}

const (
	// clmulMin is the length from which hash/crc32 uses carry-less multiplication
	// (amd64, 64 bytes) or the CRC instructions (arm64). Without clmul the tables of
	// this package are faster for shorter strings.
	clmulMin = 64

	// clmulMax is the length from which hash/crc32, with four strands at a
	// time, is faster than clmul.
	clmulMax = 256

	// clmulMax4 is the length from which it is faster than clmulBTH4.
	clmulMax4 = 768

	// copyChunk is a fraction of a first-level cache of 32 KiB.
	copyChunk = 8 << 10
)

// slicing[k][v] is the contribution of byte v to the register k bytes later:
// the tables of slicing by 8 (Kounavis and Berry, 2005).
var slicing = buildSlicing()

func buildSlicing() (t [8][256]CRC) {
	for v := range t[0] {
		c := CRC(v)
		for k := range t {
			c = c>>8 ^ CRC(crc32.IEEETable[c&0xFF])
			t[k][v] = c
		}
	}
	return t
}
