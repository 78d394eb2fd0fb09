package cm

import (
	"fmt"

	"github.com/goroce/roce/bth"
)

// SIDRREQ asks which QP serves a service ID (service ID resolution, for UD).
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
func (m *SIDRREQ) Decode(mad []byte) error {
	if err := m.Header.decode(mad, AttrSIDRREQ); err != nil {
		return err
	}
	b := mad[headerLen:]
	m.RequestID = CommID(be32(b))
	m.PKey = bth.PKey(be16(b[4:]))
	m.ServiceID = ServiceID(be64(b[8:]))
	copy(m.Private[:], b[16:])
	return nil
}

// Put implements [Message].
func (m *SIDRREQ) Put(mad *[MADLen]byte) {
	b := m.Header.put(mad, AttrSIDRREQ)
	put32(b, uint32(m.RequestID))
	put16(b[4:], uint16(m.PKey))
	put64(b[8:], uint64(m.ServiceID))
	copy(b[16:], m.Private[:])
}

// String implements [Message].
func (m *SIDRREQ) String() string {
	s := fmt.Sprintf("SIDR_REQ id %v svc %v pkey 0x%04x", m.RequestID, m.ServiceID, uint16(m.PKey))
	private := m.Private[:]
	if m.ServiceID.IsIP() {
		var h IPHeader
		if h.Decode(private) == nil {
			s += " " + h.String()
			private = private[IPHeaderLen:]
		}
	}
	return s + privateString(private)
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
func (m *SIDRREP) Decode(mad []byte) error {
	if err := m.Header.decode(mad, AttrSIDRREP); err != nil {
		return err
	}
	b := mad[headerLen:]
	m.RequestID = CommID(be32(b))
	m.Status = SIDRStatus(b[4])
	m.InfoLen = b[5]
	m.VendorID = uint32(be16(b[6:]))<<8 | uint32(b[11])
	m.QPN = bth.QPN(be24(b[8:]))
	m.ServiceID = ServiceID(be64(b[12:]))
	m.QKey = bth.QKey(be32(b[20:]))
	copy(m.Info[:], b[24:])
	copy(m.Private[:], b[96:])
	return nil
}

// Put implements [Message].
func (m *SIDRREP) Put(mad *[MADLen]byte) {
	b := m.Header.put(mad, AttrSIDRREP)
	put32(b, uint32(m.RequestID))
	b[4], b[5] = byte(m.Status), m.InfoLen
	put16(b[6:], uint16(m.VendorID>>8))
	put24(b[8:], uint32(m.QPN))
	b[11] = byte(m.VendorID)
	put64(b[12:], uint64(m.ServiceID))
	put32(b[20:], uint32(m.QKey))
	copy(b[24:], m.Info[:])
	copy(b[96:], m.Private[:])
}

// String implements [Message].
func (m *SIDRREP) String() string {
	return fmt.Sprintf("SIDR_REP id %v svc %v status %d (%v) qpn 0x%06x qkey 0x%08x%s%s", m.RequestID,
		m.ServiceID, uint8(m.Status), m.Status, uint32(m.QPN), uint32(m.QKey),
		infoString(m.Info[:], m.InfoLen), privateString(m.Private[:]))
}
