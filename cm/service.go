package cm

import "fmt"

// PortSpace is the port space of a [ServiceID] of the RDMA IP CM service: enum
// rdma_port_space.
type PortSpace uint16

// The port spaces of rdma_cm.
const (
	PortSpaceIPoIB PortSpace = 0x0002
	PortSpaceTCP   PortSpace = 0x0106 // RC connections: RDMA_PS_TCP
	PortSpaceUDP   PortSpace = 0x0111 // UD by SIDR: RDMA_PS_UDP
	PortSpaceIB    PortSpace = 0x013F // any QP type: RDMA_PS_IB
)

// String names the port space as rdma_cma.h does.
func (p PortSpace) String() string {
	switch p {
	case PortSpaceIPoIB:
		return "ipoib"
	case PortSpaceTCP:
		return "tcp"
	case PortSpaceUDP:
		return "udp"
	case PortSpaceIB:
		return "ib"
	}
	return fmt.Sprintf("port space 0x%04x", uint16(p))
}

// ServiceID identifies a service of a node: in rdma_cm it is a port space and
// a port. IBTA A11.3.
type ServiceID uint64

// Service returns the service ID of a port.
func Service(ps PortSpace, port uint16) ServiceID {
	return ServiceID(ps)<<16 | ServiceID(port)
}

// IsIP reports whether id is in a port space of rdma_cm, for which the private
// data of REQ and SIDR_REQ begins with an [IPHeader].
func (id ServiceID) IsIP() bool {
	switch id.PortSpace() {
	case PortSpaceTCP, PortSpaceUDP, PortSpaceIPoIB, PortSpaceIB:
		return id>>32 == 0
	}
	return false
}

// PortSpace returns the port space of an ID of rdma_cm.
func (id ServiceID) PortSpace() PortSpace { return PortSpace(id >> 16) }

// Port returns the port of an ID of rdma_cm.
func (id ServiceID) Port() uint16 { return uint16(id) }

// String prints "tcp:7174", or 16 hex digits for an ID outside of rdma_cm.
func (id ServiceID) String() string {
	if id.IsIP() {
		return fmt.Sprintf("%v:%d", id.PortSpace(), id.Port())
	}
	return fmt.Sprintf("0x%016x", uint64(id))
}
