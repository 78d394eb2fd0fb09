package roce

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// The types of work requests and completions, by their short names.
type (
	SendWR    = qp.SendWR    // struct ibv_send_wr
	RecvWR    = qp.RecvWR    // struct ibv_recv_wr
	SGE       = mr.SGE       // struct ibv_sge
	WC        = cq.WC        // struct ibv_wc
	Opcode    = qp.Opcode    // enum ibv_wr_opcode
	SendFlags = qp.SendFlags // enum ibv_send_flags
	Access    = mr.Access    // enum ibv_access_flags
	Attr      = qp.Attr      // struct ibv_qp_attr
	AttrMask  = qp.AttrMask  // enum ibv_qp_attr_mask
	Caps      = qp.Caps      // struct ibv_qp_cap
	QPType    = qp.Type      // enum ibv_qp_type
	QPState   = qp.State     // enum ibv_qp_state
	AH        = frame.Path   // struct ibv_ah: a resolved address
	GID       = bth.GID      // union ibv_gid
	QPN       = bth.QPN
	PSN       = bth.PSN
	RKey      = bth.RKey
	MTU       = bth.MTU
	MWType    = mr.MWType // enum ibv_mw_type

	DCQCN           = qp.DCQCN           // parameters of congestion control
	CongestionState = qp.CongestionState // what it makes of a queue pair
	Rate            = qp.Rate            // bits per second on the wire

	FlushType        = bth.FlushType        // enum ibv_placement_type
	FlushSelectivity = bth.FlushSelectivity // enum ibv_selectivity_level
)

// Services of a queue pair. States, and the masks of Modify, are those of package
// qp.
const (
	RC      = qp.RC
	UC      = qp.UC
	UD      = qp.UD
	XRCSend = qp.XRCSend
	XRCRecv = qp.XRCRecv
)

// Operations of a send work request.
const (
	Write       = qp.Write
	WriteImm    = qp.WriteImm
	Send        = qp.Send
	SendImm     = qp.SendImm
	Read        = qp.Read
	CompareSwap = qp.CompareSwap
	FetchAdd    = qp.FetchAdd
	SendInv     = qp.SendInv
	LocalInv    = qp.LocalInv // ends a key of this side
	BindMW      = qp.BindMW   // see [MW.WR]
	RegMR       = qp.RegMR    // see [FastMR.RegWR]
	Flush       = qp.Flush
	AtomicWrite = qp.AtomicWrite

	MaskedCompareSwap = qp.MaskedCompareSwap // needs QPConfig.MaskedAtomics
	MaskedFetchAdd    = qp.MaskedFetchAdd
)

// Flags of a send work request.
const (
	Fence     = qp.Fence
	Signaled  = qp.Signaled
	Solicited = qp.Solicited
)

// Rights on a memory region.
const (
	LocalWrite   = mr.LocalWrite
	RemoteWrite  = mr.RemoteWrite
	RemoteRead   = mr.RemoteRead
	RemoteAtomic = mr.RemoteAtomic
	ZeroBased    = mr.ZeroBased
	MWBind       = mr.MWBind // windows may be bound to it

	// Watched is for memory that the program looks at, or changes, at any time:
	// see [MR.Load64].
	Watched = mr.Watched

	FlushGlobal     = mr.FlushGlobal     // FLUSH to where everybody sees it
	FlushPersistent = mr.FlushPersistent // FLUSH to where it survives a loss of power
)

// Types of memory windows.
const (
	MWType1 = mr.MWType1 // for every queue pair of the domain; bound again and again
	MWType2 = mr.MWType2 // type 2B: for one queue pair; bound when free
)

// How far a FLUSH brings what was written, and of which memory.
const (
	PlaceGlobal     = bth.FlushGlobal     // IBV_FLUSH_GLOBAL
	PlacePersistent = bth.FlushPersistent // IBV_FLUSH_PERSISTENT
	FlushRange      = bth.FlushRange      // IBV_FLUSH_RANGE: Length bytes at RemoteAddr
	FlushMR         = bth.FlushMR         // IBV_FLUSH_MR: the whole region of RKey
)
