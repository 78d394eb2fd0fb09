package wire

import (
	"encoding/binary"
	"fmt"
)

// LNetHeaderLen is the length of an LNet header.
const LNetHeaderLen = 72

// LNetType is the type of an LNet message.
type LNetType uint32

// The types.
const (
	Ack   LNetType = iota // a PUT has arrived
	Put                   // data for the target
	Get                   // asks for data
	Reply                 // data for a GET
)

var lnetNames = [...]string{Ack: "ACK", Put: "PUT", Get: "GET", Reply: "REPLY"}

func (t LNetType) String() string {
	if int(t) < len(lnetNames) {
		return lnetNames[t]
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// KernelPID is the process ID of a node in the kernel. User-space nodes that talk to one use it, too.
const KernelPID = 12345

// WireMD identifies a memory descriptor. Only the node that created it knows the meaning of the bytes.
type WireMD struct{ Interface, Object uint64 }

// NoMD in a PUT means that its sender wants no ACK.
var NoMD = WireMD{1<<64 - 1, 1<<64 - 1}

// LNetHeader is the header of LNet. A message uses only the fields whose comments name its type. In a PUT, MD is the
// sender's descriptor for the ACK; in a GET, its descriptor for the REPLY. ACK and REPLY return it.
type LNetHeader struct {
	Dst, Src       NID
	DstPID, SrcPID uint32
	Type           LNetType
	PayloadLen     uint32 // 0 in ACK and GET

	MD        WireMD
	MatchBits uint64 // ACK, PUT, GET
	HdrData   uint64 // PUT
	Portal    uint32 // PUT, GET
	Offset    uint32 // PUT, GET: in the target's memory
	SinkLen   uint32 // GET: the maximum length of the REPLY
	MLength   uint32 // ACK: the bytes of the PUT that the target took
}

// tail returns the fields after MD, in the order of the wire. The rest of the 72 bytes is 0.
func (h *LNetHeader) tail() []any {
	switch h.Type {
	case Ack:
		return []any{&h.MatchBits, &h.MLength}
	case Put:
		return []any{&h.MatchBits, &h.HdrData, &h.Portal, &h.Offset}
	case Get:
		return []any{&h.MatchBits, &h.Portal, &h.Offset, &h.SinkLen}
	}
	return nil
}

func (h *LNetHeader) append(b []byte) []byte {
	o, end := binary.LittleEndian, len(b)+LNetHeaderLen
	b = o.AppendUint64(b, uint64(h.Dst))
	b = o.AppendUint64(b, uint64(h.Src))
	for _, v := range [...]uint32{h.DstPID, h.SrcPID, uint32(h.Type), h.PayloadLen} {
		b = o.AppendUint32(b, v)
	}
	b = o.AppendUint64(b, h.MD.Interface)
	b = o.AppendUint64(b, h.MD.Object)
	for _, f := range h.tail() {
		switch f := f.(type) {
		case *uint64:
			b = o.AppendUint64(b, *f)
		case *uint32:
			b = o.AppendUint32(b, *f)
		}
	}
	return append(b, make([]byte, end-len(b))...)
}

func (h *LNetHeader) decode(b []byte) error {
	o := binary.LittleEndian
	h.Dst, h.Src = NID(o.Uint64(b)), NID(o.Uint64(b[8:]))
	h.DstPID, h.SrcPID = o.Uint32(b[16:]), o.Uint32(b[20:])
	h.Type, h.PayloadLen = LNetType(o.Uint32(b[24:])), o.Uint32(b[28:])
	if h.Type > Reply {
		return fail("LNet header", BadType, uint64(h.Type), uint64(Reply))
	}
	h.MD = WireMD{o.Uint64(b[32:]), o.Uint64(b[40:])}
	b = b[48:]
	for _, f := range h.tail() {
		switch f := f.(type) {
		case *uint64:
			*f, b = o.Uint64(b), b[8:]
		case *uint32:
			*f, b = o.Uint32(b), b[4:]
		}
	}
	return nil
}

// Size returns the number of bytes of data in a PUT or REPLY, or that a GET asks for, at most 2 GiB - 1.
func (h *LNetHeader) Size() int {
	switch h.Type {
	case Put, Reply:
		return number(uint64(h.PayloadLen))
	case Get:
		return number(uint64(h.SinkLen))
	}
	return 0
}
