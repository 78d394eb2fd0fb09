package script

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

// field is a field of a packet.
type field struct {
	name string                       // in scripts
	bits int                          // width of the value
	flag bool                         // scripts name it without a value, which sets it to 1
	in   bth.HeaderSet                // the headers that have it; 0: every packet has it
	get  func(p *frame.Packet) uint64 // nil: scripts can only send it
	put  func(p *draft, v uint64)     // nil: scripts can only expect it
	help string
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// putFlag sets a flag of the BTH.
func putFlag(f bth.BTHFlags) func(*draft, uint64) {
	return func(d *draft, v uint64) {
		d.f.BTH.Flags &^= f
		if v != 0 {
			d.f.BTH.Flags |= f
		}
	}
}

// fields are all fields, in the order of the documentation.
var fields = []field{
	{"psn", 24, false, 0, func(p *frame.Packet) uint64 { return uint64(p.PSN()) }, func(d *draft, v uint64) { d.f.BTH.PSN = bth.PSN(v) },
		"PSN; with a sign relative to the first one of its direction"},
	{"ackreq", 1, true, 0, func(p *frame.Packet) uint64 { return bit(p.AckReq()) }, putFlag(bth.AckReq), "an acknowledgement is requested"},
	{"solicited", 1, true, 0, func(p *frame.Packet) uint64 { return bit(p.Solicited()) }, putFlag(bth.Solicited), "solicited event"},
	{"migreq", 1, true, 0, func(p *frame.Packet) uint64 { return bit(p.MigReq()) }, putFlag(bth.MigReq), "the M bit"},
	{"fecn", 1, true, 0, func(p *frame.Packet) uint64 { return bit(p.FECN()) }, putFlag(bth.FECN), "forward congestion bit"},
	{"becn", 1, true, 0, func(p *frame.Packet) uint64 { return bit(p.BECN()) }, putFlag(bth.BECN), "backward congestion bit"},
	{"reserved", 1, true, 0, func(p *frame.Packet) uint64 { return bit(p.Data[4]&0x3F != 0 || p.Data[8]&0x7F != 0) }, func(d *draft, v uint64) { d.reserved = v != 0 }, "all reserved bits of the BTH"},
	{"pkey", 16, false, 0, func(p *frame.Packet) uint64 { return uint64(p.PKey()) }, func(d *draft, v uint64) { d.f.BTH.PKey = bth.PKey(v) }, "partition key"},
	{"qpn", 24, false, 0, func(p *frame.Packet) uint64 { return uint64(p.DestQPN()) }, func(d *draft, v uint64) { d.f.BTH.DestQPN = bth.QPN(v) }, "destination queue pair"},
	{"tver", 4, false, 0, func(p *frame.Packet) uint64 { return uint64(p.Data[1] & 15) }, func(d *draft, v uint64) { d.tver = byte(v) }, "transport header version"},
	{"pad", 2, false, 0, func(p *frame.Packet) uint64 { return uint64(p.Pad()) }, func(d *draft, v uint64) { d.pad, d.padSet = int(v), true }, "pad count, and that many bytes of padding unless padbytes says otherwise"},
	{"padbytes", 8, false, 0, nil, func(d *draft, v uint64) { d.padBytes, d.padBytesSet = int(v), true }, "bytes of padding"},
	{"va", 64, false, bth.HasRETH | bth.HasAtomicETH, func(p *frame.Packet) uint64 { return p.VA() }, func(d *draft, v uint64) { d.va = v }, "address; $mem.va by default"},
	{"rkey", 32, false, bth.HasRETH | bth.HasAtomicETH, func(p *frame.Packet) uint64 { return uint64(p.RKey()) }, func(d *draft, v uint64) { d.rkey = bth.RKey(v) }, "key; $mem.rkey by default"},
	{"dmalen", 32, false, bth.HasRETH, func(p *frame.Packet) uint64 { return uint64(p.DMALen()) }, func(d *draft, v uint64) { d.dmalen, d.dmalenSet = uint32(v), true }, "length in the RETH; the payload's by default"},
	{"swap", 64, false, bth.HasAtomicETH, func(p *frame.Packet) uint64 { return p.Swap() }, func(d *draft, v uint64) { d.swap = v }, "what an atomic swaps in or adds"},
	{"compare", 64, false, bth.HasAtomicETH, func(p *frame.Packet) uint64 { return p.Compare() }, func(d *draft, v uint64) { d.compare = v }, "what an atomic compares with"},
	{"syndrome", 8, false, bth.HasAETH, func(p *frame.Packet) uint64 { return uint64(p.Syndrome()) }, func(d *draft, v uint64) { d.aeth.Syndrome = bth.Syndrome(v) }, "syndrome; 0x1f by default"},
	{"timer", 5, false, bth.HasAETH, func(p *frame.Packet) uint64 { return uint64(p.Syndrome().Value()) }, func(d *draft, v uint64) { d.aeth.Syndrome = bth.RNR(bth.RNRTimer(v)) }, "code of the RNR timer"},
	{"msn", 24, false, bth.HasAETH, func(p *frame.Packet) uint64 { return uint64(p.MSN()) }, func(d *draft, v uint64) { d.aeth.MSN = bth.MSN(v) }, "message sequence number; 1 by default"},
	{"value", 64, false, bth.HasAtomicAckETH, func(p *frame.Packet) uint64 { return p.AtomicValue() }, func(d *draft, v uint64) { d.value = v }, "result of an atomic"},
	{"imm", 32, false, bth.HasImm, func(p *frame.Packet) uint64 { return uint64(p.Imm()) }, func(d *draft, v uint64) { d.imm = uint32(v) }, "immediate data"},
	{"inv", 32, false, bth.HasIETH, func(p *frame.Packet) uint64 { return uint64(p.InvKey()) }, func(d *draft, v uint64) { d.inv = bth.RKey(v) }, "key to be invalidated"},
	{"qkey", 32, false, bth.HasDETH, func(p *frame.Packet) uint64 { return uint64(p.QKey()) }, func(d *draft, v uint64) { d.deth.QKey = bth.QKey(v) }, "Q_Key; the connection's by default"},
	{"srcqpn", 24, false, bth.HasDETH, func(p *frame.Packet) uint64 { return uint64(p.SrcQPN()) }, func(d *draft, v uint64) { d.deth.SrcQPN = bth.QPN(v) }, "source queue pair"},
	{"srqn", 24, false, bth.HasXRCETH, func(p *frame.Packet) uint64 { return uint64(p.SRQN()) }, func(d *draft, v uint64) { d.srqn = bth.SRQN(v) }, "shared receive queue (XRC)"},
	{"flushtype", 4, false, bth.HasFETH, func(p *frame.Packet) uint64 { return uint64(p.FlushType()) }, func(d *draft, v uint64) { d.feth.Type = bth.FlushType(v) }, "placement of a FLUSH"},
	{"flushlevel", 2, false, bth.HasFETH, func(p *frame.Packet) uint64 { return uint64(p.FlushSelectivity()) }, func(d *draft, v uint64) { d.feth.Selectivity = bth.FlushSelectivity(v) }, "selectivity of a FLUSH"},
	{"len", 32, false, 0, func(p *frame.Packet) uint64 { return uint64(p.PayloadLen()) }, func(d *draft, v uint64) { d.pattern(int(min(v, maxPayload+1))) }, "bytes of payload, a pattern that begins with 0xa0"},
	{"u8", 8, false, 0, nil, func(d *draft, v uint64) { d.payload = append(d.payload, byte(v)) }, "a byte of payload, behind what there is"},
	{"u16", 16, false, 0, nil, func(d *draft, v uint64) { d.payload = binary.BigEndian.AppendUint16(d.payload, uint16(v)) }, "two bytes of payload"},
	{"u32", 32, false, 0, nil, func(d *draft, v uint64) { d.payload = binary.BigEndian.AppendUint32(d.payload, uint32(v)) }, "four bytes of payload"},
	{"u64", 64, false, 0, nil, func(d *draft, v uint64) { d.payload = binary.BigEndian.AppendUint64(d.payload, v) }, "eight bytes of payload"},
	{"zeros", 16, false, 0, nil, func(d *draft, v uint64) { d.payload = append(d.payload, make([]byte, v)...) }, "so many bytes of zeros"},
	{"cut", 16, false, 0, nil, func(d *draft, v uint64) { d.cut, d.cutSet = int(v), true }, "only so many bytes from the BTH on, and an ICRC"},
	{"sport", 16, false, 0, func(p *frame.Packet) uint64 { return uint64(p.SrcPort) }, func(d *draft, v uint64) { d.sport = uint16(v) }, "UDP source port, not 0"},
	{"ttl", 8, false, 0, func(p *frame.Packet) uint64 { return uint64(p.HopLimit) }, func(d *draft, v uint64) { d.ttl = new(uint8(v)) }, "TTL or hop limit"},
	{"tos", 8, false, 0, func(p *frame.Packet) uint64 { return uint64(p.TrafficClass) }, func(d *draft, v uint64) { d.tos = uint8(v) }, "traffic class: DSCP and ECN"},
	{"src", 8, false, 0, nil, func(d *draft, v uint64) { d.src = new(byte(v)) }, "last byte of another source address"},
	{"dst", 8, false, 0, nil, func(d *draft, v uint64) { d.dst = new(byte(v)) }, "last byte of another destination address"},
}

// maxPayload bounds the payload of a packet that a script sends: a jumbo frame has room for it.
const maxPayload = 9000

// fieldOf finds a field by name.
func fieldOf(name string) *field {
	i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
	if i < 0 {
		return nil
	}
	return &fields[i]
}

// of reports whether packets of kind k have the field.
func (f *field) of(k *kind) bool { return f.in == 0 || k.any || k.op.Info().Headers&f.in != 0 }

// holds returns an error if the field cannot have the value.
func (f *field) holds(v uint64, at Pos) error {
	if f.name == "sport" && v == 0 {
		return errAt(at, "sport=0: 0 is no port that a host sends from: want 1 to 65535")
	}
	return f.fits(v, at)
}

// fits returns an error if the value does not fit into the bits of the field.
func (f *field) fits(v uint64, at Pos) error {
	if f.bits < 64 && v>>f.bits != 0 {
		return errAt(at, "%s=%s does not fit into %d bits", f.name, number(v), f.bits)
	}
	return nil
}

// has reports whether a packet has the field.
func (f *field) has(p *frame.Packet) bool { return f.in == 0 || p.Info.Headers&f.in != 0 }

// payloadField returns the number in the payload of a packet that a name like "u32@8" means: four bytes at offset 8.
func payloadField(p *frame.Packet, name string) (v uint64, ok bool) {
	width, at, ok := strings.Cut(name, "@")
	n := map[string]int{"u8": 1, "u16": 2, "u32": 4, "u64": 8}[width]
	i, err := strconv.Atoi(at)
	if b := p.Payload(); ok && n > 0 && err == nil && i >= 0 && i+n <= len(b) {
		for _, c := range b[i : i+n] {
			v = v<<8 | uint64(c)
		}
		return v, true
	}
	return 0, false
}

// A kind is a class of packets that has a name in scripts: packets with an opcode and, for acknowledgements, with certain syndromes.
type kind struct {
	op       bth.Opcode
	low      bth.Syndrome // the least and
	high     bth.Syndrome // the largest syndrome of an acknowledgement
	ofAck    bool         // low and high count
	any      bool         // any packet
	mad      string       // name of a message of the connection manager, if it is one
	syndrome bth.Syndrome // the syndrome that send uses
}

// name returns the name of the opcode.
func (k *kind) name() string {
	if n := k.op.Info().Name; n != "" {
		return n
	}
	return fmt.Sprintf("op:%#x", uint8(k.op))
}

// acks are the short names of acknowledgements.
var acks = map[string]kind{
	"ACK":           {op: bth.RCAck, ofAck: true, low: 0, high: 0x1F, syndrome: bth.AckNoCredits},
	"RNR":           {op: bth.RCAck, ofAck: true, low: 0x20, high: 0x3F, syndrome: bth.RNR(1)},
	"NAK":           {op: bth.RCAck, ofAck: true, low: 0x60, high: 0x7F, syndrome: bth.NAKSequence},
	"NAK_SEQUENCE":  {op: bth.RCAck, ofAck: true, low: bth.NAKSequence, high: bth.NAKSequence, syndrome: bth.NAKSequence},
	"NAK_INVALID":   {op: bth.RCAck, ofAck: true, low: bth.NAKInvalidRequest, high: bth.NAKInvalidRequest, syndrome: bth.NAKInvalidRequest},
	"NAK_ACCESS":    {op: bth.RCAck, ofAck: true, low: bth.NAKRemoteAccess, high: bth.NAKRemoteAccess, syndrome: bth.NAKRemoteAccess},
	"NAK_OPERATION": {op: bth.RCAck, ofAck: true, low: bth.NAKRemoteOp, high: bth.NAKRemoteOp, syndrome: bth.NAKRemoteOp},
}

// kindOf finds the kind that a name means on a connection of transport tr.
func kindOf(name string, tr bth.Transport) (k kind, ok bool) {
	if k, ok := acks[name]; ok {
		return k, true
	}
	if _, ok := mads[name]; ok {
		return kind{mad: name}, true
	}
	switch name {
	case "ANY":
		return kind{any: true}, true
	case "CNP":
		return kind{op: bth.CNP}, true
	}
	if number, ok := strings.CutPrefix(name, "op:"); ok {
		v, err := strconv.ParseUint(number, 0, 8)
		return kind{op: bth.Opcode(v), syndrome: bth.AckNoCredits}, err == nil
	}
	for op := range 256 {
		full := strings.ReplaceAll(bth.Opcode(op).Info().Name, " ", "_")
		if full != "" && (full == name || full == tr.String()+"_"+name) {
			return kind{op: bth.Opcode(op), syndrome: bth.AckNoCredits}, true
		}
	}
	return kind{}, false
}
