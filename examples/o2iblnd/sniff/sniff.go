// Package sniff finds the messages of o2iblnd in captured packets. It assembles the packets of SENDs of RC queue
// pairs, and it decodes the private data of connection requests, answers and refusals.
package sniff

import (
	"bytes"
	"net/netip"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// Unit is a message, or a refusal, that a packet has completed.
type Unit struct {
	Src, Dst netip.Addr
	QPN      bth.QPN // of the receiver; [bth.QPNGSI] for private data
	Own      bth.QPN // of private data: the queue pair that the sender of the request or answer connects
	PSN      bth.PSN // of the first packet
	Bytes    []byte  // as received, without the padding of private data

	Message *wire.Message // nil if it is a refusal or cannot be decoded
	Reject  *wire.Reject
	Err     error // why it cannot be decoded
}

// String returns the unit on one line.
func (u *Unit) String() string {
	switch {
	case u.Message != nil:
		return "o2iblnd " + u.Message.String()
	case u.Reject != nil:
		return "o2iblnd " + u.Reject.String()
	}
	return "o2iblnd: " + u.Err.Error()
}

// flow is one direction of a queue pair.
type flow struct {
	src, dst netip.Addr
	qpn      bth.QPN
}

// Assembler puts messages together. The zero value is ready.
type Assembler struct {
	partial map[flow]*Unit
	next    map[flow]bth.PSN
}

// maxFlows bounds how many messages may be incomplete at once.
const maxFlows = 1 << 12

// Packet takes the next packet of a capture. mad is the decoded message of a packet of the connection manager, nil for
// other packets. Packet returns nil if the packet completes no message of o2iblnd.
func (a *Assembler) Packet(f *frame.Packet, mad cm.Message) *Unit {
	if mad != nil {
		return private(f, mad)
	}
	if f.Info.Transport != bth.RC {
		return nil
	}
	switch f.Op {
	case bth.RCSendFirst, bth.RCSendMiddle, bth.RCSendLast, bth.RCSendOnly:
	default:
		return nil
	}
	if a.partial == nil {
		a.partial, a.next = map[flow]*Unit{}, map[flow]bth.PSN{}
	}
	k := flow{f.Src.Addr(), f.Dst.Addr(), f.DestQPN()}
	u := a.partial[k]
	if f.Op == bth.RCSendFirst || f.Op == bth.RCSendOnly {
		if !ours(f.Payload()) || len(a.partial) >= maxFlows {
			delete(a.partial, k)
			return nil
		}
		u = &Unit{Src: k.src, Dst: k.dst, QPN: k.qpn, PSN: f.PSN()}
	} else if u == nil || a.next[k] != f.PSN() { // the first packet is not captured, or packets are missing or repeated
		return nil
	}
	u.Bytes = append(u.Bytes, f.Payload()...)
	if f.Op == bth.RCSendFirst || f.Op == bth.RCSendMiddle {
		a.partial[k], a.next[k] = u, f.PSN().Add(1)
		if len(u.Bytes) > wire.MaxMessage {
			delete(a.partial, k)
		}
		return nil
	}
	delete(a.partial, k)
	delete(a.next, k)
	u.Message, u.Err = wire.Decode(u.Bytes)
	return u
}

// ours reports whether a payload begins as messages do: with the magic number in either order.
func ours(b []byte) bool {
	return bytes.HasPrefix(b, []byte{0x91, 0x1b, 0xe9, 0x0b}) || bytes.HasPrefix(b, []byte{0x0b, 0xe9, 0x1b, 0x91})
}

// private decodes private data. It returns nil if the data does not begin with the magic number of o2iblnd.
func private(f *frame.Packet, mad cm.Message) *Unit {
	u := &Unit{Src: f.Src.Addr(), Dst: f.Dst.Addr(), QPN: bth.QPNGSI}
	switch m := mad.(type) {
	case *cm.REQ:
		u.Bytes, u.Own = m.Private[requestHeader:], m.QPN
	case *cm.REP:
		u.Bytes, u.Own = m.Private[:], m.QPN
	case *cm.REJ:
		if !ours(m.Private[:]) {
			return nil
		}
		u.Bytes = m.Private[:rejectLen]
		u.Reject, u.Err = wire.DecodeReject(u.Bytes)
		return u
	}
	if !ours(u.Bytes) {
		return nil
	}
	if u.Message, u.Err = wire.Decode(u.Bytes); u.Message != nil {
		u.Bytes = u.Bytes[:u.Message.Len()]
	}
	return u
}

const (
	requestHeader = 36 // of the RDMA IP CM service, in front of the program's data
	rejectLen     = 24
)
