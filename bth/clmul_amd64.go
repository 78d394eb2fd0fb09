//go:build !purego

package bth

// hash/crc32 uses carry-less multiplication from 64 bytes on. It is faster for most
// shorter strings, too, such as headers and a small message, and keeps the tables out of
// the cache: this is the method of Gopal et al. (Intel, 2009) for short strings.

// clmul is CRC.Update for 16 bytes and more. The remainder after the blocks of 16 bytes
// must not be 1, 2 or 3 bytes.
//
//go:noescape
func clmul(c CRC, p *byte, n int) CRC

// clmulBTH is clmul for a packet from its BTH on, with byte 4 as ones. The remainder
// must not be 4 bytes either.
//
//go:noescape
func clmulBTH(c CRC, p *byte, n int) CRC

// clmulBTH4 is clmulBTH for n bytes of each of four packets. The processor can
// begin a multiplication before the previous one has ended: with the multiplications
// of four packets interleaved they take little longer than one packet.
//
//go:noescape
func clmulBTH4(c *[4]CRC, b *[4][]byte, n int)

// features returns register ECX of CPUID leaf 1.
func features() uint32

const (
	pclmulqdq = 1 << 1
	ssse3     = 1 << 9
	sse41     = 1 << 19
)

var (
	hasCLMUL    = features()&(pclmulqdq|ssse3) == pclmulqdq|ssse3
	hardwareCRC = features()&(pclmulqdq|sse41) == pclmulqdq|sse41 // the instructions that hash/crc32 uses
)
