package bth

// HeaderSet is the set of extended headers of a packet. The bits are in the
// order in which the headers follow the BTH.
type HeaderSet uint16

// The extended headers, in wire order.
const (
	HasRDETH HeaderSet = 1 << iota
	HasDETH
	HasXRCETH
	HasDCETH // of the DC transport, which is specific to this stack
	HasFETH
	HasRETH
	HasAtomicETH
	HasMaskETH // of this stack's own opcodes
	HasDCCETH  // the same
	HasAETH
	HasAtomicAckETH
	HasImm
	HasIETH
	HasCNPReserved // the 16 zero bytes of a CNP

	numHeaders = iota
)

// Indices into OpcodeInfo.off, one per bit of HeaderSet.
const (
	hdrRDETH = iota
	hdrDETH
	hdrXRCETH
	hdrDCETH
	hdrFETH
	hdrRETH
	hdrAtomicETH
	hdrMaskETH
	hdrDCCETH
	hdrAETH
	hdrAtomicAckETH
	hdrImm
	hdrIETH
	hdrCNPReserved
)

var headerLens = [numHeaders]uint8{
	hdrRDETH:        RDETHLen,
	hdrDETH:         DETHLen,
	hdrXRCETH:       XRCETHLen,
	hdrDCETH:        DCETHLen,
	hdrFETH:         FETHLen,
	hdrRETH:         RETHLen,
	hdrAtomicETH:    AtomicETHLen,
	hdrMaskETH:      MaskETHLen,
	hdrDCCETH:       DCCETHLen,
	hdrAETH:         AETHLen,
	hdrAtomicAckETH: AtomicAckETHLen,
	hdrImm:          ImmLen,
	hdrIETH:         IETHLen,
	hdrCNPReserved:  CNPReservedLen,
}

// OpcodeFlags says what a packet means to the protocol.
type OpcodeFlags uint32

// Meanings of an opcode. First and Last together are an ONLY packet, neither
// is a MIDDLE.
const (
	Request     OpcodeFlags = 1 << iota // from requester to responder
	Response                            // from responder to requester
	First                               // starts a message
	Last                                // ends a message
	Send                                // part of a SEND
	Write                               // part of an RDMA WRITE
	Read                                // READ request or response
	Atomic                              // atomic or its acknowledge
	Flush                               // FLUSH
	AtomicWrite                         // ATOMIC WRITE
	Imm                                 // carries immediate data
	Inv                                 // carries an R_Key to invalidate
	Payload                             // may carry payload
	TakesRecv                           // the responder takes a receive work request for this packet
	Masked                              // atomic under masks

	// Only is the mark of a message of one packet.
	Only = First | Last
)

// OpcodeInfo is a row of the opcode table.
type OpcodeInfo struct {
	Name      string // "RC WRITE_FIRST"; empty for an unknown opcode
	Transport Transport
	Headers   HeaderSet
	Flags     OpcodeFlags
	HeaderLen uint8 // BTH and extended headers, in bytes

	off [numHeaders]uint8 // where each header starts, 0 if absent
	va  uint8             // start of RETH or AtomicETH, which both begin with VA and R_Key
}

// operation is the meaning of the lower five bits of an opcode. Names,
// headers, parsing and length checks all follow from these rows (IBTA table
// 38, "OpCode field").
type operation struct {
	name    string
	in      uint8 // transports that have it, by bit
	headers HeaderSet
	flags   OpcodeFlags
}

const (
	inRC  = 1 << RC
	inUC  = 1 << UC
	inRD  = 1 << RD
	inUD  = 1 << UD
	inXRC = 1 << XRC
	inDC  = 1 << DC

	inReliable  = inRC | inRD | inXRC | inDC
	inConnected = inReliable | inUC
	inAll       = inConnected | inUD
)

var operations = [32]operation{
	0x00: {"SEND_FIRST", inConnected, 0, Request | Send | First | Payload | TakesRecv},
	0x01: {"SEND_MIDDLE", inConnected, 0, Request | Send | Payload},
	0x02: {"SEND_LAST", inConnected, 0, Request | Send | Last | Payload},
	0x03: {"SEND_LAST_WITH_IMM", inConnected, HasImm, Request | Send | Last | Payload | Imm},
	0x04: {"SEND_ONLY", inAll, 0, Request | Send | Only | Payload | TakesRecv},
	0x05: {"SEND_ONLY_WITH_IMM", inAll, HasImm, Request | Send | Only | Payload | Imm | TakesRecv},
	0x06: {"WRITE_FIRST", inConnected, HasRETH, Request | Write | First | Payload},
	0x07: {"WRITE_MIDDLE", inConnected, 0, Request | Write | Payload},
	0x08: {"WRITE_LAST", inConnected, 0, Request | Write | Last | Payload},
	0x09: {"WRITE_LAST_WITH_IMM", inConnected, HasImm, Request | Write | Last | Payload | Imm | TakesRecv},
	0x0A: {"WRITE_ONLY", inConnected, HasRETH, Request | Write | Only | Payload},
	0x0B: {"WRITE_ONLY_WITH_IMM", inConnected, HasRETH | HasImm, Request | Write | Only | Payload | Imm | TakesRecv},
	0x0C: {"READ_REQUEST", inReliable, HasRETH, Request | Read | Only},
	0x0D: {"READ_RESPONSE_FIRST", inReliable, HasAETH, Response | Read | First | Payload},
	0x0E: {"READ_RESPONSE_MIDDLE", inReliable, 0, Response | Read | Payload},
	0x0F: {"READ_RESPONSE_LAST", inReliable, HasAETH, Response | Read | Last | Payload},
	0x10: {"READ_RESPONSE_ONLY", inReliable, HasAETH, Response | Read | Only | Payload},
	0x11: {"ACKNOWLEDGE", inReliable, HasAETH, Response | Only},
	0x12: {"ATOMIC_ACKNOWLEDGE", inReliable, HasAETH | HasAtomicAckETH, Response | Atomic | Only},
	0x13: {"COMPARE_SWAP", inReliable, HasAtomicETH, Request | Atomic | Only},
	0x14: {"FETCH_ADD", inReliable, HasAtomicETH, Request | Atomic | Only},
	0x15: {"RESYNC", inRD, 0, Request | Only},
	0x16: {"SEND_LAST_WITH_INV", inRC | inXRC, HasIETH, Request | Send | Last | Payload | Inv},
	0x17: {"SEND_ONLY_WITH_INV", inRC | inXRC, HasIETH, Request | Send | Only | Payload | Inv | TakesRecv},
	0x1C: {"FLUSH", inRC | inXRC, HasFETH | HasRETH, Request | Flush | Only},
	0x1D: {"ATOMIC_WRITE", inRC | inXRC, HasRETH, Request | AtomicWrite | Only | Payload},
}

// own are the manufacturer specific operations: those of this stack.
var own = map[Opcode]operation{
	MaskedAtomicAck:   {"MASKED_ATOMIC_ACKNOWLEDGE", 0, HasAETH | HasAtomicAckETH, Response | Atomic | Only | Payload},
	MaskedCompareSwap: {"MASKED_COMPARE_SWAP", 0, HasAtomicETH | HasMaskETH, Request | Atomic | Masked | Only | Payload},
	MaskedFetchAdd:    {"MASKED_FETCH_ADD", 0, HasAtomicETH | HasMaskETH, Request | Atomic | Masked | Only | Payload},
	DCConnect:         {"CONNECT", 0, HasDCETH | HasDCCETH, Request | Only},
	DCAccept:          {"ACCEPT", 0, HasDCETH | HasDCCETH, Response | Only},
	DCReject:          {"REJECT", 0, HasDCETH | HasDCCETH, Response | Only},
	DCDisconnect:      {"DISCONNECT", 0, HasDCETH, Request | Only},
}

// transportHeaders are the headers a transport adds to those of the operation,
// on every packet and on requests (IBTA 9.2 to 9.3; XRC annex A14: responses
// carry no XRCETH).
var transportHeaders = [8]struct{ all, requests HeaderSet }{
	RD:  {all: HasRDETH, requests: HasDETH},
	UD:  {requests: HasDETH},
	XRC: {requests: HasXRCETH},
	DC:  {requests: HasDCETH},
}

var opcodes = buildOpcodes()

func buildOpcodes() (t [256]OpcodeInfo) {
	for i := range t {
		t[i] = OpcodeInfo{Transport: Transport(i >> 5), HeaderLen: BTHLen}
		info, o := &t[i], &operations[i&0x1F]
		tr := info.Transport
		if o.name == "" || o.in&(1<<tr) == 0 {
			continue
		}
		info.Name = tr.String() + " " + o.name
		info.Flags = o.flags
		info.Headers = o.headers | transportHeaders[tr].all
		if o.flags&Request != 0 {
			info.Headers |= transportHeaders[tr].requests
		}
	}
	for op, o := range own {
		t[op].Name = op.Transport().String() + " " + o.name
		t[op].Headers, t[op].Flags = o.headers, o.flags
	}
	t[CNP].Name = "CNP"
	t[CNP].Headers = HasCNPReserved
	t[CNP].Flags = Only

	for i := range t {
		t[i].place()
	}
	return t
}

// place computes the offsets of the headers from the set of them.
func (info *OpcodeInfo) place() {
	at := uint8(BTHLen)
	for h := range numHeaders {
		if info.Headers&(1<<h) != 0 {
			info.off[h] = at
			at += headerLens[h]
		}
	}
	info.HeaderLen = at
	info.va = info.off[hdrRETH] + info.off[hdrAtomicETH] // at most one of the two is not 0
}
