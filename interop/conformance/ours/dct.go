//go:build linux

package ours

import (
	"github.com/goroce/roce"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/qp"
)

var _ verbs.DCNode = (*Node)(nil)

// CreateDCT implements [verbs.DCNode].
func (n *Node) CreateDCT(i verbs.DCTInit) (verbs.DCT, error) {
	t, err := get[*roce.PD](n, i.PD).CreateDCT(roce.DCTConfig{CQ: get[*roce.CQ](n, i.CQ), SRQ: get[*roce.SRQ](n, i.SRQ), Key: i.Key,
		Access: i.Access, MinRNRTimer: i.MinRNRTimer, MTU: i.MTU, GIDIndex: i.GIDIndex})
	if err != nil {
		return verbs.DCT{}, err
	}
	return verbs.DCT{H: n.add(t), Num: t.Num()}, nil
}

// ArmDCT implements [verbs.DCNode].
func (n *Node) ArmDCT(h verbs.Handle) error { return get[*roce.DCT](n, h).Arm(0) }

// QueryDCT implements [verbs.DCNode].
func (n *Node) QueryDCT(h verbs.Handle) (qp.DCTState, uint64, error) {
	a := get[*roce.DCT](n, h).Query()
	return a.State, a.KeyViolations, nil
}

// DestroyDCT implements [verbs.DCNode].
func (n *Node) DestroyDCT(h verbs.Handle) error { return n.closed(h, get[*roce.DCT](n, h).Close()) }
