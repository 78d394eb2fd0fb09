package cm

import (
	"fmt"
	"strings"

	"github.com/goroce/roce/bth"
)

// PermissiveLID stands for "no LID, the path is routed" in a [Path]. Linux sends
// it whenever the hop limit is above 1, which on RoCEv2 is always.
const PermissiveLID uint16 = 0xFFFF

// Path is one path as REQ and LAP describe it, seen from the sender: local is
// the sender of the message.
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

// pathLen is the length of a path in REQ; the first 40 bytes are the same in LAP
// but for what precedes the traffic class.
const pathLen = 44

func (p *Path) decodeLIDs(b []byte) {
	p.LocalLID, p.RemoteLID = be16(b), be16(b[2:])
	copy(p.LocalGID[:], b[4:])
	copy(p.RemoteGID[:], b[20:])
}

func (p *Path) putLIDs(b []byte) {
	put16(b, p.LocalLID)
	put16(b[2:], p.RemoteLID)
	copy(b[4:], p.LocalGID[:])
	copy(b[20:], p.RemoteGID[:])
}

func (p *Path) decode(b []byte) {
	p.decodeLIDs(b)
	w := be32(b[36:])
	p.FlowLabel, p.Rate = w>>12, uint8(w)&0x3F
	p.TrafficClass, p.HopLimit = b[40], b[41]
	p.SL, p.SubnetLocal = b[42]>>4, b[42]&0x08 != 0
	p.AckTimeout = b[43] >> 3
}

func (p *Path) put(b []byte) {
	p.putLIDs(b)
	put32(b[36:], p.FlowLabel<<12|uint32(p.Rate&0x3F))
	b[40], b[41] = p.TrafficClass, p.HopLimit
	b[42] = p.SL<<4 | flag(p.SubnetLocal, 0x08)
	b[43] = p.AckTimeout << 3
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
	ResponderResources uint8 // incoming RDMA READs and atomics the sender can serve
	InitiatorDepth     uint8 // outgoing ones it wants to have outstanding
	// StartingPSN is the PSN with which the receiver of this message must start
	// to send: the sender's rq_psn.
	StartingPSN bth.PSN

	RemoteResponseTimeout uint8 // CM timeout code: within what the receiver should answer
	LocalResponseTimeout  uint8 // within what the sender will answer
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
func (m *REQ) Decode(mad []byte) error {
	if err := m.Header.decode(mad, AttrREQ); err != nil {
		return err
	}
	b := mad[headerLen:]
	m.LocalID = CommID(be32(b))
	m.VendorID = be24(b[5:])
	m.ServiceID = ServiceID(be64(b[8:]))
	m.LocalGUID = GUID(be64(b[16:]))
	m.QKey = bth.QKey(be32(b[28:]))
	m.QPN = bth.QPN(be24(b[32:]))
	m.ResponderResources = b[35]
	m.LocalEECN = be24(b[36:])
	m.InitiatorDepth = b[39]
	m.RemoteEECN = be24(b[40:])
	m.RemoteResponseTimeout = b[43] >> 3
	m.Transport = Transport(b[43] >> 1 & 3)
	m.FlowControl = b[43]&1 != 0
	m.StartingPSN = bth.PSN(be24(b[44:]))
	m.LocalResponseTimeout = b[47] >> 3
	m.RetryCount = b[47] & 7
	m.PKey = bth.PKey(be16(b[48:]))
	m.MTU = bth.MTU(b[50] >> 4)
	m.RDC = b[50]&8 != 0
	m.RNRRetryCount = b[50] & 7
	m.MaxCMRetries = b[51] >> 4
	m.SRQ = b[51]&8 != 0
	m.ExtTransport = b[51] & 7
	m.Primary.decode(b[52:])
	m.Alternate.decode(b[52+pathLen:])
	m.SAP = b[139]&4 != 0
	copy(m.Private[:], b[140:])
	return nil
}

// Put implements [Message].
func (m *REQ) Put(mad *[MADLen]byte) {
	b := m.Header.put(mad, AttrREQ)
	put32(b, uint32(m.LocalID))
	put24(b[5:], m.VendorID)
	put64(b[8:], uint64(m.ServiceID))
	put64(b[16:], uint64(m.LocalGUID))
	put32(b[28:], uint32(m.QKey))
	put24(b[32:], uint32(m.QPN))
	b[35] = m.ResponderResources
	put24(b[36:], m.LocalEECN)
	b[39] = m.InitiatorDepth
	put24(b[40:], m.RemoteEECN)
	b[43] = m.RemoteResponseTimeout<<3 | byte(m.Transport&3)<<1 | flag(m.FlowControl, 1)
	put24(b[44:], uint32(m.StartingPSN))
	b[47] = m.LocalResponseTimeout<<3 | m.RetryCount&7
	put16(b[48:], uint16(m.PKey))
	b[50] = byte(m.MTU)<<4 | flag(m.RDC, 8) | m.RNRRetryCount&7
	b[51] = m.MaxCMRetries<<4 | flag(m.SRQ, 8) | m.ExtTransport&7
	m.Primary.put(b[52:])
	m.Alternate.put(b[52+pathLen:])
	b[139] |= flag(m.SAP, 4)
	copy(b[140:], m.Private[:])
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
	private := m.Private[:]
	if m.ServiceID.IsIP() {
		var h IPHeader
		if h.Decode(private) == nil {
			fmt.Fprintf(&s, " %v", h)
			private = private[IPHeaderLen:]
		}
	}
	return s.String() + privateString(private)
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
func (m *REP) Decode(mad []byte) error {
	if err := m.Header.decode(mad, AttrREP); err != nil {
		return err
	}
	b := mad[headerLen:]
	m.LocalID, m.RemoteID = CommID(be32(b)), CommID(be32(b[4:]))
	m.QKey = bth.QKey(be32(b[8:]))
	m.QPN = bth.QPN(be24(b[12:]))
	m.LocalEECN = be24(b[16:])
	m.VendorID = uint32(b[15])<<16 | uint32(b[19])<<8 | uint32(b[23])
	m.StartingPSN = bth.PSN(be24(b[20:]))
	m.ResponderResources, m.InitiatorDepth = b[24], b[25]
	m.TargetAckDelay = b[26] >> 3
	m.Failover = Failover(b[26] >> 1 & 3)
	m.FlowControl = b[26]&1 != 0
	m.RNRRetryCount = b[27] >> 5
	m.SRQ = b[27]&0x10 != 0
	m.LocalGUID = GUID(be64(b[28:]))
	copy(m.Private[:], b[36:])
	return nil
}

// Put implements [Message].
func (m *REP) Put(mad *[MADLen]byte) {
	b := m.Header.put(mad, AttrREP)
	put32(b, uint32(m.LocalID))
	put32(b[4:], uint32(m.RemoteID))
	put32(b[8:], uint32(m.QKey))
	put24(b[12:], uint32(m.QPN))
	put24(b[16:], m.LocalEECN)
	put24(b[20:], uint32(m.StartingPSN))
	b[15], b[19], b[23] = byte(m.VendorID>>16), byte(m.VendorID>>8), byte(m.VendorID)
	b[24], b[25] = m.ResponderResources, m.InitiatorDepth
	b[26] = m.TargetAckDelay<<3 | byte(m.Failover)&3<<1 | flag(m.FlowControl, 1)
	b[27] = m.RNRRetryCount<<5 | flag(m.SRQ, 0x10)
	put64(b[28:], uint64(m.LocalGUID))
	copy(b[36:], m.Private[:])
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

// privateString prints private data up to its last non-zero byte, at most 16
// bytes of it: the areas have no length of their own.
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
