//go:build linux

package ours

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/interop/conformance/verbs"
)

func (n *Node) QueryDevice() (verbs.DeviceAttr, error) {
	a := n.dev.Query()
	return verbs.DeviceAttr{NodeGUID: a.GUID, SysImageGUID: a.GUID, MaxMRSize: a.MaxMRSize, PageSizeCap: a.PageSizeCap, VendorID: a.VendorID,
		MaxQP: a.MaxQP, MaxQPWR: a.MaxQPWR, CapFlags: uint64(a.Caps), MaxSGE: a.MaxSGE, MaxSGERd: a.MaxSGERd, MaxCQ: a.MaxCQ, MaxCQE: a.MaxCQE,
		MaxMR: a.MaxMR, MaxPD: a.MaxPD, MaxQPRdAtom: a.MaxRdAtom, MaxQPInitRdAtom: a.MaxInitRdAtom, AtomicCap: int(a.AtomicCap),
		MaxAH: a.MaxAH, MaxSRQ: a.MaxSRQ, MaxSRQWR: a.MaxSRQWR, MaxSRQSGE: a.MaxSRQSGE, MaxPKeys: a.MaxPKeys,
		LocalCAAckDelay: int(a.LocalCAAckDelay), PhysPortCnt: a.PhysPorts, NumCompVectors: a.Shards}, nil
}

func (n *Node) QueryPort(port int) (verbs.PortAttr, error) {
	a, err := n.dev.QueryPort(port)
	if err != nil {
		return verbs.PortAttr{}, err
	}
	p := verbs.PortAttr{State: int(a.State), MaxMTU: a.MaxMTU, ActiveMTU: a.ActiveMTU, GIDTableLen: a.GIDTableLen, PKeyTableLen: a.PKeyTableLen,
		MaxMsgSize: uint64(a.MaxMsgSize), LinkLayer: int(a.LinkLayer), PhysState: int(a.PhysState),
		ActiveWidth: int(a.ActiveWidth), ActiveRate: int(a.ActiveSpeed)}
	if a.GRHRequired {
		p.Flags = 1
	}
	return p, nil
}

func (n *Node) QueryGID(port, index int) (bth.GID, error) { return n.dev.QueryGID(port, index) }

func (n *Node) QueryGIDEx(port, index int) (verbs.GIDEntry, error) {
	e, err := n.dev.QueryGIDEx(port, index)
	return verbs.GIDEntry{GID: e.GID, Index: e.Index, Type: int(e.Type)}, err
}

// QueryGIDTable is Device.QueryGIDTable, which needs no room to be given.
func (n *Node) QueryGIDTable(int) (table []verbs.GIDEntry, err error) {
	for _, e := range n.dev.QueryGIDTable() {
		table = append(table, verbs.GIDEntry{GID: e.GID, Index: e.Index, Type: int(e.Type)})
	}
	return table, nil
}

func (n *Node) QueryPKey(port, index int) (uint16, error) {
	k, err := n.dev.QueryPKey(port, index)
	return uint16(k), err
}

// PKeyIndex is ibv_get_pkey_index: it looks the key up in the table.
func (n *Node) PKeyIndex(port int, key uint16) (int, error) {
	for i := 0; ; i++ {
		k, err := n.dev.QueryPKey(port, i)
		if err != nil {
			return 0, syscall.ENOENT
		}
		if uint16(k) == key {
			return i, nil
		}
	}
}

func (n *Node) NextEvent(d time.Duration) (verbs.Event, error) {
	ctx, stop := wait(d)
	defer stop()
	e, err := n.dev.NextEvent(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return verbs.Event{}, again("get_event")
	}
	if err != nil {
		return verbs.Event{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	v := verbs.Event{Type: int(e.Type)}
	switch {
	case e.QP != nil:
		v.Object = n.handle[e.QP]
	case e.CQ != nil:
		v.Object = n.handle[e.CQ]
	case e.SRQ != nil:
		v.Object = n.handle[e.SRQ]
	}
	return v, nil
}

// again says that nothing came in time.
func again(call string) error {
	return &verbs.Error{Side: "roce", Call: call, Errno: syscall.EAGAIN}
}

// Counter is one of Device.Counters.
func (n *Node) Counter(name string) (uint64, error) {
	c := n.dev.Counters()
	for _, f := range c.Counters.Fields() {
		if f.Name == name {
			return *f.V, nil
		}
	}
	return 0, &verbs.Error{Side: "roce", Call: "counter", Errno: syscall.ENOENT}
}
