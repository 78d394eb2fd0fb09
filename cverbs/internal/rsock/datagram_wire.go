package rsock

import (
	"encoding/binary"
	"net/netip"

	"github.com/goroce/roce"
)

// The wire of librdmacm's datagram rsockets. A datagram to a peer whose queue pair is unknown travels in a UDP
// datagram behind a UDP header. The peer delivers its data and answers with a UDP header of opControl. Each UDP
// header has the number of the sender's queue pair. Later datagrams are messages between the queue pairs, behind a
// source header, because a queue pair's packet has no port of the rsocket. Numbers are big-endian.
//
//	UDP header:    tag (4), IP version (1), operation (1), length of this header (1), 0 (1), QPN (4), IP address
//	source header: IP version (1), length of this header (1), port (2), for IPv6 the flow information (4), IP address
const (
	udpTag                       = 0x55555555
	udpHeader4, udpHeader6       = 16, 28
	sourceHeader4, sourceHeader6 = 8, 24

	// maxMessage is the size of a receive buffer of librdmacm, which holds the header, too.
	maxMessage = 2048
)

// udpOp is the operation of a UDP header.
type udpOp uint8

const (
	opData    udpOp = 0 // data follows, and the sender wants an answer
	opControl udpOp = 7 // the answer
)

// udpMessage is what a UDP datagram of a peer says.
type udpMessage struct {
	op   udpOp
	qpn  roce.QPN
	data []byte
}

// lengths returns the IP version of an address as a header has it, and the lengths of both headers.
func lengths(a netip.Addr) (version byte, udp, source int) {
	if a.Is4() {
		return 4, udpHeader4, sourceHeader4
	}
	return 6, udpHeader6, sourceHeader6
}

// maxData returns the longest data of a datagram from an address. The larger of the two headers decides, so the
// limit does not depend on what is known of the peer.
func maxData(local netip.Addr) int {
	_, udp, _ := lengths(local)
	return maxMessage - udp
}

// appendUDPHeader appends the UDP header of a queue pair at an address.
func appendUDPHeader(b []byte, op udpOp, qpn roce.QPN, local netip.Addr) []byte {
	version, length, _ := lengths(local)
	b = binary.BigEndian.AppendUint32(b, udpTag)
	b = append(b, version, byte(op), byte(length), 0)
	b = binary.BigEndian.AppendUint32(b, uint32(qpn))
	return append(b, local.AsSlice()...)
}

// parseUDP parses a UDP datagram. It ignores the address in the header, as librdmacm does: the peer's address is
// that of the IP header. It returns false for a datagram that no rsocket has sent.
func parseUDP(b []byte) (m udpMessage, ok bool) {
	if len(b) < udpHeader4 || len(b) > maxMessage || binary.BigEndian.Uint32(b) != udpTag {
		return m, false
	}
	m = udpMessage{op: udpOp(b[5]), qpn: roce.QPN(binary.BigEndian.Uint32(b[8:]) & 0xFFFFFF)}
	switch length := int(b[6]); {
	case b[4] == 4 && length == udpHeader4, b[4] == 6 && length == udpHeader6 && len(b) >= length:
		m.data = b[length:]
	default:
		return m, false
	}
	return m, m.op == opData || m.op == opControl
}

// appendSource appends the source header of an address and port.
func appendSource(b []byte, source netip.AddrPort) []byte {
	version, _, length := lengths(source.Addr())
	b = append(b, version, byte(length))
	b = binary.BigEndian.AppendUint16(b, source.Port())
	if version == 6 {
		b = append(b, 0, 0, 0, 0) // the flow information
	}
	return append(b, source.Addr().AsSlice()...)
}

// sender returns the source address of the IP header in front of a received message.
func sender(area []byte, v4 bool) netip.Addr {
	if v4 {
		return netip.AddrFrom4([4]byte(area[roce.GRHLen-8:]))
	}
	return netip.AddrFrom16([16]byte(area[8:])).Unmap()
}

// parseSource parses the source header of a message and returns its length. It returns false for a message that no
// rsocket has sent. Any host can write any source there: the caller compares it with the IP header.
func parseSource(b []byte) (source netip.AddrPort, length int, ok bool) {
	var addr netip.Addr
	switch {
	case len(b) >= sourceHeader4 && b[0] == 4 && b[1] == sourceHeader4:
		addr, length = netip.AddrFrom4([4]byte(b[4:])), sourceHeader4
	case len(b) >= sourceHeader6 && b[0] == 6 && b[1] == sourceHeader6:
		addr, length = netip.AddrFrom16([16]byte(b[8:])), sourceHeader6
	default:
		return source, 0, false
	}
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(b[2:])), length, true
}
