package verify

import (
	"bytes"
	"fmt"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
)

// fields judges the fields of a message, most of them without regard to other messages.
func (v *Verifier) fields(p *packet) {
	var clean [cm.MADLen]byte
	p.CM.Put(&clean)
	if b := p.Frame.Payload(); !bytes.Equal(b, clean[:]) {
		for i := range clean {
			if b[i] != clean[i] {
				v.find(cmReserved, nil, "Byte %d of the %v is %#02x; %#02x of that is reserved.", i, p.CM.Attribute(), b[i], b[i]^clean[i])
				break
			}
		}
	}
	if what := reservedCode(p.CM); what != "" {
		v.find(cmValue, nil, "The %v has %s.", p.CM.Attribute(), what)
	}
	switch m := p.CM.(type) {
	case *cm.REQ:
		if m.Primary.LocalGID != p.Frame.Src || m.Primary.RemoteGID != p.Frame.Dst {
			v.find(cmPath, nil, "The primary path goes from %s to %s, the packet from %s to %s.", m.Primary.LocalGID.Addr(), m.Primary.RemoteGID.Addr(), p.Frame.Src.Addr(), p.Frame.Dst.Addr())
		}
		if m.Alternate.LocalLID != 0 || !m.Alternate.LocalGID.IsZero() {
			v.alternatePath(&m.Alternate, &m.Primary)
		}
	case *cm.LAP:
		var primary cm.Path
		if x := v.exchangeOf(p.Frame.Src, m.LocalID); x != nil && x.between(p) {
			if primary = x.req.Primary; x.end(p.Frame.Src) == 1 {
				primary.LocalGID, primary.RemoteGID = primary.RemoteGID, primary.LocalGID
			}
		}
		v.alternatePath(&m.Alternate, &primary)
	case *cm.SIDRREP:
		if m.Status == cm.SIDRValid && m.QPN == 0 {
			v.find(cmSIDR, nil, "The SIDR_REP says that there is a queue pair, and names none.")
		}
	}
}

// alternatePath judges an alternate path, also against the primary path, which is zero if it is not known.
func (v *Verifier) alternatePath(a, primary *cm.Path) {
	switch {
	case a.LocalGID.IsZero() || a.RemoteGID.IsZero() || a.LocalGID.Is4() != a.RemoteGID.Is4():
		v.find(cmPath, nil, "The alternate path goes from %s to %s.", a.LocalGID.Addr(), a.RemoteGID.Addr())
	case a.LocalGID == primary.LocalGID && a.RemoteGID == primary.RemoteGID && a.FlowLabel == primary.FlowLabel && a.TrafficClass == primary.TrafficClass:
		v.find(cmPath, nil, "The alternate path is the primary one.")
	}
}

// These are the last codes that are not reserved.
const (
	lastSubject    = cm.OfOther
	lastSIDRStatus = cm.SIDRVersion
	lastAPStatus   = cm.APInvalidSL
	lastFailover   = cm.FailoverRejected
)

// reservedReason reports whether the reason of a REJ is a reserved value.
func reservedReason(r cm.RejectReason) bool {
	return r == 0 || r > cm.RejectInvalidAltFlowLabel && r != cm.RejectVendorOption
}

// reservedCode describes the first field that has a reserved value, or is zero although it must not be. It returns "" if there is none.
func reservedCode(m cm.Message) (what string) {
	check := func(wrong bool, name string, value any) {
		if wrong && what == "" {
			what = fmt.Sprintf("%s %v", name, value)
		}
	}
	info := func(n uint8) { check(n > cm.InfoLen, "bytes of information", n) }
	switch m := m.(type) {
	case *cm.REQ:
		check(m.Transport == cm.RD || m.Transport == cm.Extended && m.ExtTransport != cm.ExtXRC, "service type", m.Transport)
		check(m.LocalID == 0, "local ID", m.LocalID)
		check(m.QPN <= bth.QPNGSI, "queue pair", m.QPN)
	case *cm.REP:
		check(m.LocalID == 0, "local ID", m.LocalID)
		check(targetQPN(m) <= bth.QPNGSI, "queue pair", targetQPN(m))
		check(m.Failover > lastFailover, "failover code", uint8(m.Failover))
	case *cm.MRA:
		check(m.Of > lastSubject, "subject", uint8(m.Of))
	case *cm.REJ:
		check(m.Of > lastSubject, "subject", uint8(m.Of))
		check(reservedReason(m.Reason), "reason", uint16(m.Reason))
		info(m.InfoLen)
	case *cm.APR:
		check(m.Status > lastAPStatus, "status", uint8(m.Status))
		info(m.InfoLen)
	case *cm.SIDRREQ:
		check(m.RequestID == 0, "request ID", m.RequestID)
	case *cm.SIDRREP:
		check(m.Status > lastSIDRStatus, "status", uint8(m.Status))
		info(m.InfoLen)
	}
	return what
}
