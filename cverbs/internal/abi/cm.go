package abi

// CMAddr is struct roce_cm_addr.
type CMAddr struct {
	Addr         [16]byte
	ScopeID      uint32
	Port, Family uint16
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
