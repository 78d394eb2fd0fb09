package cm

import (
	"fmt"

	"github.com/goroce/roce/bth"
)

// SIDRREQ asks for the QP of a service ID (service ID resolution, for UD).
// IBTA 12.11.1.
type SIDRREQ struct {
	Header
	RequestID CommID
	PKey      bth.PKey
	ServiceID ServiceID
	Private   [SIDRREQPrivateLen]byte
}

// Attribute implements [Message].
func (*SIDRREQ) Attribute() Attribute { return AttrSIDRREQ }

// Decode implements [Message].
func (m *SIDRREQ) Decode(mad []byte) error { return m.Header.decode(mad, AttrSIDRREQ, m.fields) }

// Put implements [Message].
func (m *SIDRREQ) Put(mad *[MADLen]byte) { m.Header.put(mad, AttrSIDRREQ, m.fields) }

func (m *SIDRREQ) fields(f fields) {
	num(f, 0, 4, &m.RequestID)
	num(f, 4, 2, &m.PKey)
	num(f, 8, 8, &m.ServiceID)
	f.bytes(16, m.Private[:])
}

// String implements [Message].
func (m *SIDRREQ) String() string {
	return fmt.Sprintf("SIDR_REQ id %v svc %v pkey 0x%04x%s", m.RequestID, m.ServiceID, uint16(m.PKey),
		requestPrivate(m.ServiceID, m.Private[:]))
}

// SIDRREP answers a SIDR_REQ. IBTA 12.11.2.
type SIDRREP struct {
	Header
	RequestID CommID
	Status    SIDRStatus
	InfoLen   uint8
	VendorID  uint32 // 24 bits: 16 at 6, 8 at 11
	QPN       bth.QPN
	ServiceID ServiceID
	QKey      bth.QKey
	Info      [InfoLen]byte
	Private   [SIDRREPPrivateLen]byte
}

// Attribute implements [Message].
func (*SIDRREP) Attribute() Attribute { return AttrSIDRREP }

// Decode implements [Message].
func (m *SIDRREP) Decode(mad []byte) error { return m.Header.decode(mad, AttrSIDRREP, m.fields) }

// Put implements [Message].
func (m *SIDRREP) Put(mad *[MADLen]byte) { m.Header.put(mad, AttrSIDRREP, m.fields) }

func (m *SIDRREP) fields(f fields) {
	num(f, 0, 4, &m.RequestID)
	num(f, 4, 1, &m.Status)
	num(f, 5, 1, &m.InfoLen)
	f.scattered(&m.VendorID, 6, 7, 11)
	num(f, 8, 3, &m.QPN)
	num(f, 12, 8, &m.ServiceID)
	num(f, 20, 4, &m.QKey)
	f.bytes(24, m.Info[:])
	f.bytes(96, m.Private[:])
}

// String implements [Message].
func (m *SIDRREP) String() string {
	return fmt.Sprintf("SIDR_REP id %v svc %v status %d (%v) qpn 0x%06x qkey 0x%08x%s%s", m.RequestID,
		m.ServiceID, uint8(m.Status), m.Status, uint32(m.QPN), uint32(m.QKey),
		infoString(m.Info[:], m.InfoLen), privateString(m.Private[:]))
}
