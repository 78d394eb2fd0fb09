package translate

import (
	"math"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
)

// DeviceAttr fills in the attributes of a device.
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
		dst.MaxXRCD = dst.MaxPD // only memory limits both
	}
	dst.MaxDMSize = deviceMemory
	abi.String(dst.FWVer[:], a.FWVer)
}

// maxRdAtom is the reported limit of outstanding READs and atomics of a queue pair: rxe's. The real limit is
// higher, but perftest sends this number to its peer, and the peer requests as many from its own device.
const maxRdAtom = 128

// deviceMemory is the largest piece of device memory of a program. Device memory of this device is memory of the
// process.
const deviceMemory = 1 << 20

// clip returns a limit as a C int.
func clip(n int) int32 { return int32(min(n, math.MaxInt32)) }

// PortAttr fills in the attributes of a port.
func PortAttr(dst *abi.PortAttr, a *roce.PortAttr) {
	*dst = abi.PortAttr{
		State: uint32(a.State), PhysState: uint32(a.PhysState), MaxMTU: uint32(a.MaxMTU), ActiveMTU: uint32(a.ActiveMTU),
		MaxMsgSize: a.MaxMsgSize, CapFlags: uint32(a.Caps), GIDTableLen: uint32(a.GIDTableLen),
		ActiveSpeed: uint32(a.ActiveSpeed), ActiveWidth: uint32(a.ActiveWidth), PKeyTableLen: uint16(a.PKeyTableLen),
		LinkLayer: uint8(a.LinkLayer),
	}
}

// eventTypes is the number of types of asynchronous events in the verbs (enum ibv_event_type).
const eventTypes = uint32(roce.EventWQFatal) + 1

// EventType returns the type of an event; false: the verbs do not have it.
func EventType(t roce.EventType) (uint32, bool) { return uint32(t), uint32(t) < eventTypes }
