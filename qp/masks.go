package qp

// The attributes of the usual way of an RC queue pair from INIT to RTS.
const (
	rcToRTR = AttrState | AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN | AttrMaxDestRdAtomic | AttrMinRNRTimer | AttrFlushICRCQuirk
	rcToRTS = AttrState | AttrSQPSN | AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrMaxRdAtomic
)

// lacks says which of these attributes the other connected services do not have.
var lacks = map[Type]AttrMask{
	UC:      AttrMaxDestRdAtomic | AttrMinRNRTimer | AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrMaxRdAtomic | AttrFlushICRCQuirk,
	XRCSend: AttrMaxDestRdAtomic | AttrMinRNRTimer | AttrFlushICRCQuirk,
	XRCRecv: AttrRetryCnt | AttrRNRRetry | AttrMaxRdAtomic | AttrFlushICRCQuirk,
}

// MaskRTR returns the attributes with which a connected queue pair of a service goes from
// INIT to RTR, and MaskRTS those from RTR to RTS.
func MaskRTR(t Type) AttrMask { return rcToRTR &^ lacks[t] }

// MaskRTS returns the attributes with which a connected queue pair of a service goes from
// RTR to RTS.
func MaskRTS(t Type) AttrMask { return rcToRTS &^ lacks[t] }
