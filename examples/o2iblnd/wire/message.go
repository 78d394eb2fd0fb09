package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Sizes of the protocol.
const (
	MaxMessage   = 4096                         // of a message, payload included
	HeaderLen    = 48                           // of the part that all types have
	MaxImmediate = MaxMessage - immediatePrefix // payload of an IMMEDIATE
	MaxFragments = 257                          // of a descriptor: 1 MiB that begins inside a page
	MaxPayload   = 1 << 20                      // of LNet

	immediatePrefix = HeaderLen + LNetHeaderLen
	connLen         = HeaderLen + 8
	fragmentLen     = 12
)

// Port is the port of the RDMA connection manager on which nodes listen.
const Port = 987

const magic uint32 = 0x0be91b91

// Order is the byte order of a sender.
type Order bool

// The byte orders.
const (
	LittleEndian Order = false
	BigEndian    Order = true
)

// ByteOrder returns what reads and writes numbers in this order.
func (o Order) ByteOrder() interface {
	binary.ByteOrder
	binary.AppendByteOrder
} {
	if o == BigEndian {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// Version is the version of the protocol.
type Version uint16

// The versions. Version 1 counts NOOPs among the messages that need a credit.
const (
	Version1 Version = 0x11
	Version2 Version = 0x12
)

// Type is the type of a message.
type Type uint8

// The types.
const (
	ConnReq   Type = 0xc0 // asks for a connection
	ConnAck   Type = 0xc1 // accepts a connection
	NoOp      Type = 0xd0 // returns credits
	Immediate Type = 0xd1 // an LNet message with its payload
	PutReq    Type = 0xd2 // asks where to write a large payload
	PutNak    Type = 0xd3 // refuses a PUT_REQ
	PutAck    Type = 0xd4 // answers a PUT_REQ with a descriptor of the sink
	PutDone   Type = 0xd5 // the payload of a PUT_REQ is written
	GetReq    Type = 0xd6 // asks for a large payload, with a descriptor of the sink
	GetDone   Type = 0xd7 // the payload of a GET_REQ is written
)

// fields is a set of parts of a message's body.
type fields uint8

const (
	hasConn fields = 1 << iota
	hasLNet
	hasPayload
	hasCookie
	hasSinkCookie
	hasStatus
	hasDesc
)

// layouts has the body of each type, in the order of the constants above.
var layouts = map[Type]struct {
	name string
	min  int // bytes of the shortest one
	has  fields
}{
	ConnReq:   {"CONNREQ", connLen, hasConn},
	ConnAck:   {"CONNACK", connLen, hasConn},
	NoOp:      {"NOOP", HeaderLen, 0},
	Immediate: {"IMMEDIATE", immediatePrefix, hasLNet | hasPayload},
	PutReq:    {"PUT_REQ", 128, hasLNet | hasCookie},
	PutNak:    {"PUT_NAK", 60, hasCookie | hasStatus},
	PutAck:    {"PUT_ACK", 72, hasCookie | hasSinkCookie | hasDesc},
	PutDone:   {"PUT_DONE", 60, hasCookie | hasStatus},
	GetReq:    {"GET_REQ", 136, hasLNet | hasCookie | hasDesc},
	GetDone:   {"GET_DONE", 60, hasCookie | hasStatus},
}

func (t Type) String() string {
	if l, ok := layouts[t]; ok {
		return l.name
	}
	return fmt.Sprintf("type %#x", uint8(t))
}

// NeedsCredit reports whether a sender of version 2 spends a credit on the message. Answers and NOOPs need none: their
// receiver has reserved receives for them.
func (t Type) NeedsCredit() bool { return t == Immediate || t == PutReq || t == GetReq }

// Stamp is the incarnation of a node. It changes with each restart.
type Stamp uint64

// Cookie identifies an operation. Only the side that created it knows the meaning of the bytes.
type Cookie uint64

// ConnParams are the sizes that two nodes agree on.
type ConnParams struct {
	QueueDepth uint16 // how many messages that need a credit may be outstanding
	MaxFrags   uint16 // of a descriptor
	MaxMessage uint32 // bytes of a message
}

// Fragment is a piece of memory of the sink.
type Fragment struct {
	Len  uint32
	Addr uint64
}

// Descriptor describes the sink of an RDMA WRITE: pieces of memory with one key.
type Descriptor struct {
	RKey  uint32
	Frags []Fragment
}

// Size returns the number of bytes of all fragments, at most 2 GiB - 1.
func (d Descriptor) Size() int {
	var n uint64
	for _, f := range d.Frags {
		n += uint64(f.Len)
	}
	return number(n)
}

// number converts a number of the wire to an int, which may have 32 bits. The limit is larger than any transfer.
func number(n uint64) int { return int(min(n, math.MaxInt32)) }

// Message is a message. A type uses only those fields of the body that layouts names.
type Message struct {
	Order    Order
	Version  Version
	Type     Type
	Credits  uint8  // receives that the sender has posted again
	Checksum uint32 // as received; see [SetChecksum]
	Src      NID
	SrcStamp Stamp
	Dst      NID
	DstStamp Stamp

	Conn       ConnParams // CONNREQ, CONNACK
	LNet       LNetHeader // IMMEDIATE, PUT_REQ, GET_REQ
	Payload    []byte     // IMMEDIATE
	Cookie     Cookie     // of the side that sent the request; PUT_DONE: of the sink
	SinkCookie Cookie     // PUT_ACK
	Status     int32      // PUT_NAK, PUT_DONE, GET_DONE: bytes, or a negative errno
	Desc       Descriptor // PUT_ACK, GET_REQ
}

// Len returns the number of bytes of the encoded message.
func (m *Message) Len() int {
	l := layouts[m.Type]
	n := l.min
	if l.has&hasPayload != 0 {
		n += len(m.Payload)
	}
	if l.has&hasDesc != 0 {
		n += fragmentLen * len(m.Desc.Frags)
	}
	return n
}

// Append appends the encoded message to b, with Checksum as it is.
func (m *Message) Append(b []byte) []byte {
	o := m.Order.ByteOrder()
	b = o.AppendUint32(b, magic)
	b = o.AppendUint16(b, uint16(m.Version))
	b = append(b, byte(m.Type), m.Credits)
	b = o.AppendUint32(b, uint32(m.Len()))
	b = o.AppendUint32(b, m.Checksum)
	for _, v := range [...]uint64{uint64(m.Src), uint64(m.SrcStamp), uint64(m.Dst), uint64(m.DstStamp)} {
		b = o.AppendUint64(b, v)
	}
	has := layouts[m.Type].has
	if has&hasConn != 0 {
		b = m.Conn.append(b, o)
	}
	if has&hasLNet != 0 {
		b = m.LNet.append(b)
	}
	if has&hasPayload != 0 {
		b = append(b, m.Payload...)
	}
	if has&hasCookie != 0 {
		b = binary.LittleEndian.AppendUint64(b, uint64(m.Cookie))
	}
	if has&hasSinkCookie != 0 {
		b = binary.LittleEndian.AppendUint64(b, uint64(m.SinkCookie))
	}
	if has&hasStatus != 0 {
		b = o.AppendUint32(b, uint32(m.Status))
	}
	if has&hasDesc != 0 {
		b = o.AppendUint32(b, m.Desc.RKey)
		b = o.AppendUint32(b, uint32(len(m.Desc.Frags)))
		for _, f := range m.Desc.Frags {
			b = o.AppendUint32(b, f.Len)
			b = o.AppendUint64(b, f.Addr)
		}
	}
	return b
}

func (p ConnParams) append(b []byte, o binary.AppendByteOrder) []byte {
	b = o.AppendUint16(b, p.QueueDepth)
	b = o.AppendUint16(b, p.MaxFrags)
	return o.AppendUint32(b, p.MaxMessage)
}

// OrderOf finds out the byte order of a sender from the magic number at the start of b.
func OrderOf(b []byte, magic uint32) (o Order, ok bool) {
	switch magic {
	case binary.LittleEndian.Uint32(b):
		return LittleEndian, true
	case binary.BigEndian.Uint32(b):
		return BigEndian, true
	}
	return LittleEndian, false
}

// Decode decodes the message at the start of b, with the checks that the kernel's receiver makes,
// in its order. Bytes behind the message are ignored.
func Decode(b []byte) (*Message, error) {
	const object = "message"
	if len(b) < 6 {
		return nil, fail(object, TooShort, uint64(len(b)), 6)
	}
	order, ok := OrderOf(b, magic)
	if !ok {
		return nil, fail(object, BadMagic, uint64(binary.LittleEndian.Uint32(b)), uint64(magic))
	}
	o := order.ByteOrder()
	m := &Message{Order: order, Version: Version(o.Uint16(b[4:]))}
	if m.Version != Version1 && m.Version != Version2 {
		return nil, fail(object, BadVersion, uint64(m.Version), uint64(Version2))
	}
	if len(b) < HeaderLen {
		return nil, fail(object, TooShort, uint64(len(b)), HeaderLen)
	}
	m.Type, m.Credits = Type(b[6]), b[7]
	nob := uint64(o.Uint32(b[8:]))
	switch {
	case nob > uint64(len(b)):
		return nil, fail(m.Type.String(), BadLength, nob, uint64(len(b)))
	case nob < HeaderLen:
		return nil, fail(m.Type.String(), TooShort, nob, HeaderLen)
	}
	b = b[:nob]
	if m.Checksum = o.Uint32(b[12:]); m.Checksum != 0 && !checksumOK(b, m.Checksum) {
		return nil, fail(m.Type.String(), BadChecksum, uint64(m.Checksum), uint64(checksum(b, SignedChecksum)))
	}
	m.Src, m.SrcStamp = NID(o.Uint64(b[16:])), Stamp(o.Uint64(b[24:]))
	m.Dst, m.DstStamp = NID(o.Uint64(b[32:])), Stamp(o.Uint64(b[40:]))
	if m.Src == AnyNID {
		return nil, fail(m.Type.String(), BadNID, uint64(m.Src), uint64(AnyNID))
	}
	l, ok := layouts[m.Type]
	if !ok {
		return nil, fail(object, BadType, uint64(m.Type), uint64(GetDone))
	}
	if len(b) < l.min {
		return nil, fail(l.name, TooShort, nob, uint64(l.min))
	}
	if err := m.decodeBody(b[HeaderLen:], l.has); err != nil {
		return nil, err
	}
	return m, nil
}

// decodeBody decodes the body, which has at least the shortest length of its type.
func (m *Message) decodeBody(b []byte, has fields) error {
	o := m.Order.ByteOrder()
	if has&hasConn != 0 {
		m.Conn = decodeConn(b, o)
	}
	if has&hasLNet != 0 {
		if err := m.LNet.decode(b); err != nil {
			return err
		}
		b = b[LNetHeaderLen:]
	}
	if has&hasPayload != 0 {
		m.Payload = b
	}
	if has&hasCookie != 0 {
		m.Cookie, b = Cookie(binary.LittleEndian.Uint64(b)), b[8:]
	}
	if has&hasSinkCookie != 0 {
		m.SinkCookie, b = Cookie(binary.LittleEndian.Uint64(b)), b[8:]
	}
	if has&hasStatus != 0 {
		m.Status = int32(o.Uint32(b))
	}
	if has&hasDesc == 0 {
		return nil
	}
	var n uint32
	m.Desc.RKey, n, b = o.Uint32(b), o.Uint32(b[4:]), b[8:]
	if n < 1 || n > MaxFragments {
		return fail(m.Type.String(), BadFragments, uint64(n), MaxFragments)
	}
	if len(b) < int(n)*fragmentLen {
		return fail(m.Type.String(), TooShort, uint64(layouts[m.Type].min+len(b)), uint64(layouts[m.Type].min+int(n)*fragmentLen))
	}
	m.Desc.Frags = make([]Fragment, n)
	for i := range m.Desc.Frags {
		m.Desc.Frags[i] = Fragment{Len: o.Uint32(b[i*fragmentLen:]), Addr: o.Uint64(b[i*fragmentLen+4:])}
	}
	return nil
}

func decodeConn(b []byte, o binary.ByteOrder) ConnParams {
	return ConnParams{QueueDepth: o.Uint16(b), MaxFrags: o.Uint16(b[2:]), MaxMessage: o.Uint32(b[4:])}
}
