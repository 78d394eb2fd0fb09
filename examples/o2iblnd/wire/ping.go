package wire

import "encoding/binary"

// The portal and the match bits of a ping, which is a GET.
const (
	PingPortal           = 0
	PingMatchBits uint64 = 1 << 63
)

// Features are the features that a node announces in the answer to a ping.
type Features uint32

// The features. A node with MultiRail and Discovery expects its peers to tell it about changes.
const (
	FeatBase           Features = 1 << iota
	FeatNIStatus                // interfaces come with a status
	FeatRoutingOff              // it does not route
	FeatMultiRail               // several interfaces are one node
	FeatDiscovery               // peers may push what they know
	FeatLargeAddresses          // NIDs of more than 64 bits follow
)

// Statuses of an interface.
const (
	StatusUp   uint32 = 0x15aac0de
	StatusDown uint32 = 0xdeadface
)

const (
	pingMagic   = 0x70696e67
	pingHeader  = 16
	pingNI      = 16
	maxPingNIDs = 1 << 12
)

// Interface is an interface of a node in a ping.
type Interface struct {
	NID    NID
	Status uint32 // of the loopback interface: a number that counts changes
}

// PingInfo is the answer to a ping.
type PingInfo struct {
	Order      Order
	Features   Features
	PID        uint32
	Interfaces []Interface // the first is the loopback interface, the second the primary NID
}

// Append appends the encoded answer to b.
func (p *PingInfo) Append(b []byte) []byte {
	o := p.Order.ByteOrder()
	for _, v := range [...]uint32{pingMagic, uint32(p.Features), p.PID, uint32(len(p.Interfaces))} {
		b = o.AppendUint32(b, v)
	}
	for _, i := range p.Interfaces {
		b = o.AppendUint64(b, uint64(i.NID))
		b = o.AppendUint32(b, i.Status)
		b = o.AppendUint32(b, 0)
	}
	return b
}

// DecodePing decodes an answer. If the requester's memory was too small for the whole answer, the result has only the
// complete interfaces.
func DecodePing(b []byte) (*PingInfo, error) {
	const object = "ping"
	if len(b) < pingHeader {
		return nil, fail(object, TooShort, uint64(len(b)), pingHeader)
	}
	order, ok := OrderOf(b, pingMagic)
	if !ok {
		return nil, fail(object, BadMagic, uint64(binary.LittleEndian.Uint32(b)), pingMagic)
	}
	o := order.ByteOrder()
	p := &PingInfo{Order: order, Features: Features(o.Uint32(b[4:])), PID: o.Uint32(b[8:])}
	n := o.Uint32(b[12:])
	if n > maxPingNIDs {
		return nil, fail(object, BadLength, uint64(n), maxPingNIDs)
	}
	for b = b[pingHeader:]; n > 0 && len(b) >= pingNI; n, b = n-1, b[pingNI:] {
		p.Interfaces = append(p.Interfaces, Interface{NID: NID(o.Uint64(b)), Status: o.Uint32(b[8:])})
	}
	return p, nil
}
