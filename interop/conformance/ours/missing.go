//go:build linux

package ours

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// Counter is not offered.
func (n *Node) Counter(string) (uint64, error) { return 0, notOffered("counter") }

// ReregMR is not offered.
func (n *Node) ReregMR(m verbs.MR, _ int, _ verbs.Handle, _, _ uint64, _ mr.Access) (verbs.MR, error) {
	return m, notOffered("rereg_mr")
}

// AllocMW is not offered.
func (n *Node) AllocMW(verbs.Handle, int) (verbs.MW, error) {
	return verbs.MW{}, notOffered("alloc_mw")
}

// DeallocMW is not offered.
func (n *Node) DeallocMW(verbs.Handle) error { return notOffered("dealloc_mw") }

// BindMW is not offered.
func (n *Node) BindMW(_, _ verbs.Handle, _ verbs.Bind, _ uint64, _ qp.SendFlags) (bth.RKey, error) {
	return 0, notOffered("bind_mw")
}

// OpenXRCD is not offered.
func (n *Node) OpenXRCD() (verbs.Handle, error) { return 0, notOffered("open_xrcd") }

// CreateXRCSRQ is not offered.
func (n *Node) CreateXRCSRQ(_, _, _ verbs.Handle, _ verbs.SRQAttr) (verbs.Sink, error) {
	return verbs.Sink{}, notOffered("create_srq")
}

// AllocDM is not offered.
func (n *Node) AllocDM(uint64) (verbs.Handle, error) { return 0, notOffered("alloc_dm") }
