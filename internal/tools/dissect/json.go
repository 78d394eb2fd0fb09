package dissect

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

// JSON is a packet as an object for other programs. Most numbers are decimal. Memory keys and 64-bit values, which may
// not fit in a double, are strings with hexadecimal digits. The object has no members for headers that the packet does
// not have. Its members keep their order.
type JSON []member

type member struct {
	key   string
	value any
}

// MarshalJSON implements [json.Marshaler].
func (j JSON) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, m := range j {
		var v bytes.Buffer
		enc := json.NewEncoder(&v)
		enc.SetEscapeHTML(false) // the caller's encoder escapes, if at all
		if err := enc.Encode(m.value); err != nil {
			return nil, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "%q:%s", m.key, bytes.TrimSpace(v.Bytes()))
	}
	return append(b, '}'), nil
}

func (j *JSON) add(key string, value any) { *j = append(*j, member{key, value}) }

// addSet adds a member unless its value is zero.
func addSet[T comparable](j *JSON, key string, value T) {
	var zero T
	if value != zero {
		j.add(key, value)
	}
}

var kindNames = [...]string{Other: "other", Malformed: "malformed", Truncated: "truncated", RoCE: "roce"}

// String returns the kind as it is in [JSON].
func (k Kind) String() string { return kindNames[k] }

// JSON returns the packet as an object to be marshalled.
func (p *Packet) JSON() JSON {
	j := JSON{{"number", p.Num}, {"time", p.Time}, {"seconds", p.At.Seconds()}, {"length", p.Len}, {"kind", p.Kind.String()}}
	if p.Err != nil && p.Kind == Malformed {
		j.add("error", p.Err.Error())
	}
	addSet(&j, "segment", p.Segment)
	addSet(&j, "segments", p.Segments)
	addSet(&j, "ifindex", p.IfIndex)
	addSet(&j, "comment", p.Comment)
	if names := p.Marks.Names(); len(names) > 0 {
		j.add("marks", names)
	}
	if p.Kind == RoCE {
		p.addRoCE(&j)
	}
	return j
}

// headerMembers are the members for the fields of extended headers.
var headerMembers = []struct {
	headers bth.HeaderSet // any of them has the field
	key     string
	value   func(*frame.Packet) any
}{
	{bth.HasDETH, "qkey", func(f *frame.Packet) any { return uint32(f.QKey()) }},
	{bth.HasDETH, "src_qpn", func(f *frame.Packet) any { return uint32(f.SrcQPN()) }},
	{bth.HasXRCETH, "srqn", func(f *frame.Packet) any { return uint32(f.SRQN()) }},
	{bth.HasRETH | bth.HasAtomicETH, "va", func(f *frame.Packet) any { return hexString(f.VA()) }},
	{bth.HasRETH | bth.HasAtomicETH, "rkey", func(f *frame.Packet) any { return f.RKey().String() }},
	{bth.HasRETH, "dma_len", func(f *frame.Packet) any { return f.DMALen() }},
	{bth.HasAtomicETH, "compare", func(f *frame.Packet) any { return hexString(f.Compare()) }},
	{bth.HasAtomicETH, "swap_add", func(f *frame.Packet) any { return hexString(f.Swap()) }},
	{bth.HasMaskETH, "compare_mask", func(f *frame.Packet) any { return hexString(f.CompareMask()) }},
	{bth.HasMaskETH, "swap_mask", func(f *frame.Packet) any { return hexString(f.SwapMask()) }}, // of a FETCH_ADD: the field boundary
	{bth.HasMaskETH, "operand_size", func(f *frame.Packet) any { return f.OperandSize() }},
	{bth.HasDCETH, "src_qpn", func(f *frame.Packet) any { return uint32(f.DCETH().QPN) }},
	{bth.HasDCETH, "context", func(f *frame.Packet) any { return f.DCETH().Context }},
	{bth.HasDCCETH, "connection", func(f *frame.Packet) any { return f.DCCETH().Connection }},
	{bth.HasDCCETH, "depth", func(f *frame.Packet) any { return f.DCCETH().Depth }},
	{bth.HasDCCETH, "reason", func(f *frame.Packet) any { return f.DCCETH().Reason.String() }}, // of a REJECT
	{bth.HasFETH, "flush_type", func(f *frame.Packet) any { return uint8(f.FlushType()) }},
	{bth.HasFETH, "flush_selectivity", func(f *frame.Packet) any { return uint8(f.FlushSelectivity()) }},
	{bth.HasAETH, "ack", func(f *frame.Packet) any { return f.Syndrome().String() }}, // the syndrome in words
	{bth.HasAETH, "syndrome", func(f *frame.Packet) any { return uint8(f.Syndrome()) }},
	{bth.HasAETH, "msn", func(f *frame.Packet) any { return uint32(f.MSN()) }},
	{bth.HasAtomicAckETH, "original", func(f *frame.Packet) any { return hexString(f.AtomicValue()) }}, // the value before an atomic
	{bth.HasImm, "imm", func(f *frame.Packet) any { return f.Imm() }},
	{bth.HasIETH, "inv_rkey", func(f *frame.Packet) any { return f.InvKey().String() }},
}

// addRoCE adds the members of a decoded packet.
func (p *Packet) addRoCE(j *JSON) {
	f := &p.Frame
	*j = append(*j, member{"src", f.Src.Addr().String()}, member{"dst", f.Dst.Addr().String()}, member{"src_port", f.SrcPort})
	addSet(j, "vlan", f.VLAN)
	*j = append(*j, member{"opcode", uint8(f.Op)}, member{"name", f.Op.String()}, member{"dest_qpn", uint32(f.DestQPN())},
		member{"psn", uint32(f.PSN())}, member{"pkey", uint16(f.PKey())}, member{"pad", f.Pad()},
		member{"ack_req", f.AckReq()}, member{"solicited", f.Solicited()}, member{"mig_req", f.MigReq()})
	addSet(j, "fecn", f.FECN())
	addSet(j, "becn", f.BECN())
	for _, m := range headerMembers {
		if f.Info.Headers&m.headers != 0 {
			j.add(m.key, m.value(f))
		}
	}
	j.add("payload", len(f.Payload())) // bytes
	addSet(j, "cut", p.Cut)            // the capture lacks the end: payload and ICRC are not known
	if !p.Cut {
		j.add("icrc", fmt.Sprintf("%08x", f.ICRC()))
	}
	j.add("icrc_ok", p.ICRCOK)
	addSet(j, "icrc_flush_quirk", p.FlushQuirk) // wrong, but as rxe computes it for FLUSH
	if p.CM != nil {
		j.add("cm", p.CM.Attribute().String()) // "REQ"
		j.add("cm_text", fmt.Sprint(p.CM))
	}
	if p.LNet != nil {
		j.add("lnet_text", p.LNet.String())
	}
}

func hexString(v uint64) string { return fmt.Sprintf("%#x", v) }
