package cm

import (
	"fmt"

	"github.com/goroce/roce/bth"
)

// RTU says that the active side is ready to use the connection. IBTA 12.6.9.
type RTU struct {
	Header
	LocalID, RemoteID CommID
	Private           [RTUPrivateLen]byte
}

// Attribute implements [Message].
func (*RTU) Attribute() Attribute { return AttrRTU }

// Decode implements [Message].
func (m *RTU) Decode(mad []byte) error {
	if err := m.Header.decode(mad, AttrRTU); err != nil {
		return err
	}
	m.LocalID, m.RemoteID = ids(mad[headerLen:])
	copy(m.Private[:], mad[headerLen+8:])
	return nil
}

// Put implements [Message].
func (m *RTU) Put(mad *[MADLen]byte) {
	b := m.Header.put(mad, AttrRTU)
	putIDs(b, m.LocalID, m.RemoteID)
	copy(b[8:], m.Private[:])
}

// String implements [Message].
func (m *RTU) String() string {
	return fmt.Sprintf("RTU id %v->%v%s", m.LocalID, m.RemoteID, privateString(m.Private[:]))
}

// DREQ asks to end a connection. IBTA 12.6.10.
type DREQ struct {
	Header
	LocalID, RemoteID CommID
	RemoteQPN         bth.QPN // of the receiver of the DREQ, which checks it
	Private           [DREQPrivateLen]byte
}

// Attribute implements [Message].
func (*DREQ) Attribute() Attribute { return AttrDREQ }

// Decode implements [Message].
func (m *DREQ) Decode(mad []byte) error {
	if err := m.Header.decode(mad, AttrDREQ); err != nil {
		return err
	}
	b := mad[headerLen:]
	m.LocalID, m.RemoteID = ids(b)
	m.RemoteQPN = bth.QPN(be24(b[8:]))
	copy(m.Private[:], b[12:])
	return nil
}

// Put implements [Message].
func (m *DREQ) Put(mad *[MADLen]byte) {
	b := m.Header.put(mad, AttrDREQ)
	putIDs(b, m.LocalID, m.RemoteID)
	put24(b[8:], uint32(m.RemoteQPN))
	copy(b[12:], m.Private[:])
}

// String implements [Message].
func (m *DREQ) String() string {
	return fmt.Sprintf("DREQ id %v->%v qpn 0x%06x%s", m.LocalID, m.RemoteID, uint32(m.RemoteQPN),
		privateString(m.Private[:]))
}

// DREP answers a DREQ. IBTA 12.6.11.
type DREP struct {
	Header
	LocalID, RemoteID CommID
	Private           [DREPPrivateLen]byte
}

// Attribute implements [Message].
func (*DREP) Attribute() Attribute { return AttrDREP }

// Decode implements [Message].
func (m *DREP) Decode(mad []byte) error {
	if err := m.Header.decode(mad, AttrDREP); err != nil {
		return err
	}
	m.LocalID, m.RemoteID = ids(mad[headerLen:])
	copy(m.Private[:], mad[headerLen+8:])
	return nil
}

// Put implements [Message].
func (m *DREP) Put(mad *[MADLen]byte) {
	b := m.Header.put(mad, AttrDREP)
	putIDs(b, m.LocalID, m.RemoteID)
	copy(b[8:], m.Private[:])
}

// String implements [Message].
func (m *DREP) String() string {
	return fmt.Sprintf("DREP id %v->%v%s", m.LocalID, m.RemoteID, privateString(m.Private[:]))
}

// MRA says that a message has arrived and that its answer will take a while.
// IBTA 12.6.6.
type MRA struct {
	Header
	LocalID, RemoteID CommID
	Of                Subject
	ServiceTimeout    uint8 // CM timeout code: how long the answer may take
	Private           [MRAPrivateLen]byte
}

// Attribute implements [Message].
func (*MRA) Attribute() Attribute { return AttrMRA }

// Decode implements [Message].
func (m *MRA) Decode(mad []byte) error {
	if err := m.Header.decode(mad, AttrMRA); err != nil {
		return err
	}
	b := mad[headerLen:]
	m.LocalID, m.RemoteID = ids(b)
	m.Of = Subject(b[8] >> 6)
	m.ServiceTimeout = b[9] >> 3
	copy(m.Private[:], b[10:])
	return nil
}

// Put implements [Message].
func (m *MRA) Put(mad *[MADLen]byte) {
	b := m.Header.put(mad, AttrMRA)
	putIDs(b, m.LocalID, m.RemoteID)
	b[8] = byte(m.Of) << 6
	b[9] = m.ServiceTimeout << 3
	copy(b[10:], m.Private[:])
}

// String implements [Message].
func (m *MRA) String() string {
	return fmt.Sprintf("MRA id %v->%v of %v timeout %d%s", m.LocalID, m.RemoteID, m.Of, m.ServiceTimeout,
		privateString(m.Private[:]))
}

// REJ refuses a REQ or REP, or breaks a handshake off. IBTA 12.6.7.
type REJ struct {
	Header
	LocalID, RemoteID CommID // LocalID 0: the sender has no ID for this exchange
	Of                Subject
	Reason            RejectReason
	InfoLen           uint8 // of Info, 7 bits; may exceed InfoLen in a hostile MAD
	Info              [InfoLen]byte
	Private           [REJPrivateLen]byte
}

// Attribute implements [Message].
func (*REJ) Attribute() Attribute { return AttrREJ }

// Decode implements [Message].
func (m *REJ) Decode(mad []byte) error {
	if err := m.Header.decode(mad, AttrREJ); err != nil {
		return err
	}
	b := mad[headerLen:]
	m.LocalID, m.RemoteID = ids(b)
	m.Of = Subject(b[8] >> 6)
	m.InfoLen = b[9] >> 1
	m.Reason = RejectReason(be16(b[10:]))
	copy(m.Info[:], b[12:])
	copy(m.Private[:], b[84:])
	return nil
}

// Put implements [Message].
func (m *REJ) Put(mad *[MADLen]byte) {
	b := m.Header.put(mad, AttrREJ)
	putIDs(b, m.LocalID, m.RemoteID)
	b[8] = byte(m.Of) << 6
	b[9] = m.InfoLen << 1
	put16(b[10:], uint16(m.Reason))
	copy(b[12:], m.Info[:])
	copy(b[84:], m.Private[:])
}

// String implements [Message].
func (m *REJ) String() string {
	return fmt.Sprintf("REJ id %v->%v of %v reason %d (%v)%s%s", m.LocalID, m.RemoteID, m.Of,
		uint16(m.Reason), m.Reason, infoString(m.Info[:], m.InfoLen), privateString(m.Private[:]))
}

// LAP proposes to load an alternate path. IBTA 12.8.1. Linux ignores it on RoCE.
type LAP struct {
	Header
	LocalID, RemoteID     CommID
	RemoteQPN             bth.QPN
	RemoteResponseTimeout uint8
	Alternate             Path
	Private               [LAPPrivateLen]byte
}

// Attribute implements [Message].
func (*LAP) Attribute() Attribute { return AttrLAP }

// Decode implements [Message].
func (m *LAP) Decode(mad []byte) error {
	if err := m.Header.decode(mad, AttrLAP); err != nil {
		return err
	}
	b := mad[headerLen:]
	m.LocalID, m.RemoteID = ids(b)
	m.RemoteQPN = bth.QPN(be24(b[12:]))
	m.RemoteResponseTimeout = b[15] >> 3
	p := &m.Alternate
	p.decodeLIDs(b[20:])
	p.FlowLabel = be32(b[56:]) >> 12
	p.TrafficClass, p.HopLimit, p.Rate = b[59], b[60], b[61]&0x3F
	p.SL, p.SubnetLocal = b[62]>>4, b[62]&0x08 != 0
	p.AckTimeout = b[63] >> 3
	copy(m.Private[:], b[64:])
	return nil
}

// Put implements [Message].
func (m *LAP) Put(mad *[MADLen]byte) {
	b := m.Header.put(mad, AttrLAP)
	putIDs(b, m.LocalID, m.RemoteID)
	put24(b[12:], uint32(m.RemoteQPN))
	b[15] = m.RemoteResponseTimeout << 3
	p := &m.Alternate
	p.putLIDs(b[20:])
	put32(b[56:], p.FlowLabel<<12|uint32(p.TrafficClass))
	b[60], b[61] = p.HopLimit, p.Rate&0x3F
	b[62] = p.SL<<4 | flag(p.SubnetLocal, 0x08)
	b[63] = p.AckTimeout << 3
	copy(b[64:], m.Private[:])
}

// String implements [Message].
func (m *LAP) String() string {
	return fmt.Sprintf("LAP id %v->%v qpn 0x%06x %v%s", m.LocalID, m.RemoteID, uint32(m.RemoteQPN),
		&m.Alternate, privateString(m.Private[:]))
}

// APR answers a LAP. IBTA 12.8.2.
type APR struct {
	Header
	LocalID, RemoteID CommID
	InfoLen           uint8
	Status            APStatus
	Info              [InfoLen]byte
	Private           [APRPrivateLen]byte
}

// Attribute implements [Message].
func (*APR) Attribute() Attribute { return AttrAPR }

// Decode implements [Message].
func (m *APR) Decode(mad []byte) error {
	if err := m.Header.decode(mad, AttrAPR); err != nil {
		return err
	}
	b := mad[headerLen:]
	m.LocalID, m.RemoteID = ids(b)
	m.InfoLen, m.Status = b[8], APStatus(b[9])
	copy(m.Info[:], b[12:])
	copy(m.Private[:], b[84:])
	return nil
}

// Put implements [Message].
func (m *APR) Put(mad *[MADLen]byte) {
	b := m.Header.put(mad, AttrAPR)
	putIDs(b, m.LocalID, m.RemoteID)
	b[8], b[9] = m.InfoLen, byte(m.Status)
	copy(b[12:], m.Info[:])
	copy(b[84:], m.Private[:])
}

// String implements [Message].
func (m *APR) String() string {
	return fmt.Sprintf("APR id %v->%v status %d (%v)%s%s", m.LocalID, m.RemoteID, uint8(m.Status), m.Status,
		infoString(m.Info[:], m.InfoLen), privateString(m.Private[:]))
}

// ids reads the two IDs that begin every message of an existing exchange: those
// of its sender and of its receiver.
func ids(b []byte) (local, remote CommID) { return CommID(be32(b)), CommID(be32(b[4:])) }

func putIDs(b []byte, local, remote CommID) {
	put32(b, uint32(local))
	put32(b[4:], uint32(remote))
}

// infoString prints additional information; n comes from the wire.
func infoString(b []byte, n uint8) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" info %x", b[:min(int(n), len(b))])
}
