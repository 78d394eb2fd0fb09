// Package selftest speaks to lnet_selftest of Lustre. A [Service] answers its requests on a node,
// so that the node can be in a group of `lst`, as a server or as a client of brw tests. A [Client] runs
// brw tests against a node without a session.
//
// A request is a PUT of [MessageLen] bytes to portal 50 (the framework has portal 51), with the
// number of the service as match bits. It contains the match bits for the reply and for the bulk data,
// both at portal 52 of the requester. The server PUTs the data of a read, or GETs the data of a write.
// Then it PUTs the reply.
package selftest

import (
	"encoding/binary"
	"fmt"

	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// Portals.
const (
	RequestPortal   = 50
	FrameworkPortal = 51
	DataPortal      = 52 // bulk data and replies
)

// Service numbers: the match bits of requests.
const (
	serviceDebug  = 0
	serviceMake   = 1
	serviceRemove = 2
	serviceBatch  = 3
	serviceTest   = 4
	serviceStat   = 5
	serviceJoin   = 6
	serviceBRW    = 11
	servicePing   = 12
)

// Type is the type of a message; that of a reply is one more than that of its request.
type Type uint32

// Types of requests.
const (
	MakeSession   Type = 0
	RemoveSession Type = 2
	Batch         Type = 4
	Stat          Type = 6
	Test          Type = 8
	Debug         Type = 10
	BRW           Type = 12
	PingTest      Type = 14
	Join          Type = 16
)

// MessageLen is the length of every message. Fields that a type does not use are 0.
const MessageLen = 160

const (
	magic     = 0xeeb0f00d
	version   = 1
	headerLen = 24
	nameLen   = 32
)

// FeatureBulkLen says that sizes are in bytes. Without it they are in pages.
const FeatureBulkLen uint32 = 1

// Message is a message. Body is the part after the header.
type Message struct {
	Order    wire.Order
	Type     Type
	Features uint32
	Body     []byte
}

// Decode decodes a message. The body refers to b.
func Decode(b []byte) (*Message, error) {
	if len(b) < MessageLen {
		return nil, fmt.Errorf("selftest: a message of %d bytes, want %d", len(b), MessageLen)
	}
	order, ok := wire.OrderOf(b, magic)
	if !ok {
		return nil, fmt.Errorf("selftest: magic %#x, want %#x", binary.LittleEndian.Uint32(b), uint32(magic))
	}
	m := &Message{Order: order, Body: b[headerLen:MessageLen]}
	o := m.order()
	if v := o.Uint32(b[4:]); v != version {
		return nil, fmt.Errorf("selftest: version %d, want %d", v, version)
	}
	m.Type, m.Features = Type(o.Uint32(b[8:])), o.Uint32(b[20:])
	return m, nil
}

func (m *Message) order() binary.ByteOrder { return m.Order.ByteOrder() }

// New returns a message with an empty body.
func New(t Type, features uint32) *Message {
	return &Message{Type: t, Features: features, Body: make([]byte, MessageLen-headerLen)}
}

// Encode returns the bytes of the message.
func (m *Message) Encode() []byte {
	b, o := make([]byte, MessageLen), m.order()
	for at, v := range map[int]uint32{0: magic, 4: version, 8: uint32(m.Type), 20: m.Features} {
		o.PutUint32(b[at:], v)
	}
	copy(b[headerLen:], m.Body)
	return b
}

func (m *Message) u16(at int) uint16          { return m.order().Uint16(m.Body[at:]) }
func (m *Message) u32(at int) uint32          { return m.order().Uint32(m.Body[at:]) }
func (m *Message) u64(at int) uint64          { return m.order().Uint64(m.Body[at:]) }
func (m *Message) put32(at int, v uint32)     { m.order().PutUint32(m.Body[at:], v) }
func (m *Message) put64(at int, v uint64)     { m.order().PutUint64(m.Body[at:], v) }
func (m *Message) bytes(at, n int) []byte     { return m.Body[at : at+n] }
func (m *Message) setStatus(status int32)     { m.put32(0, uint32(status)) }
func (m *Message) status() int32              { return int32(m.u32(0)) }
func (m *Message) setSession(s sessionID)     { copy(m.Body[4:], s[:]) }
func (m *Message) session(at int) sessionID   { return sessionID(m.bytes(at, sessionIDLen)) }
func (m *Message) replyBits() uint64          { return m.u64(0) }
func (m *Message) bulkBits() uint64           { return m.u64(8) }
func (m *Message) copyBytes(at int, b []byte) { copy(m.Body[at:], b) }

// sessionID identifies a session: the NID of the console and a time stamp, in the byte order of the sender.
type sessionID [sessionIDLen]byte

const sessionIDLen = 16

// noSession is the answer of a node without a session: the NID that stands for any node, and an invalid time stamp.
var noSession = sessionID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
