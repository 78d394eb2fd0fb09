package cm

import (
	"fmt"
	"strings"

	"github.com/goroce/roce/bth"
)

// PermissiveLID in a [Path] means that the path is routed and has no LID. Linux
// sends it if the hop limit is above 1, which on RoCEv2 is always the case.
const PermissiveLID uint16 = 0xFFFF

// Path is a path in a REQ or LAP, seen from the sender of the message: Local
// is the sender's side.
type Path struct {
	LocalLID, RemoteLID uint16
	LocalGID, RemoteGID bth.GID
	FlowLabel           uint32 // 20 bits
	Rate                uint8  // 6 bits, 0: the port's current rate
	TrafficClass        uint8
	HopLimit            uint8
	SL                  uint8 // 4 bits
	SubnetLocal         bool
	AckTimeout          uint8 // 5 bits, 4.096 µs·2^n, see [AckTimeout]
}

// pathLen is the length of a path in REQ and LAP.
const pathLen = 44

// fields visits a path that begins at byte at. A LAP has the traffic class and the rate
// at other places than a REQ.
func (p *Path) fields(f fields, at int, lap bool) {
	class, hops, rate := at+40, at+41, at+39
	if lap {
		class, hops, rate = at+39, at+40, at+41
	}
	num(f, at, 2, &p.LocalLID)
	num(f, at+2, 2, &p.RemoteLID)
	f.bytes(at+4, p.LocalGID[:])
	f.bytes(at+20, p.RemoteGID[:])
	f.flowLabel(at+36, &p.FlowLabel)
	num(f, class, 1, &p.TrafficClass)
	num(f, hops, 1, &p.HopLimit)
	bits(f, rate, 0, 6, &p.Rate)
	bits(f, at+42, 4, 4, &p.SL)
	f.flag(at+42, 3, &p.SubnetLocal)
	bits(f, at+43, 3, 5, &p.AckTimeout)
}

// String prints the path without the fields that RoCE does not use.
func (p *Path) String() string {
	return fmt.Sprintf("%v->%v fl 0x%05x tc 0x%02x hop %d ackto %d",
		p.LocalGID, p.RemoteGID, p.FlowLabel, p.TrafficClass, p.HopLimit, p.AckTimeout)
}

// REQ asks for a connection: active to passive side. IBTA 12.6.5.
//
//	 0 local comm ID     4 -, vendor ID      8 service ID
//	16 local CA GUID    28 local Q_Key      32 local QPN, responder resources
//	36 local EECN, initiator depth          40 remote EECN, remote CM timeout/transport/flow control
//	44 starting PSN, local CM timeout/retries
//	48 P_Key, MTU/RDC/RNR, max CM retries/SRQ/ext. transport
//	52 primary path     96 alternate path  140 private data
type REQ struct {
	Header
	LocalID   CommID
	VendorID  uint32 // 24 bits; Linux: part of the enhanced connection establishment
	ServiceID ServiceID
	LocalGUID GUID

	QKey               bth.QKey
	QPN                bth.QPN
	LocalEECN          uint32
	RemoteEECN         uint32
	ResponderResources uint8 // incoming RDMA READs and atomics that the sender can serve
	InitiatorDepth     uint8 // outgoing READs and atomics that the sender wants to have outstanding
	// StartingPSN is the PSN with which the receiver of this message must start
	// to send: the sender's rq_psn.
	StartingPSN bth.PSN

	RemoteResponseTimeout uint8 // CM timeout code: time limit for the receiver's answers
	LocalResponseTimeout  uint8 // time limit for the sender's answers
	MaxCMRetries          uint8 // 4 bits, also for the receiver's retries
	Transport             Transport
	ExtTransport          uint8
	FlowControl           bool
	RetryCount            uint8 // 3 bits
	RNRRetryCount         uint8 // 3 bits
	SRQ                   bool
	RDC                   bool

	PKey      bth.PKey
	MTU       bth.MTU
	Primary   Path
	Alternate Path // all zero: none
	SAP       bool // alternate path: static alternate path supported

	Private [REQPrivateLen]byte
}

// Attribute implements [Message].
func (*REQ) Attribute() Attribute { return AttrREQ }

// Decode implements [Message].
func (m *REQ) Decode(mad []byte) error { return m.Header.decode(mad, AttrREQ, m.fields) }

// Put implements [Message].
func (m *REQ) Put(mad *[MADLen]byte) { m.Header.put(mad, AttrREQ, m.fields) }

func (m *REQ) fields(f fields) {
	num(f, 0, 4, &m.LocalID)
	num(f, 5, 3, &m.VendorID)
	num(f, 8, 8, &m.ServiceID)
	num(f, 16, 8, &m.LocalGUID)
	num(f, 28, 4, &m.QKey)
	num(f, 32, 3, &m.QPN)
	num(f, 35, 1, &m.ResponderResources)
	num(f, 36, 3, &m.LocalEECN)
	num(f, 39, 1, &m.InitiatorDepth)
	num(f, 40, 3, &m.RemoteEECN)
	bits(f, 43, 3, 5, &m.RemoteResponseTimeout)
	bits(f, 43, 1, 2, &m.Transport)
	f.flag(43, 0, &m.FlowControl)
	num(f, 44, 3, &m.StartingPSN)
	bits(f, 47, 3, 5, &m.LocalResponseTimeout)
	bits(f, 47, 0, 3, &m.RetryCount)
	num(f, 48, 2, &m.PKey)
	bits(f, 50, 4, 4, &m.MTU)
	f.flag(50, 3, &m.RDC)
	bits(f, 50, 0, 3, &m.RNRRetryCount)
	bits(f, 51, 4, 4, &m.MaxCMRetries)
	f.flag(51, 3, &m.SRQ)
	bits(f, 51, 0, 3, &m.ExtTransport)
	m.Primary.fields(f, 52, false)
	m.Alternate.fields(f, 52+pathLen, false)
	f.flag(139, 2, &m.SAP)
	f.bytes(140, m.Private[:])
}

// String implements [Message].
func (m *REQ) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "REQ id %v svc %v guid %v qpn 0x%06x psn 0x%06x %v mtu %v res %d/%d retry %d rnr %d",
		m.LocalID, m.ServiceID, m.LocalGUID, uint32(m.QPN), uint32(m.StartingPSN), m.Transport, m.MTU,
		m.ResponderResources, m.InitiatorDepth, m.RetryCount, m.RNRRetryCount)
	fmt.Fprintf(&s, " timeout %d/%d cmretry %d pkey 0x%04x%s%s %v",
		m.RemoteResponseTimeout, m.LocalResponseTimeout, m.MaxCMRetries, uint16(m.PKey),
		word(m.FlowControl, " fc"), word(m.SRQ, " srq"), &m.Primary)
	if m.Alternate != (Path{}) {
		fmt.Fprintf(&s, " alt %v", &m.Alternate)
	}
	return s.String() + requestPrivate(m.ServiceID, m.Private[:])
}

// REP accepts a connection: passive to active side. IBTA 12.6.8.
//
//	 0 local comm ID   4 remote comm ID   8 local Q_Key
//	12 local QPN, vendor H               16 local EECN, vendor M
//	20 starting PSN, vendor L            24 responder resources, initiator depth,
//	26 ack delay/failover/flow control, RNR/SRQ
//	28 local CA GUID  36 private data
type REP struct {
	Header
	LocalID, RemoteID  CommID
	QKey               bth.QKey
	QPN                bth.QPN
	LocalEECN          uint32
	VendorID           uint32   // 24 bits
	StartingPSN        bth.PSN  // the PSN with which the receiver of the REP starts to send
	ResponderResources uint8    // of the passive side
	InitiatorDepth     uint8    // of the passive side
	TargetAckDelay     uint8    // 5 bits, CM timeout code
	Failover           Failover // 2 bits
	FlowControl        bool
	RNRRetryCount      uint8 // 3 bits
	SRQ                bool
	LocalGUID          GUID
	Private            [REPPrivateLen]byte
}

// Attribute implements [Message].
func (*REP) Attribute() Attribute { return AttrREP }

// Decode implements [Message].
func (m *REP) Decode(mad []byte) error { return m.Header.decode(mad, AttrREP, m.fields) }

// Put implements [Message].
func (m *REP) Put(mad *[MADLen]byte) { m.Header.put(mad, AttrREP, m.fields) }

func (m *REP) fields(f fields) {
	f.ids(&m.LocalID, &m.RemoteID)
	num(f, 8, 4, &m.QKey)
	num(f, 12, 3, &m.QPN)
	f.scattered(&m.VendorID, 15, 19, 23)
	num(f, 16, 3, &m.LocalEECN)
	num(f, 20, 3, &m.StartingPSN)
	num(f, 24, 1, &m.ResponderResources)
	num(f, 25, 1, &m.InitiatorDepth)
	bits(f, 26, 3, 5, &m.TargetAckDelay)
	bits(f, 26, 1, 2, &m.Failover)
	f.flag(26, 0, &m.FlowControl)
	bits(f, 27, 5, 3, &m.RNRRetryCount)
	f.flag(27, 4, &m.SRQ)
	num(f, 28, 8, &m.LocalGUID)
	f.bytes(36, m.Private[:])
}

// String implements [Message].
func (m *REP) String() string {
	failover := ""
	if m.Failover != FailoverAccepted {
		failover = fmt.Sprintf(" failover %v", m.Failover)
	}
	return fmt.Sprintf("REP id %v->%v guid %v qpn 0x%06x psn 0x%06x res %d/%d rnr %d ackdelay %d%s%s%s%s",
		m.LocalID, m.RemoteID, m.LocalGUID, uint32(m.QPN), uint32(m.StartingPSN),
		m.ResponderResources, m.InitiatorDepth, m.RNRRetryCount, m.TargetAckDelay,
		word(m.FlowControl, " fc"), word(m.SRQ, " srq"), failover, privateString(m.Private[:]))
}

func word(on bool, s string) string {
	if on {
		return s
	}
	return ""
}

// requestPrivate prints the private data of REQ and SIDR_REQ, which may begin with an
// RDMA-IP header.
func requestPrivate(id ServiceID, b []byte) string {
	var h IPHeader
	if id.IsIP() && h.Decode(b) == nil {
		return " " + h.String() + privateString(b[IPHeaderLen:])
	}
	return privateString(b)
}

// privateString prints private data up to its last non-zero byte, at most 16
// bytes, because the fields have no length.
func privateString(b []byte) string {
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	switch {
	case n == 0:
		return ""
	case n > 16:
		return fmt.Sprintf(" private %x… (%d bytes)", b[:16], n)
	}
	return fmt.Sprintf(" private %x", b[:n])
}
