// Package abi has the structures of engine.h as Go types, so that the code behind the calls of the engine
// needs no cgo and tests can call it. Each type has the layout of the C structure in its comment, field by
// field; a test compares them.
//
// Values of enumerations are those of <infiniband/verbs.h>.
package abi

import "unsafe"

// Handle names an object of the engine: roce_handle. 0 is none.
type Handle = uint32

// DeviceInfo is struct roce_device_info.
type DeviceInfo struct {
	Name   [64]byte
	Netdev [16]byte
	GUID   uint64
}

// GID is struct roce_gid.
type GID struct {
	Raw     [16]byte
	Type    uint32
	IfIndex uint32
}

// DeviceAttr is struct roce_device_attr.
type DeviceAttr struct {
	NodeGUID, MaxMRSize, PageSizeCap, Caps, CapsEx                   uint64
	VendorID, VendorPartID, HWVer                                    uint32
	MaxQP, MaxQPWR, MaxSGE, MaxSGERd, MaxCQ, MaxCQE, MaxMR, MaxPD    int32
	MaxQPRdAtom, MaxResRdAtom, MaxQPInitRdAtom, MaxMW, MaxMcastGrp   int32
	MaxMcastQPAttach, MaxTotalMcastQPAttach, MaxAH, MaxSRQ, MaxSRQWR int32
	MaxSRQSGE, MaxInlineData, MaxXRCD, CompVectors                   int32
	AtomicCap                                                        uint32
	MaxPKeys                                                         uint16
	LocalCAAckDelay, PhysPortCnt                                     uint8
	MaxDMSize                                                        uint64
	FWVer                                                            [64]byte
}

// PortAttr is struct roce_port_attr.
type PortAttr struct {
	State, PhysState, MaxMTU, ActiveMTU, MaxMsgSize, CapFlags, GIDTableLen uint32
	ActiveSpeed, ActiveWidth                                               uint32
	PKeyTableLen                                                           uint16
	LinkLayer                                                              uint8
}

// SGE is struct roce_sge.
type SGE struct {
	Addr         uint64
	Length, LKey uint32
}

// SendWR is struct roce_send_wr.
type SendWR struct {
	ID                    uint64
	SG                    *SGE
	NumSGE                int32
	Opcode, Flags, Imm    uint32
	RemoteAddr            uint64
	RKey, SRQN            uint32
	CompareAdd, Swap      uint64
	AtomicWrite           uint64
	AH                    Handle
	RemoteQPN, RemoteQKey uint32
	MW, MR                Handle
	NewRKey, BindAccess   uint32
	BindAddr, BindLength  uint64
	FlushType, FlushLevel uint32
	FlushLength           uint64
}

// RecvWR is struct roce_recv_wr.
type RecvWR struct {
	ID       uint64
	SG       *SGE
	NumSGE   int32
	Reserved uint32
}

// WC is struct roce_wc.
type WC struct {
	ID                                 uint64
	Status, Opcode, VendorErr, ByteLen uint32
	Imm                                uint32
	QPN, SrcQPN, Flags                 uint32
	PKeyIndex, SLID                    uint16
	SL, DLIDPathBits                   uint8
}

// Caps is struct roce_caps.
type Caps struct{ MaxSendWR, MaxRecvWR, MaxSendSGE, MaxRecvSGE, MaxInlineData uint32 }

// AHAttr is struct roce_ah_attr.
type AHAttr struct {
	DGID                                                                           [16]byte
	FlowLabel                                                                      uint32
	SGIDIndex, HopLimit, TrafficClass, IsGlobal, SL, SrcPathBits, StaticRate, Port uint8
	DLID                                                                           uint16
}

// QPAttr is struct roce_qp_attr.
type QPAttr struct {
	State, CurState, PathMTU, PathMigState, QKey, RQPSN, SQPSN, DestQPN, Access uint32
	Cap                                                                         Caps
	AH, AltAH                                                                   AHAttr
	PKeyIndex, AltPKeyIndex                                                     uint16
	SQDNotify, SQDraining, MaxRdAtomic, MaxDestRdAtomic, MinRNRTimer, Port      uint8
	Timeout, RetryCnt, RNRRetry, AltPort, AltTimeout                            uint8
	RateLimit                                                                   uint32
}

// QPInit is struct roce_qp_init.
type QPInit struct {
	PD, SendCQ, RecvCQ, SRQ, XRCD            Handle
	Cap                                      Caps
	Type, SignalAll, CreateFlags, SendOpaque uint32
	Cookie                                   uint64
	RecvRing                                 unsafe.Pointer // to struct roce_recv_ring
	RecvSlots                                uint64
}

// SRQInit is struct roce_srq_init.
type SRQInit struct {
	PD, XRCD, CQ         Handle
	Type                 uint32
	MaxWR, MaxSGE, Limit uint32
	Cookie               uint64
}

// MRInfo is struct roce_mr_info.
type MRInfo struct {
	Addr, Length uint64
	LKey, RKey   uint32
}

// Event is struct roce_event.
type Event struct {
	Type, Port uint32
	Cookie     uint64
}

// Rereg is struct roce_rereg.
type Rereg struct {
	Flags              uint32
	PD                 Handle
	Addr, Length, IOVA uint64
	Access             uint32
}

// Pointer returns the C memory at an address that a program gave as a number.
func Pointer(addr uint64) unsafe.Pointer {
	p := uintptr(addr)
	return *(*unsafe.Pointer)(unsafe.Pointer(&p)) // hides from go vet that this memory is not Go's
}

// String stores a string in a field of C: it cuts a string that is too long, and appends a 0.
func String(field []byte, s string) {
	n := copy(field[:len(field)-1], s)
	clear(field[n:])
}
