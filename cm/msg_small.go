package cm

import (
	"fmt"

	"github.com/goroce/roce/bth"
)

// RTU reports that the active side is ready to use the connection. IBTA
// 12.6.9.
type RTU struct {
	Header
	LocalID, RemoteID CommID
	Private           [RTUPrivateLen]byte
}

// Attribute implements [Message].
func (*RTU) Attribute() Attribute { return AttrRTU }

// Decode implements [Message].
func (m *RTU) Decode(mad []byte) error { return m.Header.decode(mad, AttrRTU, m.fields) }

// Put implements [Message].
func (m *RTU) Put(mad *[MADLen]byte) { m.Header.put(mad, AttrRTU, m.fields) }

func (m *RTU) fields(f fields) {
	f.ids(&m.LocalID, &m.RemoteID)
	f.bytes(8, m.Private[:])
}

// String implements [Message].
func (m *RTU) String() string {
	return fmt.Sprintf("RTU id %v->%v%s", m.LocalID, m.RemoteID, privateString(m.Private[:]))
}

// DREQ requests the end of a connection. IBTA 12.6.10.
type DREQ struct {
	Header
	LocalID, RemoteID CommID
	RemoteQPN         bth.QPN // of the receiver of the DREQ, which checks it
	Private           [DREQPrivateLen]byte
}

// Attribute implements [Message].
func (*DREQ) Attribute() Attribute { return AttrDREQ }

// Decode implements [Message].
func (m *DREQ) Decode(mad []byte) error { return m.Header.decode(mad, AttrDREQ, m.fields) }

// Put implements [Message].
func (m *DREQ) Put(mad *[MADLen]byte) { m.Header.put(mad, AttrDREQ, m.fields) }

func (m *DREQ) fields(f fields) {
	f.ids(&m.LocalID, &m.RemoteID)
	num(f, 8, 3, &m.RemoteQPN)
	f.bytes(12, m.Private[:])
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
func (m *DREP) Decode(mad []byte) error { return m.Header.decode(mad, AttrDREP, m.fields) }

// Put implements [Message].
func (m *DREP) Put(mad *[MADLen]byte) { m.Header.put(mad, AttrDREP, m.fields) }

func (m *DREP) fields(f fields) {
	f.ids(&m.LocalID, &m.RemoteID)
	f.bytes(8, m.Private[:])
}

// String implements [Message].
func (m *DREP) String() string {
	return fmt.Sprintf("DREP id %v->%v%s", m.LocalID, m.RemoteID, privateString(m.Private[:]))
}

// MRA reports that a message has arrived and that its answer will take
// longer. IBTA 12.6.6.
type MRA struct {
	Header
	LocalID, RemoteID CommID
	Of                Subject
	ServiceTimeout    uint8 // CM timeout code: time to the answer
	Private           [MRAPrivateLen]byte
}

// Attribute implements [Message].
func (*MRA) Attribute() Attribute { return AttrMRA }

// Decode implements [Message].
func (m *MRA) Decode(mad []byte) error { return m.Header.decode(mad, AttrMRA, m.fields) }

// Put implements [Message].
func (m *MRA) Put(mad *[MADLen]byte) { m.Header.put(mad, AttrMRA, m.fields) }

func (m *MRA) fields(f fields) {
	f.ids(&m.LocalID, &m.RemoteID)
	bits(f, 8, 6, 2, &m.Of)
	bits(f, 9, 3, 5, &m.ServiceTimeout)
	f.bytes(10, m.Private[:])
}

// String implements [Message].
func (m *MRA) String() string {
	return fmt.Sprintf("MRA id %v->%v of %v timeout %d%s", m.LocalID, m.RemoteID, m.Of, m.ServiceTimeout,
		privateString(m.Private[:]))
}

// REJ refuses a REQ or REP, or aborts a handshake. IBTA 12.6.7.
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
func (m *REJ) Decode(mad []byte) error { return m.Header.decode(mad, AttrREJ, m.fields) }

// Put implements [Message].
func (m *REJ) Put(mad *[MADLen]byte) { m.Header.put(mad, AttrREJ, m.fields) }

func (m *REJ) fields(f fields) {
	f.ids(&m.LocalID, &m.RemoteID)
	bits(f, 8, 6, 2, &m.Of)
	bits(f, 9, 1, 7, &m.InfoLen)
	num(f, 10, 2, &m.Reason)
	f.bytes(12, m.Info[:])
	f.bytes(84, m.Private[:])
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
func (m *LAP) Decode(mad []byte) error { return m.Header.decode(mad, AttrLAP, m.fields) }

// Put implements [Message].
func (m *LAP) Put(mad *[MADLen]byte) { m.Header.put(mad, AttrLAP, m.fields) }

func (m *LAP) fields(f fields) {
	f.ids(&m.LocalID, &m.RemoteID)
	num(f, 12, 3, &m.RemoteQPN)
	bits(f, 15, 3, 5, &m.RemoteResponseTimeout)
	m.Alternate.fields(f, 20, true)
	f.bytes(64, m.Private[:])
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
func (m *APR) Decode(mad []byte) error { return m.Header.decode(mad, AttrAPR, m.fields) }

// Put implements [Message].
func (m *APR) Put(mad *[MADLen]byte) { m.Header.put(mad, AttrAPR, m.fields) }

func (m *APR) fields(f fields) {
	f.ids(&m.LocalID, &m.RemoteID)
	num(f, 8, 1, &m.InfoLen)
	num(f, 9, 1, &m.Status)
	f.bytes(12, m.Info[:])
	f.bytes(84, m.Private[:])
}

// String implements [Message].
func (m *APR) String() string {
	return fmt.Sprintf("APR id %v->%v status %d (%v)%s%s", m.LocalID, m.RemoteID, uint8(m.Status), m.Status,
		infoString(m.Info[:], m.InfoLen), privateString(m.Private[:]))
}

// infoString prints additional information; n comes from the wire.
func infoString(b []byte, n uint8) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" info %x", b[:min(int(n), len(b))])
}
