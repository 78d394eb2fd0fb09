package fault

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// ICRC says whether the ICRC of a changed packet is right.
type ICRC uint8

// The values. With the default the ICRC is wrong after Corrupt, so that the receiver drops the
// packet, and right after Rewrite.
const (
	ICRCDefault ICRC = iota
	ICRCWrong
	ICRCRight
)

var icrcNames = [...]string{ICRCDefault: "default", ICRCWrong: "wrong", ICRCRight: "right"}

// String returns "wrong" or "right".
func (i ICRC) String() string { return nameOf("ICRC", icrcNames[:], i) }

// ParseICRC is the inverse of String.
func ParseICRC(s string) (ICRC, error) {
	if i := slices.Index(icrcNames[:], s); i > 0 {
		return ICRC(i), nil
	}
	return 0, fmt.Errorf("%q is neither right nor wrong", s)
}

// Field is a field of a packet that a rule can rewrite.
type Field uint8

// Edit is a new value of a field.
type Edit struct {
	Field Field
	Value uint64
}

// String prints the edit as "psn=0x5".
func (e Edit) String() string { return fmt.Sprintf("%s=%#x", e.Field, e.Value) }

// ParseEdit checks that the name is that of a field, and that the value fits it.
func ParseEdit(name string, value uint64) (Edit, error) {
	var names []string
	for _, f := range Fields() {
		if f.String() != name {
			names = append(names, f.String())
			continue
		}
		if bits := f.Bits(); bits < 64 && value>>bits != 0 {
			return Edit{}, fmt.Errorf("%#x does not fit the %d bits of %s", value, bits, name)
		}
		return Edit{f, value}, nil
	}
	return Edit{}, fmt.Errorf("there is no field %q; the fields are %s", name, strings.Join(names, ", "))
}

// Fields returns all fields, in the order in which they are in a packet.
func Fields() []Field {
	f := make([]Field, len(fields))
	for i := range f {
		f[i] = Field(i)
	}
	return f
}

// String returns the name of the field.
func (f Field) String() string {
	if int(f) < len(fields) {
		return fields[f].name
	}
	return fmt.Sprintf("Field(%d)", uint8(f))
}

// Bits returns how many bits the field has.
func (f Field) Bits() int { return int(fields[f].at[0].bits) }

// Header returns the name of the header that has the field.
func (f Field) Header() string { return fields[f].header }

// layer is where a field is. Values below numExtended are a bth.HeaderSet.
type layer uint32

const (
	inIPv4 layer = 1<<16 + iota
	inIPv6
	inUDP
	inBTH
)

// spot is a run of bits in a header, counted from its first one.
type spot struct {
	in       layer
	at, bits uint8
}

// fields lists the fields that a rule can rewrite. A field that several headers can have has a spot
// in each.
var fields = []struct {
	name, header string
	at           []spot
}{
	{"dscp", "IP", []spot{{inIPv4, 8, 6}, {inIPv6, 4, 6}}},
	{"ecn", "IP", []spot{{inIPv4, 14, 2}, {inIPv6, 10, 2}}},
	{"ttl", "IP", []spot{{inIPv4, 64, 8}, {inIPv6, 56, 8}}},
	{"src-port", "UDP", []spot{{inUDP, 0, 16}}},
	{"opcode", "BTH", []spot{{inBTH, 0, 8}}},
	{"solicited", "BTH", []spot{{inBTH, 8, 1}}},
	{"migreq", "BTH", []spot{{inBTH, 9, 1}}},
	{"pad", "BTH", []spot{{inBTH, 10, 2}}},
	{"tver", "BTH", []spot{{inBTH, 12, 4}}},
	{"pkey", "BTH", []spot{{inBTH, 16, 16}}},
	{"fecn", "BTH", []spot{{inBTH, 32, 1}}},
	{"becn", "BTH", []spot{{inBTH, 33, 1}}},
	{"dest-qpn", "BTH", []spot{{inBTH, 40, 24}}},
	{"ack-req", "BTH", []spot{{inBTH, 64, 1}}},
	{"psn", "BTH", []spot{{inBTH, 72, 24}}},
	{"qkey", "DETH", []spot{{layer(bth.HasDETH), 0, 32}}},
	{"src-qpn", "DETH", []spot{{layer(bth.HasDETH), 40, 24}}},
	{"va", "RETH, AtomicETH", []spot{{layer(bth.HasRETH), 0, 64}, {layer(bth.HasAtomicETH), 0, 64}}},
	{"rkey", "RETH, AtomicETH", []spot{{layer(bth.HasRETH), 64, 32}, {layer(bth.HasAtomicETH), 64, 32}}},
	{"dma-length", "RETH", []spot{{layer(bth.HasRETH), 96, 32}}},
	{"swap-add", "AtomicETH", []spot{{layer(bth.HasAtomicETH), 96, 64}}},
	{"compare", "AtomicETH", []spot{{layer(bth.HasAtomicETH), 160, 64}}},
	{"syndrome", "AETH", []spot{{layer(bth.HasAETH), 0, 8}}},
	{"msn", "AETH", []spot{{layer(bth.HasAETH), 8, 24}}},
	{"imm", "ImmDt", []spot{{layer(bth.HasImm), 0, 32}}},
	{"inv-rkey", "IETH", []spot{{layer(bth.HasIETH), 0, 32}}},
}

// header returns the header of a packet that a spot is in, nil if the packet has none.
func (l layer) header(at *place, p *bth.Packet) []byte {
	switch {
	case l == inBTH:
		return at.body
	case l == inUDP:
		return at.udp
	case l == inIPv4 && len(at.ip) > 0 && at.ip[0]>>4 == 4, l == inIPv6 && len(at.ip) > 0 && at.ip[0]>>4 == 6:
		return at.ip
	case l < inIPv4:
		if n, ok := p.Info.Offset(bth.HeaderSet(l)); ok {
			return at.body[n:]
		}
	}
	return nil
}

// put writes a value to a run of bits.
func (s spot) put(b []byte, v uint64) {
	for i := range int(s.bits) {
		bit := int(s.at) + int(s.bits) - 1 - i
		mask := byte(0x80) >> (bit % 8)
		b[bit/8] &^= mask
		if v>>i&1 != 0 {
			b[bit/8] |= mask
		}
	}
}

// rewrite changes fields of the packet that match has parsed. It reports whether the packet has them.
func (e *engine) rewrite(f *link.Frame, r *Rule, v *Verdict) bool {
	at := &e.at
	type target struct {
		spot
		header []byte
		value  uint64
	}
	targets := make([]target, 0, len(r.Edits))
	for _, edit := range r.Edits {
		n := len(targets)
		for _, s := range fields[edit.Field].at {
			if h := s.in.header(at, &e.packet); h != nil {
				targets = append(targets, target{s, h, edit.Value})
				break
			}
		}
		if n == len(targets) {
			v.Refused = fmt.Sprintf("the packet has no %s", edit.Field)
			return false
		}
	}
	seal, err := e.sealer(f)
	if err != nil && r.ICRC != ICRCWrong {
		v.Refused = damaged(err)
		return false
	}
	for _, t := range targets {
		t.put(t.header, t.value)
	}
	if r.ICRC != ICRCWrong {
		seal()
	}
	at.mendChecksums()
	return true
}

// unprotected is the byte of the BTH that the ICRC does not cover.
const unprotected = 4

// maxBits is the longest burst of errors that a CRC of 32 bits always detects.
const maxBits = 32

// corrupt inverts a burst of bits at a random place from BTH to ICRC, or, if the ICRC must be right
// again, in the payload. It reports whether the packet has such bytes.
func (e *engine) corrupt(s *side, f *link.Frame, r *Rule, v *Verdict) bool {
	at := &e.at
	target := at.body
	var seal func()
	switch {
	case r.ICRC == ICRCRight:
		if target = e.packet.Payload(); len(target) == 0 {
			v.Refused = "the packet has no payload"
			return false
		}
		var err error
		if seal, err = e.sealer(f); err != nil {
			v.Refused = damaged(err)
			return false
		}
	case len(target) == 0:
		target = f.Data // not a RoCE packet: any bit of the frame
	}
	if len(target) == 0 {
		return false
	}
	burst := min(cmp.Or(r.Bits, 1), 8*len(target))
	start := s.rng.IntN(8*len(target) - burst + 1)
	if flags := 8 * unprotected; r != &noRule && seal == nil && start < flags+8 && start+burst > flags {
		start = min(flags+8, 8*len(target)-burst)
	}
	for bit := start; bit < start+burst; bit++ {
		target[bit/8] ^= 1 << (bit % 8)
	}
	if seal != nil {
		seal()
	}
	at.mendChecksums()
	return true
}

// damaged returns the reason why a packet cannot get a right ICRC: its headers are wrong, so every
// receiver drops it before it checks the ICRC.
func damaged(err error) string { return fmt.Sprintf("the headers are damaged: %v", err) }

// sealer returns a function that computes the ICRC of the packet from its bytes at the time of the
// call, and writes it. If the packet is a FLUSH with rxe's form of the ICRC, the function computes
// that form.
func (e *engine) sealer(f *link.Frame) (seal func(), err error) {
	at := &e.at
	if at.seeded {
		end := len(at.body) - bth.ICRCLen
		return func() { bth.PutICRC(at.body[end:], at.crc.UpdateBody(at.body[:end])) }, nil
	}
	p := &e.whole
	p.IgnoreUDPChecksum = true
	if at.env != nil {
		err = p.ParseBody(at.body, at.env, f.Segment)
	} else {
		err = p.Parse(at.packet, frame.LayoutIP)
	}
	if err != nil {
		return nil, err
	}
	quirk := p.Info.Flags&bth.Flush != 0 && !p.CheckICRC() && p.CheckICRCFlushQuirk()
	return func() {
		if at.udp != nil {
			p.SrcPort = binary.BigEndian.Uint16(at.udp)
		}
		if quirk {
			p.PutICRCFlushQuirk()
		} else {
			p.PutICRC()
		}
	}, nil
}
