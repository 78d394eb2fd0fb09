package cm

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/goroce/roce/bth"
)

// IPHeaderLen is the length of an [IPHeader] in the private data of REQ and
// SIDR_REQ.
const IPHeaderLen = 36

// User private data left behind an [IPHeader].
const (
	REQUserLen     = REQPrivateLen - IPHeaderLen     // 56
	SIDRREQUserLen = SIDRREQPrivateLen - IPHeaderLen // 180
)

// ErrIPHeader is wrapped by the errors of [IPHeader.Decode].
var ErrIPHeader = errors.New("cm: not an RDMA-IP header")

// IPHeader begins the private data of a REQ or SIDR_REQ that rdma_cm sends: the
// addresses of the two ends. IBTA A11.4, struct cma_hdr.
//
//	0 version 0   1 IP version [7:4]   2 source port   4 source IP   20 destination IP
//
// An IPv4 address is the last 4 of its 16 bytes behind 12 zero bytes. The
// destination port is the one in the service ID.
type IPHeader struct {
	SrcPort  uint16
	Src, Dst netip.Addr // both IPv4 or both IPv6, unmapped and without zone
}

// Decode fills h from private data. It fails for any version but 0 and any IP
// version but 4 and 6: such data has no header (a connection of AF_IB).
func (h *IPHeader) Decode(b []byte) error {
	if len(b) < IPHeaderLen {
		return fmt.Errorf("%w: %d bytes, need %d", ErrIPHeader, len(b), IPHeaderLen)
	}
	if b[0] != 0 {
		return fmt.Errorf("%w: version %d, need 0", ErrIPHeader, b[0])
	}
	h.SrcPort = be16(b[2:])
	switch b[1] >> 4 {
	case 4:
		h.Src = netip.AddrFrom4([4]byte(b[16:20]))
		h.Dst = netip.AddrFrom4([4]byte(b[32:36]))
	case 6:
		h.Src = netip.AddrFrom16([16]byte(b[4:20]))
		h.Dst = netip.AddrFrom16([16]byte(b[20:36]))
	default:
		return fmt.Errorf("%w: IP version %d, need 4 or 6", ErrIPHeader, b[1]>>4)
	}
	return nil
}

// Put writes the header at b[0:36]. Both addresses must be valid and of one
// family.
func (h *IPHeader) Put(b []byte) error {
	src, dst := h.Src, h.Dst
	if !src.IsValid() || !dst.IsValid() || src.Is4() != dst.Is4() {
		return fmt.Errorf("%w: addresses %v and %v are not of one family", ErrIPHeader, h.Src, h.Dst)
	}
	clear(b[:IPHeaderLen])
	put16(b[2:], h.SrcPort)
	if src.Is4() {
		b[1] = 4 << 4
		s, d := src.As4(), dst.As4()
		copy(b[16:], s[:])
		copy(b[32:], d[:])
		return nil
	}
	b[1] = 6 << 4
	s, d := src.As16(), dst.As16()
	copy(b[4:], s[:])
	copy(b[20:], d[:])
	return nil
}

// belongs reports whether the MAD came from Src and went to Dst. Programs use the two addresses
// as those of the connection, and a listener that is bound to an address compares it with Dst.
// Linux instead checks its routing table for this route (validate_ipv4_net_dev). Peers on
// RoCEv2 always send from the address in the header.
func (h *IPHeader) belongs(from, to bth.GID) bool {
	return h.Src == from.Addr() && h.Dst == to.Addr()
}

// String prints "ip 10.77.0.2:52078->10.77.0.1".
func (h IPHeader) String() string {
	return fmt.Sprintf("ip %v->%v", netip.AddrPortFrom(h.Src, h.SrcPort), h.Dst)
}

// ends has the service ID and the RDMA-IP header of a connection or inquiry: the ports and
// addresses of both ends.
type ends struct {
	service ServiceID
	ip      IPHeader // zero: the request had none
	active  bool     // this side sent the request
}

// ServiceID returns the service of the request.
func (e *ends) ServiceID() ServiceID { return e.service }

// LocalAddr returns the IP address and port of this end in the RDMA-IP header:
// rdma_get_local_addr. It is invalid if there was no header.
func (e *ends) LocalAddr() netip.AddrPort { return e.addr(e.active) }

// RemoteAddr returns the IP address and port of the other end: rdma_get_peer_addr. It is
// invalid if there was no header.
func (e *ends) RemoteAddr() netip.AddrPort { return e.addr(!e.active) }

// addr returns the source address of the request if source is set, otherwise
// its destination.
func (e *ends) addr(source bool) netip.AddrPort {
	switch {
	case !e.ip.Dst.IsValid():
		return netip.AddrPort{}
	case source:
		return netip.AddrPortFrom(e.ip.Src, e.ip.SrcPort)
	}
	return netip.AddrPortFrom(e.ip.Dst, e.service.Port())
}
