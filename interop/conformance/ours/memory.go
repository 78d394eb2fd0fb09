//go:build linux

package ours

import (
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

func (n *Node) ReregMR(m verbs.MR, flags int, pd verbs.Handle, addr, size uint64, access mr.Access) (verbs.MR, error) {
	b := n.slice(addr, size)
	if flags&verbs.ReregTranslation != 0 && b == nil {
		return m, &verbs.Error{Side: "roce", Call: "rereg_mr", Errno: syscall.EFAULT}
	}
	r := get[*roce.MR](n, m.H)
	err := r.Reregister(roce.MRChange{Change: roce.Rereg(flags), PD: get[*roce.PD](n, pd), Mem: b, Access: access})
	if err != nil {
		return m, err
	}
	m.LKey, m.RKey, m.Addr, m.Len = r.LKey(), r.RKey(), r.Addr(), uint64(r.Len())
	return m, nil
}

func (n *Node) AllocFastMR(pd verbs.Handle, pieces int) (verbs.MR, error) {
	m, err := get[*roce.PD](n, pd).AllocFastReg(roce.FastRegConfig{Pieces: pieces})
	if err != nil {
		return verbs.MR{}, err
	}
	return verbs.MR{H: n.add(m), LKey: m.LKey(), RKey: m.RKey()}, nil
}

// MapFastMR calls FastMR.Map for one piece.
func (n *Node) MapFastMR(m verbs.MR, addr, size uint64) (verbs.MR, error) {
	m.Addr, m.Len = addr, size
	return m, get[*roce.FastMR](n, m.H).Map(n.slice(addr, size))
}

func (n *Node) RegIndirect(pd verbs.Handle, parts []verbs.Part, repeat, iova uint64, access mr.Access) (verbs.MR, error) {
	l := roce.Layout{Repeat: repeat, IOVA: iova}
	for _, p := range parts {
		l.Parts = append(l.Parts, roce.Part{MR: get[*roce.MR](n, p.MR), Offset: p.Offset, Length: p.Length, Stride: p.Stride})
	}
	m, err := get[*roce.PD](n, pd).RegIndirect(l, access)
	if err != nil {
		return verbs.MR{}, err
	}
	return verbs.MR{H: n.add(m), LKey: m.LKey(), RKey: m.RKey(), Addr: m.Addr(), Len: uint64(m.Len()), Access: access}, nil
}

func (n *Node) AllocMW(pd verbs.Handle, typ int) (verbs.MW, error) {
	w, err := get[*roce.PD](n, pd).AllocMW(roce.MWType(typ))
	if err != nil {
		return verbs.MW{}, err
	}
	return verbs.MW{H: n.add(w), RKey: w.RKey()}, nil
}

func (n *Node) DeallocMW(w verbs.Handle) error { return n.closed(w, get[*roce.MW](n, w).Close()) }

// bind converts the parameters of a bind.
func (n *Node) bind(b verbs.Bind, id uint64, flags qp.SendFlags, key bth.RKey) roce.Bind {
	return roce.Bind{ID: id, Flags: flags, MR: get[*roce.MR](n, b.MR), Addr: b.Addr, Length: b.Len, Access: b.Access, Key: key}
}

func (n *Node) BindMW(q, w verbs.Handle, b verbs.Bind, id uint64, flags qp.SendFlags) (bth.RKey, error) {
	return get[*roce.QP](n, q).BindMW(get[*roce.MW](n, w), n.bind(b, id, flags, 0))
}
