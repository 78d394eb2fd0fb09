//go:build !purego

package bth

// hash/crc32 multiplies without carry from 64 bytes on. Most of what is shorter here, the
// headers and a small message, is faster that way too, and leaves the tables out of the
// cache: this is the method of Gopal et al. (Intel, 2009) for short strings.

// clmul is CRC.Update for 16 bytes and more, of which no one, two or three are left over
// after the blocks of 16.
//
//go:noescape
func clmul(c CRC, p *byte, n int) CRC

// clmulBTH is clmul for a packet from its BTH on, byte 4 of which counts as ones. There
// must not be just four bytes left over.
//
//go:noescape
func clmulBTH(c CRC, p *byte, n int) CRC

// clmulBTH4 is clmulBTH for n bytes of each of four packets. A multiplication takes
// longer than until the next can begin: four in turns take little longer than one.
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
	hardwareCRC = features()&(pclmulqdq|sse41) == pclmulqdq|sse41 // what hash/crc32 wants
)
