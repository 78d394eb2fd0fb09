package bth

import (
	"encoding/binary"
	"hash/crc32"
)

var le = binary.LittleEndian

// CRC is the running register of the invariant CRC: CRC-32 of IEEE 802.3
// (reflected polynomial 0xEDB88320), not inverted. Start from [CRCSeed] or from
// what the envelope gave, feed the packet in any pieces, and take [CRC.Sum].
//
// The ICRC covers, in this order (IBTA A17.3.3):
//
//	8 bytes 0xFF        a local routing header that is not there; in CRCSeed
//	IP header           with the fields routers change as ones
//	UDP header          with the checksum as ones
//	BTH                 with byte 4 as ones: UpdateBTH
//	extended headers, payload, pad, as they are: Update, Copy
type CRC uint32

// CRCSeed is the register after the eight 0xFF bytes every ICRC starts with.
const CRCSeed CRC = 0xDEBB20E3

// ICRCResidue is the Sum over a packet including its stored ICRC when that is
// right.
const ICRCResidue uint32 = 0x2144DF1C

// Update feeds b as it is.
func (c CRC) Update(b []byte) CRC {
	// crc32 inverts the register on the way in and on the way out.
	return ^CRC(crc32.Update(^uint32(c), crc32.IEEETable, b))
}

// UpdateBTH feeds the 12 bytes of the BTH at b[0:], with byte 4 (FECN, BECN
// and reserved bits) as 0xFF.
func (c CRC) UpdateBTH(b []byte) CRC {
	var m [BTHLen]byte
	copy(m[:], b[:BTHLen])
	m[4] = 0xFF
	return c.Update(m[:])
}

// Copy copies src to dst and feeds it, in one pass over the memory as far as
// the cache is concerned. dst must be at least as long as src.
func (c CRC) Copy(dst, src []byte) CRC {
	copy(dst[:len(src)], src)
	return c.Update(dst[:len(src)])
}

// Sum returns the finished CRC.
func (c CRC) Sum() uint32 { return ^uint32(c) }

// PutICRC writes the finished CRC at b[0:4] and returns its length, 4. The
// ICRC is stored least significant byte first.
func PutICRC(b []byte, c CRC) int {
	le.PutUint32(b, c.Sum())
	return ICRCLen
}
