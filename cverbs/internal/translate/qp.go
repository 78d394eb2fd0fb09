package translate

import (
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
)

// attrRateLimit is IBV_QP_RATE_LIMIT, which the stack does not have.
const attrRateLimit = 1 << 25

// attrMask is the attributes of enum ibv_qp_attr_mask that a queue pair has.
const attrMask = uint32(roce.AttrDestQPN)<<1 - 1

// otherEnd has, for each type of XRC queue pair, the attributes of RC that this type lacks. Like the kernel's verbs,
// AttrMask ignores them: programs such as perftest set up both ends as if they were RC.
var otherEnd = map[roce.QPType]roce.AttrMask{
	roce.XRCSend: roce.AttrMaxDestRdAtomic | roce.AttrMinRNRTimer,
	roce.XRCRecv: roce.AttrMaxRdAtomic | roce.AttrRetryCnt | roce.AttrRNRRetry,
}

// AttrMask returns the attributes of a queue pair to set.
func AttrMask(t roce.QPType, mask uint32) (roce.AttrMask, error) {
	switch {
	case mask&attrRateLimit != 0:
		return 0, syscall.EOPNOTSUPP
	case mask&^attrMask != 0:
		return 0, syscall.EINVAL
	}
	return roce.AttrMask(mask) &^ otherEnd[t], nil
}

// Attr returns the attributes except the paths, which the caller resolves. Values that do not fit become
// values that no attribute has, so that the device refuses them if the mask names them.
func Attr(a *abi.QPAttr) roce.Attr {
	return roce.Attr{
		State: narrow[roce.QPState](a.State), CurState: narrow[roce.QPState](a.CurState),
		SQDNotify: a.SQDNotify != 0, Access: roce.Access(a.Access), PKeyIndex: a.PKeyIndex, Port: a.Port,
		QKey: roce.QKey(a.QKey), PathMTU: narrow[roce.MTU](a.PathMTU), DestQPN: roce.QPN(a.DestQPN),
		RQPSN: roce.PSN(a.RQPSN & psnMask), SQPSN: roce.PSN(a.SQPSN & psnMask),
		Timeout: a.Timeout, RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry, MinRNRTimer: roce.RNRTimer(a.MinRNRTimer),
		MaxRdAtomic: a.MaxRdAtomic, MaxDestRdAtomic: a.MaxDestRdAtomic,
		AltPKeyIndex: a.AltPKeyIndex, AltPort: a.AltPort, AltTimeout: a.AltTimeout,
		PathMigState: narrow[roce.MigState](a.PathMigState),
	}
}

// QPAttr fills in attributes, except the paths and sizes.
func QPAttr(dst *abi.QPAttr, a *roce.Attr) {
	*dst = abi.QPAttr{
		State: uint32(a.State), CurState: uint32(a.State), PathMTU: uint32(a.PathMTU), PathMigState: uint32(a.PathMigState),
		QKey: uint32(a.QKey), RQPSN: uint32(a.RQPSN), SQPSN: uint32(a.SQPSN), DestQPN: uint32(a.DestQPN), Access: uint32(a.Access),
		PKeyIndex: a.PKeyIndex, AltPKeyIndex: a.AltPKeyIndex, SQDNotify: Flag(a.SQDNotify), SQDraining: Flag(a.SQDraining),
		MaxRdAtomic: a.MaxRdAtomic, MaxDestRdAtomic: a.MaxDestRdAtomic, MinRNRTimer: uint8(a.MinRNRTimer), Port: a.Port,
		Timeout: a.Timeout, RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry, AltPort: a.AltPort, AltTimeout: a.AltTimeout,
	}
}

// Flag returns a truth value as C has it.
func Flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// Caps returns the sizes that a program requests. A size that no queue can have becomes negative, which the
// device refuses.
func Caps(c *abi.Caps) roce.Caps {
	return roce.Caps{MaxSendWR: int(int32(c.MaxSendWR)), MaxRecvWR: int(int32(c.MaxRecvWR)), MaxSendSGE: int(int32(c.MaxSendSGE)),
		MaxRecvSGE: int(int32(c.MaxRecvSGE)), MaxInlineData: int(int32(c.MaxInlineData))}
}

// GrantedCaps returns the granted sizes of a queue pair.
func GrantedCaps(c roce.Caps) abi.Caps {
	return abi.Caps{MaxSendWR: uint32(c.MaxSendWR), MaxRecvWR: uint32(c.MaxRecvWR), MaxSendSGE: uint32(c.MaxSendSGE),
		MaxRecvSGE: uint32(c.MaxRecvSGE), MaxInlineData: uint32(c.MaxInlineData)}
}

// AHAttr returns an address vector. As on Linux it needs a GRH: is_global.
func AHAttr(a *abi.AHAttr) (roce.AHAttr, error) {
	if a.IsGlobal == 0 || a.Port == 0 {
		return roce.AHAttr{}, syscall.EINVAL
	}
	return roce.AHAttr{DGID: a.DGID, SGIDIndex: int(a.SGIDIndex), FlowLabel: a.FlowLabel & FlowLabelMask,
		TrafficClass: a.TrafficClass, HopLimit: a.HopLimit, Port: a.Port}, nil
}

// FromAHAttr fills in an address vector.
func FromAHAttr(dst *abi.AHAttr, a *roce.AHAttr) {
	*dst = abi.AHAttr{DGID: a.DGID, FlowLabel: a.FlowLabel, SGIDIndex: uint8(a.SGIDIndex), HopLimit: a.HopLimit,
		TrafficClass: a.TrafficClass, IsGlobal: 1, Port: max(a.Port, 1)}
}
