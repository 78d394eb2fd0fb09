package verbs

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// DCNode is a node that offers dynamically connected targets ([HasDC]).
type DCNode interface {
	CreateDCT(DCTInit) (DCT, error)
	ArmDCT(Handle) error
	QueryDCT(Handle) (state qp.DCTState, violations uint64, err error)
	DestroyDCT(Handle) error
}

// DCTInit is struct ibv_exp_dct_init_attr.
type DCTInit struct {
	PD, CQ, SRQ Handle
	Key         uint64
	Access      mr.Access
	MinRNRTimer bth.RNRTimer
	MTU         bth.MTU
	GIDIndex    int
}

// DCT is a target.
type DCT struct {
	H   Handle
	Num bth.QPN
}
