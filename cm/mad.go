package cm

import (
	"errors"
	"fmt"
)

// MADLen is the length of every management datagram: the whole payload of the
// UD SEND_ONLY that carries it. IBTA 13.4.2.
const MADLen = 256

// headerLen is the length of the common MAD header; the message follows it.
const headerLen = 24

// Values of the common header in communication management. IBTA 13.4.2, 12.6.1.
const (
	baseVersion  = 1
	classCM      = 0x07
	classVersion = 2
	methodSend   = 0x03
)

// Attribute is the attribute ID of a MAD, which identifies the message.
type Attribute uint16

// The attributes of the communication management class. IBTA 12.6.
const (
	AttrClassPortInfo Attribute = 0x0001
	AttrREQ           Attribute = 0x0010
	AttrMRA           Attribute = 0x0011
	AttrREJ           Attribute = 0x0012
	AttrREP           Attribute = 0x0013
	AttrRTU           Attribute = 0x0014
	AttrDREQ          Attribute = 0x0015
	AttrDREP          Attribute = 0x0016
	AttrSIDRREQ       Attribute = 0x0017
	AttrSIDRREP       Attribute = 0x0018
	AttrLAP           Attribute = 0x0019
	AttrAPR           Attribute = 0x001A
)

// attributes is the table of all messages.
var attributes = map[Attribute]struct {
	name string
	new  func() Message
}{
	AttrREQ:     {"REQ", func() Message { return new(REQ) }},
	AttrMRA:     {"MRA", func() Message { return new(MRA) }},
	AttrREJ:     {"REJ", func() Message { return new(REJ) }},
	AttrREP:     {"REP", func() Message { return new(REP) }},
	AttrRTU:     {"RTU", func() Message { return new(RTU) }},
	AttrDREQ:    {"DREQ", func() Message { return new(DREQ) }},
	AttrDREP:    {"DREP", func() Message { return new(DREP) }},
	AttrSIDRREQ: {"SIDR_REQ", func() Message { return new(SIDRREQ) }},
	AttrSIDRREP: {"SIDR_REP", func() Message { return new(SIDRREP) }},
	AttrLAP:     {"LAP", func() Message { return new(LAP) }},
	AttrAPR:     {"APR", func() Message { return new(APR) }},
}

// String returns the name of the message, like "SIDR_REQ".
func (a Attribute) String() string {
	if a == AttrClassPortInfo {
		return "ClassPortInfo"
	}
	if e, ok := attributes[a]; ok {
		return e.name
	}
	return fmt.Sprintf("attribute 0x%04x", uint16(a))
}

// Sizes of the private data area of each message in bytes. IBTA 12.6.
const (
	REQPrivateLen     = 92 // 56 for the user behind an RDMA-IP header, see [IPPrivateLen]
	MRAPrivateLen     = 222
	REJPrivateLen     = 148
	REPPrivateLen     = 196
	RTUPrivateLen     = 224
	DREQPrivateLen    = 220
	DREPPrivateLen    = 224
	SIDRREQPrivateLen = 216 // 180 for the user behind an RDMA-IP header
	SIDRREPPrivateLen = 136
	LAPPrivateLen     = 168
	APRPrivateLen     = 148

	// InfoLen is the room for additional information in REJ, SIDR_REP and APR.
	InfoLen = 72
)

// Errors of [DecodeMAD] and of the Decode methods.
var (
	ErrShortMAD  = errors.New("cm: MAD is not 256 bytes long")
	ErrVersion   = errors.New("cm: MAD has an unknown version, class or method")
	ErrAttribute = errors.New("cm: MAD has an unexpected attribute")
)

// Header is the part of the common MAD header that a CM message may vary.
type Header struct {
	// TID is the transaction ID. The sender of a REQ, DREQ, LAP or SIDR_REQ
	// chooses it; the answers repeat it.
	TID uint64
	// Modifier is the attribute modifier, 0 except for Linux's ECE.
	Modifier uint32
}

// decode checks the common header, reads it, and reads the message behind it.
func (h *Header) decode(b []byte, want Attribute, visit func(fields)) error {
	if len(b) != MADLen {
		return fmt.Errorf("%w: got %d", ErrShortMAD, len(b))
	}
	if b[0] != baseVersion || b[1] != classCM || b[2] != classVersion || b[3] != methodSend {
		return fmt.Errorf("%w: base version %d, class 0x%02x, class version %d, method 0x%02x",
			ErrVersion, b[0], b[1], b[2], b[3])
	}
	if a := Attribute(be16(b[16:])); a != want {
		return fmt.Errorf("%w: %v where %v was wanted", ErrAttribute, a, want)
	}
	h.fields(fields{b: b})
	visit(fields{b: b[headerLen:]})
	return nil
}

// put clears the whole MAD and writes the header and the message behind it.
func (h *Header) put(m *[MADLen]byte, a Attribute, visit func(fields)) {
	*m = [MADLen]byte{baseVersion, classCM, classVersion, methodSend}
	put16(m[16:], uint16(a))
	h.fields(fields{m[:], true})
	visit(fields{m[headerLen:], true})
}

func (h *Header) fields(f fields) {
	num(f, 8, 8, &h.TID)
	num(f, 20, 4, &h.Modifier)
}

// Message is one decoded CM message, a pointer to one of the structs named after
// the messages.
type Message interface {
	// Attribute returns the attribute ID of the message.
	Attribute() Attribute
	// Decode fills the message from a whole MAD. On error the message is
	// unspecified.
	Decode(mad []byte) error
	// Put writes the whole MAD, reserved fields zero.
	Put(mad *[MADLen]byte)
	// String is one line for traces.
	String() string
}

// DecodeMAD decodes a whole MAD into the struct of its message.
func DecodeMAD(b []byte) (Message, error) {
	if len(b) != MADLen {
		return nil, fmt.Errorf("%w: got %d", ErrShortMAD, len(b))
	}
	a := Attribute(be16(b[16:]))
	e, ok := attributes[a]
	if !ok {
		return nil, fmt.Errorf("%w: %v", ErrAttribute, a)
	}
	m := e.new()
	if err := m.Decode(b); err != nil {
		return nil, err
	}
	return m, nil
}

// CommID is the communication ID of one end of a connection, chosen by that
// end. Zero means none.
type CommID uint32

// String prints the ID as in the captures, 8 hex digits.
func (id CommID) String() string { return fmt.Sprintf("%08x", uint32(id)) }

// GUID is the 64-bit identity of a node (its CA GUID). It distinguishes two
// peers with the same communication ID.
type GUID uint64

// String prints the GUID as ibv_devinfo does, 4 groups of 4 hex digits.
func (g GUID) String() string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", uint16(g>>48), uint16(g>>32), uint16(g>>16), uint16(g))
}
