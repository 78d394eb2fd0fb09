package bth

import "encoding/binary"

// Lengths of the headers in bytes. All are multiples of four.
const (
	BTHLen          = 12
	RDETHLen        = 4
	DETHLen         = 8
	XRCETHLen       = 4
	FETHLen         = 4
	RETHLen         = 16
	AtomicETHLen    = 28
	MaskETHLen      = 20
	DCETHLen        = 8
	DCCETHLen       = 16
	AETHLen         = 4
	AtomicAckETHLen = 8
	ImmLen          = 4
	IETHLen         = 4
	CNPReservedLen  = 16
	ICRCLen         = 4

	// MaxHeaderLen is the longest BTH with extended headers there is: that of
	// the masked atomics.
	MaxHeaderLen = BTHLen + AtomicETHLen + MaskETHLen
)

// BTHFlags are the single-bit fields of the BTH.
type BTHFlags uint8

// The flags. Their values are chosen so that [PutBTH] needs no branch: each
// group is one shift away from its byte.
const (
	Solicited BTHFlags = 0x80 // SE: raise a solicited event at the receiver
	MigReq    BTHFlags = 0x40 // M: migrated, see qp.MigState; rxe sends 0, adapters 1
	AckReq    BTHFlags = 0x20 // A: responder shall acknowledge this packet
	FECN      BTHFlags = 0x08 // F: forward congestion, unused by RoCEv2
	BECN      BTHFlags = 0x04 // B: backward congestion, set in a CNP
)

// flagsOf reads the flags back out of a BTH.
func flagsOf(b []byte) BTHFlags {
	return BTHFlags(b[1]&0xC0 | b[8]>>2&0x20 | b[4]>>4&0x0C)
}

var be = binary.BigEndian

// PutBTH writes a Base Transport Header at b[0:] and returns its length, 12.
// pad is the number of pad bytes behind the payload, [Pad] of its length.
// TVer and the reserved bits are zero.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------+-+-+---+-------+-------------------------------+
//	|    OpCode     |S|M|Pad| TVer  |             P_Key             |
//	+-+-+-----------+-+-+---+-------+-------------------------------+
//	|F|B|   resv6   |           Destination QPN                     |
//	+-+-+-----------+-----------------------------------------------+
//	|A|    resv7    |                    PSN                        |
//	+-+-------------+-----------------------------------------------+
//
// The ICRC sees byte 4 (F, B, resv6) as 0xFF, because a switch may change it.
func PutBTH(b []byte, op Opcode, f BTHFlags, pad int, pkey PKey, dest QPN, psn PSN) int {
	_ = b[BTHLen-1]
	be.PutUint32(b, uint32(op)<<24|uint32(f&0xC0)<<16|uint32(pad&3)<<20|uint32(pkey))
	be.PutUint32(b[4:], uint32(f&0x0C)<<28|uint32(dest)&PSNMask)
	be.PutUint32(b[8:], uint32(f&0x20)<<26|uint32(psn)&PSNMask)
	return BTHLen
}

// Pad returns the number of bytes, 0 to 3, that bring n bytes of payload to a
// multiple of four.
func Pad(n int) int { return -n & 3 }

// PutRETH writes an RDMA Extended Transport Header at b[0:] and returns its
// length, 16. n is the length of the whole message in bytes.
//
//	+---------------------------------------------------------------+
//	|                    Virtual Address 63:32                      |
//	+---------------------------------------------------------------+
//	|                    Virtual Address 31:0                       |
//	+---------------------------------------------------------------+
//	|                           R_Key                               |
//	+---------------------------------------------------------------+
//	|                         DMA Length                            |
//	+---------------------------------------------------------------+
func PutRETH(b []byte, va uint64, key RKey, n uint32) int {
	_ = b[RETHLen-1]
	be.PutUint64(b, va)
	be.PutUint32(b[8:], uint32(key))
	be.PutUint32(b[12:], n)
	return RETHLen
}

// PutAtomicETH writes an Atomic Extended Transport Header at b[0:] and returns
// its length, 28. For FETCH_ADD swapAdd is the addend and compare is zero.
//
//	+---------------------------------------------------------------+
//	|                    Virtual Address 63:32                      |
//	+---------------------------------------------------------------+
//	|                    Virtual Address 31:0                       |
//	+---------------------------------------------------------------+
//	|                           R_Key                               |
//	+---------------------------------------------------------------+
//	|                 Swap (or Add) Data 63:32                      |
//	+---------------------------------------------------------------+
//	|                 Swap (or Add) Data 31:0                       |
//	+---------------------------------------------------------------+
//	|                    Compare Data 63:32                         |
//	+---------------------------------------------------------------+
//	|                    Compare Data 31:0                          |
//	+---------------------------------------------------------------+
//
// The operands are numbers; the responder applies them to the 64-bit word in
// the byte order of its own host (rxe, observed).
func PutAtomicETH(b []byte, va uint64, key RKey, swapAdd, compare uint64) int {
	_ = b[AtomicETHLen-1]
	be.PutUint64(b, va)
	be.PutUint32(b[8:], uint32(key))
	be.PutUint64(b[12:], swapAdd)
	be.PutUint64(b[20:], compare)
	return AtomicETHLen
}

// PutMaskETH writes the masks of a masked atomic at b[0:], behind its AtomicETH, and returns its length, 20. The header is specific to this
// stack. size is the size of the operand in bytes: 1, 2, 4, 8, 16 or 32; for the larger ones the header has the first 8 bytes of each mask.
// For MASKED_FETCH_ADD swapMask has a one at the uppermost bit of every field and compareMask is zero.
//
//	+---------------------------------------------------------------+
//	|              Swap Mask (or Field Boundary) 63:32              |
//	+---------------------------------------------------------------+
//	|              Swap Mask (or Field Boundary) 31:0               |
//	+---------------------------------------------------------------+
//	|                     Compare Mask 63:32                        |
//	+---------------------------------------------------------------+
//	|                     Compare Mask 31:0                         |
//	+-----------------------------------------------+---------------+
//	|                   reserved                    |     Size      |
//	+-----------------------------------------------+---------------+
func PutMaskETH(b []byte, swapMask, compareMask uint64, size uint8) int {
	_ = b[MaskETHLen-1]
	be.PutUint64(b, swapMask)
	be.PutUint64(b[8:], compareMask)
	be.PutUint32(b[16:], uint32(size))
	return MaskETHLen
}

// PutAETH writes an ACK Extended Transport Header at b[0:] and returns its
// length, 4.
//
//	+---------------+-----------------------------------------------+
//	|   Syndrome    |                     MSN                       |
//	+---------------+-----------------------------------------------+
func PutAETH(b []byte, s Syndrome, msn MSN) int {
	be.PutUint32(b, uint32(s)<<24|uint32(msn)&PSNMask)
	return AETHLen
}

// PutAtomicAckETH writes an Atomic ACK Extended Transport Header at b[0:], the
// value the word had before the operation, and returns its length, 8.
//
//	+---------------------------------------------------------------+
//	|                 Original Remote Data 63:32                    |
//	+---------------------------------------------------------------+
//	|                 Original Remote Data 31:0                     |
//	+---------------------------------------------------------------+
func PutAtomicAckETH(b []byte, v uint64) int {
	be.PutUint64(b, v)
	return AtomicAckETHLen
}

// PutImm writes immediate data (ImmDt) at b[0:] and returns its length, 4. The
// verbs field imm_data is these four bytes; v is their big-endian value.
//
//	+---------------------------------------------------------------+
//	|                       Immediate Data                          |
//	+---------------------------------------------------------------+
func PutImm(b []byte, v uint32) int {
	be.PutUint32(b, v)
	return ImmLen
}

// PutIETH writes an Invalidate Extended Transport Header at b[0:] and returns
// its length, 4.
//
//	+---------------------------------------------------------------+
//	|                           R_Key                               |
//	+---------------------------------------------------------------+
func PutIETH(b []byte, key RKey) int {
	be.PutUint32(b, uint32(key))
	return IETHLen
}

// PutDETH writes a Datagram Extended Transport Header at b[0:] and returns its
// length, 8.
//
//	+---------------------------------------------------------------+
//	|                           Q_Key                               |
//	+---------------+-----------------------------------------------+
//	|   reserved    |                 Source QPN                    |
//	+---------------+-----------------------------------------------+
func PutDETH(b []byte, key QKey, src QPN) int {
	_ = b[DETHLen-1]
	be.PutUint32(b, uint32(key))
	be.PutUint32(b[4:], uint32(src)&PSNMask)
	return DETHLen
}

// PutXRCETH writes an XRC Extended Transport Header at b[0:] and returns its
// length, 4. It follows the BTH of every XRC request and of no XRC response.
//
//	+---------------+-----------------------------------------------+
//	|   reserved    |                  XRC SRQN                     |
//	+---------------+-----------------------------------------------+
func PutXRCETH(b []byte, srq SRQN) int {
	be.PutUint32(b, uint32(srq)&PSNMask)
	return XRCETHLen
}

// PutRDETH writes a Reliable Datagram Extended Transport Header at b[0:] and
// returns its length, 4. Reliable datagram is obsolete; this exists for tools.
//
//	+---------------+-----------------------------------------------+
//	|   reserved    |                 EE Context                    |
//	+---------------+-----------------------------------------------+
func PutRDETH(b []byte, ee uint32) int {
	be.PutUint32(b, ee&PSNMask)
	return RDETHLen
}

// FlushType says where a FLUSH must place data (IBTA 1.6 PLT). It is a bit
// mask in the header.
type FlushType uint8

// The placement types.
const (
	FlushGlobal     FlushType = 1 // visible to all
	FlushPersistent FlushType = 2 // survives power loss
)

// FlushSelectivity says what a FLUSH covers (IBTA 1.6 SEL).
type FlushSelectivity uint8

// The selectivity levels.
const (
	FlushRange FlushSelectivity = 0 // the range of the RETH
	FlushMR    FlushSelectivity = 1 // the whole memory region of the R_Key
)

// PutFETH writes a Flush Extended Transport Header at b[0:] and returns its
// length, 4. A RETH follows it.
//
//	+-----------------------------------------------------+---+-----+
//	|                      reserved                       |SEL| PLT |
//	+-----------------------------------------------------+---+-----+
//	 31                                                  6 5 4 3   0
func PutFETH(b []byte, t FlushType, s FlushSelectivity) int {
	be.PutUint32(b, uint32(t&0xF)|uint32(s&3)<<4)
	return FETHLen
}
