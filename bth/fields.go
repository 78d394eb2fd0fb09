package bth

// Fields is a packet as a struct, for tests, traces and tools. A header that
// the opcode does not have is nil. It holds neither reserved bits nor the ICRC.
type Fields struct {
	BTH          BTHFields
	RDETH        *RDETHFields
	DETH         *DETHFields
	XRCETH       *XRCETHFields
	FETH         *FETHFields
	RETH         *RETHFields
	AtomicETH    *AtomicETHFields
	MaskETH      *MaskETHFields
	DCETH        *DCETHFields
	DCCETH       *DCCETHFields
	AETH         *AETHFields
	AtomicAckETH *AtomicAckETHFields
	Imm          *uint32
	IETH         *RKey
	Payload      []byte
}

// BTHFields are the fields of a BTH. The pad count is not among them: it
// follows from the length of the payload.
type BTHFields struct {
	Op      Opcode
	Flags   BTHFlags
	PKey    PKey
	DestQPN QPN
	PSN     PSN
}

// RDETHFields are the fields of an RDETH.
type RDETHFields struct{ EEContext uint32 }

// DETHFields are the fields of a DETH.
type DETHFields struct {
	QKey   QKey
	SrcQPN QPN
}

// XRCETHFields are the fields of an XRCETH.
type XRCETHFields struct{ SRQN SRQN }

// FETHFields are the fields of a FETH.
type FETHFields struct {
	Type        FlushType
	Selectivity FlushSelectivity
}

// RETHFields are the fields of a RETH.
type RETHFields struct {
	VA     uint64
	RKey   RKey
	DMALen uint32
}

// AtomicETHFields are the fields of an AtomicETH.
type AtomicETHFields struct {
	VA      uint64
	RKey    RKey
	Swap    uint64 // FETCH_ADD: the addend
	Compare uint64
}

// MaskETHFields are the fields of a MaskETH.
type MaskETHFields struct {
	SwapMask    uint64 // MASKED_FETCH_ADD: the field boundary
	CompareMask uint64
	Size        uint8
}

// AETHFields are the fields of an AETH.
type AETHFields struct {
	Syndrome Syndrome
	MSN      MSN
}

// AtomicAckETHFields are the fields of an AtomicAckETH.
type AtomicAckETHFields struct{ Value uint64 }

// Decode returns the fields of a parsed packet. The payload is not copied: it
// points into p.Data.
func Decode(p *Packet) Fields {
	f := Fields{BTH: BTHFields{Op: p.Op, Flags: p.Flags(), PKey: p.PKey(), DestQPN: p.DestQPN(), PSN: p.PSN()}}
	has := func(h HeaderSet) bool { return p.Info.Headers&h != 0 }
	if has(HasRDETH) {
		f.RDETH = &RDETHFields{p.EEContext()}
	}
	if has(HasDETH) {
		f.DETH = &DETHFields{p.QKey(), p.SrcQPN()}
	}
	if has(HasXRCETH) {
		f.XRCETH = &XRCETHFields{p.SRQN()}
	}
	if has(HasFETH) {
		f.FETH = &FETHFields{p.FlushType(), p.FlushSelectivity()}
	}
	if has(HasRETH) {
		f.RETH = &RETHFields{p.VA(), p.RKey(), p.DMALen()}
	}
	if has(HasAtomicETH) {
		f.AtomicETH = &AtomicETHFields{p.VA(), p.RKey(), p.Swap(), p.Compare()}
	}
	if has(HasMaskETH) {
		f.MaskETH = &MaskETHFields{p.SwapMask(), p.CompareMask(), p.OperandSize()}
	}
	if has(HasDCETH) {
		d := p.DCETH()
		f.DCETH = &d
	}
	if has(HasDCCETH) {
		d := p.DCCETH()
		f.DCCETH = &d
	}
	if has(HasAETH) {
		f.AETH = &AETHFields{p.Syndrome(), p.MSN()}
	}
	if has(HasAtomicAckETH) {
		f.AtomicAckETH = &AtomicAckETHFields{p.AtomicValue()}
	}
	if has(HasImm) {
		v := p.Imm()
		f.Imm = &v
	}
	if has(HasIETH) {
		k := p.InvKey()
		f.IETH = &k
	}
	if b := p.Payload(); len(b) > 0 {
		f.Payload = b
	}
	return f
}

// Append appends the packet from its BTH to its pad, without ICRC, to dst. The
// opcode determines the headers: Append writes zeros for a header of the opcode that
// is nil, and leaves out a header that the opcode does not have.
func (f *Fields) Append(dst []byte) []byte {
	info := f.BTH.Op.Info()
	start, n := len(dst), int(info.HeaderLen)
	pad := Pad(len(f.Payload))
	dst = append(dst, make([]byte, n)...)
	b := dst[start:]
	PutBTH(b, f.BTH.Op, f.BTH.Flags, pad, f.BTH.PKey, f.BTH.DestQPN, f.BTH.PSN)

	at := func(h uint8, have bool) []byte {
		if o := info.off[h]; o != 0 && have {
			return b[o:]
		}
		return nil
	}
	if b := at(hdrRDETH, f.RDETH != nil); b != nil {
		PutRDETH(b, f.RDETH.EEContext)
	}
	if b := at(hdrDETH, f.DETH != nil); b != nil {
		PutDETH(b, f.DETH.QKey, f.DETH.SrcQPN)
	}
	if b := at(hdrXRCETH, f.XRCETH != nil); b != nil {
		PutXRCETH(b, f.XRCETH.SRQN)
	}
	if b := at(hdrFETH, f.FETH != nil); b != nil {
		PutFETH(b, f.FETH.Type, f.FETH.Selectivity)
	}
	if b := at(hdrRETH, f.RETH != nil); b != nil {
		PutRETH(b, f.RETH.VA, f.RETH.RKey, f.RETH.DMALen)
	}
	if b := at(hdrAtomicETH, f.AtomicETH != nil); b != nil {
		a := f.AtomicETH
		PutAtomicETH(b, a.VA, a.RKey, a.Swap, a.Compare)
	}
	if b := at(hdrMaskETH, f.MaskETH != nil); b != nil {
		PutMaskETH(b, f.MaskETH.SwapMask, f.MaskETH.CompareMask, f.MaskETH.Size)
	}
	if b := at(hdrDCETH, f.DCETH != nil); b != nil {
		PutDCETH(b, *f.DCETH)
	}
	if b := at(hdrDCCETH, f.DCCETH != nil); b != nil {
		PutDCCETH(b, f.DCCETH)
	}
	if b := at(hdrAETH, f.AETH != nil); b != nil {
		PutAETH(b, f.AETH.Syndrome, f.AETH.MSN)
	}
	if b := at(hdrAtomicAckETH, f.AtomicAckETH != nil); b != nil {
		PutAtomicAckETH(b, f.AtomicAckETH.Value)
	}
	if b := at(hdrImm, f.Imm != nil); b != nil {
		PutImm(b, *f.Imm)
	}
	if b := at(hdrIETH, f.IETH != nil); b != nil {
		PutIETH(b, *f.IETH)
	}
	dst = append(dst, f.Payload...)
	return append(dst, make([]byte, pad)...)
}
