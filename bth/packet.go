package bth

import "math/bits"

// ParseError is the reason why bytes are not a packet. Its values are
// constants, so that a flood of bad packets allocates nothing; compare them
// with == or errors.Is.
type ParseError uint8

// The errors in the structure of a packet, in the order of the checks.
const (
	ErrShort   ParseError = 1 + iota // fewer bytes than BTH, extended headers and ICRC need
	ErrOpcode                        // opcode not in the table
	ErrVersion                       // TVer is not 0
	ErrPad                           // more pad than payload, or length not a multiple of four
)

var parseErrors = [...]string{
	ErrShort:   "bth: packet too short for the headers of its opcode and the ICRC",
	ErrOpcode:  "bth: unknown opcode",
	ErrVersion: "bth: transport header version is not 0",
	ErrPad:     "bth: pad count does not fit the length of the packet",
}

func (e ParseError) Error() string {
	if int(e) < len(parseErrors) && parseErrors[e] != "" {
		return parseErrors[e]
	}
	return "bth: bad packet"
}

// Packet is a view of a packet from its BTH to its ICRC. It points into the
// buffer of [Packet.Parse] and is valid as long as that buffer is. The zero
// value is usable only after a Parse that returned nil.
type Packet struct {
	Data []byte      // BTH … ICRC
	Op   Opcode      // byte 0
	Info *OpcodeInfo // row of Op in the opcode table, never nil after Parse
}

// Parse takes the packet in data, whose length must be exactly that of the
// packet (in RoCEv2 the UDP length decides, not that of the frame), and checks
// its structure: all headers of the opcode and the ICRC are there, TVer is 0,
// and the pad count agrees with the length. It returns nil or a [ParseError].
//
// If the error is not [ErrShort], data has at least a BTH, and the caller may use the
// accessors of the BTH fields.
//
// IBTA 9.6 allows a receiver to drop silently any packet that fails these checks. On
// InfiniBand the length is always a multiple of four; rxe does not check that.
func (p *Packet) Parse(data []byte) error {
	if len(data) < BTHLen+ICRCLen {
		*p = Packet{}
		return ErrShort
	}
	op := Opcode(data[0])
	info := &opcodes[op]
	p.Data, p.Op, p.Info = data, op, info
	if info.Name == "" {
		return ErrOpcode
	}
	vp := data[1]
	if vp&0x0F != 0 {
		return ErrVersion
	}
	room := len(data) - int(info.HeaderLen) - ICRCLen
	if room < 0 {
		*p = Packet{}
		return ErrShort
	}
	if room&3 != 0 || int(vp>>4&3) > room {
		return ErrPad
	}
	return nil
}

// Offset returns where an extended header begins in packets of the opcode, and whether they have it.
func (i *OpcodeInfo) Offset(h HeaderSet) (at int, ok bool) {
	n := bits.TrailingZeros16(uint16(h))
	if n >= numHeaders || i.Headers&h == 0 {
		return 0, false
	}
	return int(i.off[n]), true
}

// Solicited returns the solicited event bit, meaningful on the last packet of
// a SEND and of a WRITE with immediate.
func (p *Packet) Solicited() bool { return p.Data[1]&0x80 != 0 }

// MigReq returns the migration request bit: whether the sender is in migration
// state MIGRATED. rxe always sends 0.
func (p *Packet) MigReq() bool { return p.Data[1]&0x40 != 0 }

// Pad returns the number of pad bytes behind the payload, 0 to 3.
func (p *Packet) Pad() int { return int(p.Data[1] >> 4 & 3) }

// PKey returns the partition key.
func (p *Packet) PKey() PKey { return PKey(be.Uint16(p.Data[2:])) }

// FECN returns the forward congestion bit.
func (p *Packet) FECN() bool { return p.Data[4]&0x80 != 0 }

// BECN returns the backward congestion bit, set in a CNP.
func (p *Packet) BECN() bool { return p.Data[4]&0x40 != 0 }

// DestQPN returns the queue pair the packet is for.
func (p *Packet) DestQPN() QPN { return QPN(be.Uint32(p.Data[4:]) & PSNMask) }

// AckReq returns the acknowledge request bit. It means nothing on UC and UD,
// where rxe sets it in management datagrams.
func (p *Packet) AckReq() bool { return p.Data[8]&0x80 != 0 }

// PSN returns the packet sequence number.
func (p *Packet) PSN() PSN { return PSN(be.Uint32(p.Data[8:]) & PSNMask) }

// Flags returns the single-bit fields of the BTH together.
func (p *Packet) Flags() BTHFlags { return flagsOf(p.Data) }

// VA returns the virtual address of the RETH or AtomicETH.
func (p *Packet) VA() uint64 {
	if o := p.Info.va; o != 0 {
		return be.Uint64(p.Data[o:])
	}
	return 0
}

// RKey returns the key of the RETH or AtomicETH.
func (p *Packet) RKey() RKey {
	if o := p.Info.va; o != 0 {
		return RKey(be.Uint32(p.Data[o+8:]))
	}
	return 0
}

// DMALen returns the message length of the RETH in bytes.
func (p *Packet) DMALen() uint32 { return p.u32(hdrRETH, 12) }

// Swap returns the swap data of a COMPARE_SWAP or the addend of a FETCH_ADD.
func (p *Packet) Swap() uint64 { return p.u64(hdrAtomicETH, 12) }

// Compare returns the compare data of a COMPARE_SWAP.
func (p *Packet) Compare() uint64 { return p.u64(hdrAtomicETH, 20) }

// SwapMask returns the swap mask of a MASKED_COMPARE_SWAP or the field boundary
// of a MASKED_FETCH_ADD.
func (p *Packet) SwapMask() uint64 { return p.u64(hdrMaskETH, 0) }

// CompareMask returns the compare mask of a MASKED_COMPARE_SWAP.
func (p *Packet) CompareMask() uint64 { return p.u64(hdrMaskETH, 8) }

// OperandSize returns how many bytes a masked atomic operates on.
func (p *Packet) OperandSize() uint8 { return uint8(p.u32(hdrMaskETH, 16)) }

// Syndrome returns the syndrome of the AETH with its reserved bit cleared.
func (p *Packet) Syndrome() Syndrome { return Syndrome(p.u32(hdrAETH, 0) >> 24 & 0x7F) }

// MSN returns the message sequence number of the AETH.
func (p *Packet) MSN() MSN { return MSN(p.u32(hdrAETH, 0) & PSNMask) }

// AtomicValue returns the value the remote word had before the atomic.
func (p *Packet) AtomicValue() uint64 { return p.u64(hdrAtomicAckETH, 0) }

// Imm returns the immediate data as a big-endian number.
func (p *Packet) Imm() uint32 { return p.u32(hdrImm, 0) }

// InvKey returns the R_Key to invalidate.
func (p *Packet) InvKey() RKey { return RKey(p.u32(hdrIETH, 0)) }

// QKey returns the Q_Key of the DETH.
func (p *Packet) QKey() QKey { return QKey(p.u32(hdrDETH, 0)) }

// SrcQPN returns the source queue pair of the DETH.
func (p *Packet) SrcQPN() QPN { return QPN(p.u32(hdrDETH, 4) & PSNMask) }

// SRQN returns the shared receive queue of the XRCETH.
func (p *Packet) SRQN() SRQN { return SRQN(p.u32(hdrXRCETH, 0) & PSNMask) }

// EEContext returns the end-to-end context of the RDETH.
func (p *Packet) EEContext() uint32 { return p.u32(hdrRDETH, 0) & PSNMask }

// FlushType returns how far a FLUSH must bring the data.
func (p *Packet) FlushType() FlushType { return FlushType(p.u32(hdrFETH, 0) & 0xF) }

// FlushSelectivity returns what a FLUSH covers.
func (p *Packet) FlushSelectivity() FlushSelectivity {
	return FlushSelectivity(p.u32(hdrFETH, 0) >> 4 & 3)
}

// Payload returns the bytes between the headers and the pad. An opcode that
// carries no payload may still have some on the wire; a caller that must refuse it
// checks the flag [Payload].
func (p *Packet) Payload() []byte {
	return p.Data[p.Info.HeaderLen : len(p.Data)-ICRCLen-p.Pad()]
}

// PayloadLen returns len(p.Payload()).
func (p *Packet) PayloadLen() int {
	return len(p.Data) - ICRCLen - p.Pad() - int(p.Info.HeaderLen)
}

// ICRC returns the CRC at the end of the packet, in the form of [CRC.Sum].
func (p *Packet) ICRC() uint32 {
	return le.Uint32(p.Data[len(p.Data)-ICRCLen:])
}

func (p *Packet) u32(h, at uint8) uint32 {
	if o := p.Info.off[h]; o != 0 {
		return be.Uint32(p.Data[o+at:])
	}
	return 0
}

func (p *Packet) u64(h, at uint8) uint64 {
	if o := p.Info.off[h]; o != 0 {
		return be.Uint64(p.Data[o+at:])
	}
	return 0
}
