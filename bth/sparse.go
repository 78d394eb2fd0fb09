package bth

import "math/bits"

// The CRC for a processor without a CRC instruction, computed without tables (Russell,
// Chorba: A novel CRC32 implementation, arXiv 2412.16398, 2024). The polynomial divides
//
//	x^300 + x^155 + x^117 + x^89 + 1
//
// so the CRC stays the same if a bit of a message is cleared and the bits 145, 183, 211
// and 300 further on are inverted. sparse does that to all bits but the last few, a word
// at a time. For long messages it is faster than tables, most of all in an emulator,
// where table look-ups are slow.

const (
	sparseBytes = 5 * 8 // 300 bits are within five words

	// sparseMin is the length from which sparse is faster than tables.
	sparseMin = 128
)

// sparsePays reports whether Update should use sparse for long strings.
const sparsePays = bits.UintSize == 64

// sparse is CRC.Update for at least sparseBytes.
func (c CRC) sparse(b []byte) CRC {
	var v, w, x, y, z uint64 // the last five words, at the time when their bits were cleared
	first := uint64(c)       // to be added to the first word
	for ; len(b) >= 2*sparseBytes; b = b[sparseBytes:] {
		v = thin(le.Uint64(b)^first, y, x, w, v)
		w = thin(le.Uint64(b[8:]), z, y, x, w)
		x = thin(le.Uint64(b[16:]), v, z, y, x)
		y = thin(le.Uint64(b[24:]), w, v, z, y)
		z = thin(le.Uint64(b[32:]), x, w, v, z)
		first = 0
	}
	c = CRC(0).Update64(thin(le.Uint64(b)^first, y, x, w, v))
	c = c.Update64(thin(le.Uint64(b[8:]), z, y, x, w))
	c = c.Update64(thin(le.Uint64(b[16:]), 0, z, y, x))
	c = c.Update64(thin(le.Uint64(b[24:]), 0, 0, z, y))
	c = c.Update64(thin(le.Uint64(b[32:]), 0, 0, 0, z))
	return c.UpdateShort(b[sparseBytes:])
}

// thin returns a word of the message with the bits inverted that cleared bits invert in it. two,
// three, four and five are the words at these distances before it, as they were when their bits
// were cleared. The first bit is the lowest: 145 = 2·64+17, 183 = 2·64+55, 211 = 3·64+19, 300 =
// 4·64+44.
func thin(word, two, three, four, five uint64) uint64 {
	return word ^ two<<17 ^ two<<55 ^
		three>>(64-17) ^ three>>(64-55) ^ three<<19 ^
		four>>(64-19) ^ four<<44 ^
		five>>(64-44)
}
