package ours

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// QueryDevice is not offered.
func (n *Node) QueryDevice() (verbs.DeviceAttr, error) {
	return verbs.DeviceAttr{}, notOffered("query_device")
}

// QueryPort is not offered.
func (n *Node) QueryPort(int) (verbs.PortAttr, error) {
	return verbs.PortAttr{}, notOffered("query_port")
}

// QueryGID is not offered.
func (n *Node) QueryGID(_, _ int) (bth.GID, error) { return bth.GID{}, notOffered("query_gid") }

// QueryGIDEx is not offered.
func (n *Node) QueryGIDEx(_, _ int) (verbs.GIDEntry, error) {
	return verbs.GIDEntry{}, notOffered("query_gid_ex")
}

// QueryGIDTable is not offered.
func (n *Node) QueryGIDTable(int) ([]verbs.GIDEntry, error) {
	return nil, notOffered("query_gid_table")
}

// QueryPKey is not offered.
func (n *Node) QueryPKey(_, _ int) (uint16, error) { return 0, notOffered("query_pkey") }

// PKeyIndex is not offered.
func (n *Node) PKeyIndex(int, uint16) (int, error) { return 0, notOffered("get_pkey_index") }

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

// CreateChannel is not offered.
func (n *Node) CreateChannel() (verbs.Handle, error) { return 0, notOffered("create_channel") }

// ResizeCQ is not offered.
func (n *Node) ResizeCQ(verbs.Handle, int) (int, error) { return 0, notOffered("resize_cq") }

// ReqNotify is not offered.
func (n *Node) ReqNotify(verbs.Handle, bool) error { return notOffered("req_notify") }

// CQEvent is not offered.
func (n *Node) CQEvent(verbs.Handle, time.Duration) (verbs.Handle, error) {
	return 0, notOffered("get_cq_event")
}

// OpenXRCD is not offered.
func (n *Node) OpenXRCD() (verbs.Handle, error) { return 0, notOffered("open_xrcd") }

// CreateSRQ is not offered.
func (n *Node) CreateSRQ(verbs.Handle, verbs.SRQAttr) (verbs.Sink, error) {
	return verbs.Sink{}, notOffered("create_srq")
}

// CreateXRCSRQ is not offered.
func (n *Node) CreateXRCSRQ(_, _, _ verbs.Handle, _ verbs.SRQAttr) (verbs.Sink, error) {
	return verbs.Sink{}, notOffered("create_srq")
}

// ModifySRQ is not offered.
func (n *Node) ModifySRQ(verbs.Handle, verbs.SRQAttr, int) error { return notOffered("modify_srq") }

// QuerySRQ is not offered.
func (n *Node) QuerySRQ(verbs.Handle) (verbs.SRQAttr, error) {
	return verbs.SRQAttr{}, notOffered("query_srq")
}

// DestroySRQ is not offered.
func (n *Node) DestroySRQ(verbs.Handle) error { return notOffered("destroy_srq") }

// PostSRQRecv is not offered.
func (n *Node) PostSRQRecv(verbs.Handle, ...verbs.RecvWR) error { return notOffered("post_srq_recv") }

// AttachMcast is not offered.
func (n *Node) AttachMcast(verbs.Handle, bth.GID) error { return notOffered("attach_mcast") }

// DetachMcast is not offered.
func (n *Node) DetachMcast(verbs.Handle, bth.GID) error { return notOffered("detach_mcast") }

// AllocDM is not offered.
func (n *Node) AllocDM(uint64) (verbs.Handle, error) { return 0, notOffered("alloc_dm") }
