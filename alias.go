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
	AH        = frame.Path   // struct ibv_ah: a resolved address
	GID       = bth.GID      // union ibv_gid
	QPN       = bth.QPN
	PSN       = bth.PSN
	RKey      = bth.RKey
	MTU       = bth.MTU
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
)
