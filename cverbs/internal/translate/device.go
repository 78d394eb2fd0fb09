package translate

import (
	"math"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
)

// DeviceAttr fills the attributes of a device in.
func DeviceAttr(dst *abi.DeviceAttr, a *roce.DeviceAttr) {
	*dst = abi.DeviceAttr{
		NodeGUID: a.GUID, MaxMRSize: a.MaxMRSize, PageSizeCap: a.PageSizeCap,
		Caps: uint64(a.Caps) & math.MaxUint32, CapsEx: uint64(a.Caps),
		VendorID: a.VendorID, VendorPartID: a.VendorPartID, HWVer: a.HWVer,
		MaxQP: clip(a.MaxQP), MaxQPWR: clip(a.MaxQPWR), MaxSGE: clip(a.MaxSGE), MaxSGERd: clip(a.MaxSGERd),
		MaxCQ: clip(a.MaxCQ), MaxCQE: clip(a.MaxCQE), MaxMR: clip(a.MaxMR), MaxPD: clip(a.MaxPD),
		MaxQPRdAtom: min(clip(a.MaxRdAtom), maxRdAtom), MaxResRdAtom: clip(a.MaxResRdAtom), MaxQPInitRdAtom: min(clip(a.MaxInitRdAtom), maxRdAtom),
		MaxMW: clip(a.MaxMW), MaxMcastGrp: clip(a.MaxMcastGrp), MaxMcastQPAttach: clip(a.MaxMcastQPs),
		MaxTotalMcastQPAttach: clip(a.MaxMcastGrp * a.MaxMcastQPs), MaxAH: clip(a.MaxAH),
		MaxSRQ: clip(a.MaxSRQ), MaxSRQWR: clip(a.MaxSRQWR), MaxSRQSGE: clip(a.MaxSRQSGE), MaxInlineData: clip(a.MaxInline),
		CompVectors: clip(a.Shards), AtomicCap: uint32(a.AtomicCap), MaxPKeys: uint16(a.MaxPKeys),
		LocalCAAckDelay: a.LocalCAAckDelay, PhysPortCnt: uint8(a.PhysPorts),
	}
	if a.Caps&roce.CapXRC != 0 {
		dst.MaxXRCD = dst.MaxPD // nothing but memory limits either
	}
	dst.MaxDMSize = deviceMemory
	abi.String(dst.FWVer[:], a.FWVer)
}

// maxRdAtom is how many READs and atomics a queue pair says that it can have outstanding: as many as rxe. It
// can have more. But perftest tells its peer this number, and the peer asks its own device for as many.
const maxRdAtom = 128

// deviceMemory is how much device memory a program may have in one piece. It is memory of the process, as all
// that this device has.
const deviceMemory = 1 << 20

// clip returns a limit as C has it.
func clip(n int) int32 { return int32(min(n, math.MaxInt32)) }

// PortAttr fills the attributes of a port in.
func PortAttr(dst *abi.PortAttr, a *roce.PortAttr) {
	*dst = abi.PortAttr{
		State: uint32(a.State), PhysState: uint32(a.PhysState), MaxMTU: uint32(a.MaxMTU), ActiveMTU: uint32(a.ActiveMTU),
		MaxMsgSize: a.MaxMsgSize, CapFlags: uint32(a.Caps), GIDTableLen: uint32(a.GIDTableLen),
		ActiveSpeed: uint32(a.ActiveSpeed), ActiveWidth: uint32(a.ActiveWidth), PKeyTableLen: uint16(a.PKeyTableLen),
		LinkLayer: uint8(a.LinkLayer),
	}
}

// eventTypes is how many types of asynchronous events the verbs have (enum ibv_event_type).
const eventTypes = uint32(roce.EventWQFatal) + 1

// EventType returns the type of an event, false for those that the verbs do not have.
func EventType(t roce.EventType) (uint32, bool) { return uint32(t), uint32(t) < eventTypes }
