package abi

import "net/netip"

// CMAddr is struct roce_cm_addr.
type CMAddr struct {
	Addr         [16]byte
	ScopeID      uint32
	Port, Family uint16
}

// AddrPort returns the address. For nil or an unknown family it returns an invalid one.
func (a *CMAddr) AddrPort() netip.AddrPort {
	switch {
	case a == nil:
	case a.Family == 4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(a.Addr[:4])), a.Port)
	case a.Family == 6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), a.Port)
	}
	return netip.AddrPort{}
}

// AddrOf is the reverse of AddrPort.
func AddrOf(a netip.AddrPort) (c CMAddr) {
	switch {
	case !a.IsValid():
		return c
	case a.Addr().Is4():
		b := a.Addr().As4()
		copy(c.Addr[:], b[:])
		c.Family = 4
	default:
		c.Addr, c.Family = a.Addr().As16(), 6
	}
	c.Port = a.Port()
	return c
}

// CMInfo is struct roce_cm_info.
type CMInfo struct {
	Device                                      [64]byte
	Src, Dst                                    CMAddr
	SGID, DGID                                  [16]byte
	FlowLabel, QPType                           uint32
	PKey                                        uint16
	TrafficClass, HopLimit, MTU, PacketLifeTime uint8
}

// CMParam is struct roce_cm_param.
type CMParam struct {
	PrivateData                                    *byte
	QPN                                            uint32
	PrivateLen, ResponderResources, InitiatorDepth uint8
	FlowControl, RetryCount, RNRRetryCount, SRQ    uint8
}

// CMEvent is struct roce_cm_event.
type CMEvent struct {
	Cookie, Group                                   uint64
	Child                                           Handle
	Type                                            uint32
	Status                                          int32
	IsUD, QPN, QKey                                 uint32
	AH                                              AHAttr
	ResponderResources, InitiatorDepth, FlowControl uint8
	RetryCount, RNRRetryCount, SRQ                  uint8
	PrivateLen                                      uint8
	PrivateData                                     [255]byte
}

// Options: enum roce_cm_option.
const (
	CMTOS uint32 = iota
	CMReuseAddr
	CMAFOnly
	CMAckTimeout
)
