package lnd

import (
	"time"

	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// Kind is the kind of an operation, seen from this side.
type Kind uint8

// The kinds. This side begins the first three, the peer the others.
const (
	SendImmediate Kind = iota + 1 // a message with its payload
	SendPut                       // PUT_REQ: this side writes into the peer's memory after the peer's PUT_ACK
	SendGet                       // GET_REQ: the peer writes into Sink
	TakePut                       // the peer's PUT_REQ: accept it with [Conn.AcceptPut]
	ServeGet                      // the peer's GET_REQ: serve it with [Conn.ServeGet]
)

// Op is an operation: one LNet message and the transfer of its data.
type Op struct {
	Kind    Kind
	LNet    wire.LNetHeader
	Payload []byte          // SendImmediate
	Size    int             // SendPut: bytes to write
	Sink    wire.Descriptor // SendGet: the memory that the peer writes to
	User    any             // data of the layer above

	id       wire.Cookie // cookie in the peer's answer; TakePut: in its PUT_DONE
	peer     wire.Cookie // cookie in this side's answer
	deadline time.Time
	sending  int  // SENDs in flight
	sent     bool // a message of the operation was transmitted, so the peer may know id
	waiting  bool
	done     bool
	n        int
	err      error
}

// needsReservation reports whether this side reserves a receive for the answer.
func (o *Op) needsReservation() bool { return o.Kind == SendPut || o.Kind == SendGet }

// Write is an RDMA WRITE of a part of an operation's memory.
type Write struct {
	Offset, Len int // in the operation's memory
	RemoteAddr  uint64
	RKey        uint32
}

// Transmit asks the driver to post the unsignaled Writes and then a signaled SEND of Message. When the SEND completes,
// the driver calls [Conn.Sent] with ID. Op is nil in the Transmit of a NOOP.
type Transmit struct {
	ID      uint64
	Message []byte
	Writes  []Write
	Op      *Op
}

// Arrival is a message of the peer. For an IMMEDIATE, Op is nil, and Payload is valid until the
// next call of Receive. Otherwise the layer above must answer Op.
type Arrival struct {
	LNet    wire.LNetHeader
	Payload []byte
	Op      *Op
}

// Finished says that an operation is over and that its memory is no longer in use. If a Closed came before, the memory
// is free only after the driver has acted on the Closed. N is the number of bytes that were moved.
type Finished struct {
	Op  *Op
	N   int
	Err error
}

// Closed says that the connection is over. The driver disconnects and moves the queue pair to the
// error state before it acts on the next output.
type Closed struct{ Err error }

// Output is one of *Transmit, *Arrival, *Finished, *Closed.
type Output any

// split cuts n bytes of contiguous memory into WRITEs for the fragments of a descriptor. The status
// is n, or a negative errno if the bytes do not fit.
func split(n int, d wire.Descriptor, maxFrags int) (writes []Write, status int32) {
	rest := n
	for _, f := range d.Frags {
		if rest == 0 {
			break
		}
		if f.Len == 0 {
			continue
		}
		if len(writes) == maxFrags {
			return nil, statusMsgSize
		}
		size := int(min(uint64(f.Len), uint64(rest)))
		writes = append(writes, Write{Offset: n - rest, Len: size, RemoteAddr: f.Addr, RKey: d.RKey})
		rest -= size
	}
	if rest > 0 {
		return nil, statusProto
	}
	return writes, int32(n)
}
