package wire

import (
	"encoding/binary"
	"fmt"
)

// Why is the reason of a node to refuse a connection.
type Why uint8

// The reasons.
const (
	ConnRace     Why = 1 // both connect at once, and the refusing node's request wins
	NoResources  Why = 2
	Fatal        Why = 3
	Uncompatible Why = 4 // other version
	ConnStale    Why = 5 // the request is for, or from, another incarnation
	RDMAFrags    Why = 6 // too many fragments: see Params
	MsgQueueSize Why = 7 // too deep a queue: see Params
	InvalidSrvID Why = 8
	Early        Why = 9 // the node is starting
)

const rejectLen = 24

var whyNames = [...]string{ConnRace: "CONN_RACE", NoResources: "NO_RESOURCES", Fatal: "FATAL", Uncompatible: "CONN_UNCOMPAT",
	ConnStale: "CONN_STALE", RDMAFrags: "RDMA_FRAGS", MsgQueueSize: "MSG_QUEUE_SIZE", InvalidSrvID: "INVALID_SRV_ID", Early: "EARLY"}

func (w Why) String() string {
	if int(w) < len(whyNames) && w != 0 {
		return whyNames[w]
	}
	return fmt.Sprintf("why %d", uint8(w))
}

// Reject is the private data of a refusal.
type Reject struct {
	Order   Order
	Version Version
	Why     Why
	Stamp   Stamp      // of the refusing node; 0 if it refused before it found the interface
	Params  ConnParams // the limits of the refusing node
}

// Append appends the encoded refusal to b.
func (r *Reject) Append(b []byte) []byte {
	o := r.Order.ByteOrder()
	b = o.AppendUint32(b, magic)
	b = o.AppendUint16(b, uint16(r.Version))
	b = append(b, byte(r.Why), 0)
	b = o.AppendUint64(b, uint64(r.Stamp))
	return r.Params.append(b, o)
}

// DecodeReject decodes the private data of a refusal.
func DecodeReject(b []byte) (*Reject, error) {
	const object = "reject"
	if len(b) < rejectLen {
		return nil, fail(object, TooShort, uint64(len(b)), rejectLen)
	}
	order, ok := OrderOf(b, magic)
	if !ok {
		return nil, fail(object, BadMagic, uint64(binary.LittleEndian.Uint32(b)), uint64(magic))
	}
	o := order.ByteOrder()
	r := &Reject{Order: order, Version: Version(o.Uint16(b[4:])), Why: Why(b[6]), Stamp: Stamp(o.Uint64(b[8:])), Params: decodeConn(b[16:], o)}
	if r.Version != Version1 && r.Version != Version2 {
		return nil, fail(object, BadVersion, uint64(r.Version), uint64(Version2))
	}
	return r, nil
}
