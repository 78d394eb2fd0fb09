//go:build linux

// Package ours implements a side of a conformance test with package roce.
package ours

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// Node is a device of package roce. Its methods call package roce.
type Node struct {
	dev     *roce.Device
	index   int
	gid     bth.GID
	second  int // index of another address, or -1
	objects map[verbs.Handle]any
	last    verbs.Handle
	memory  map[uint64][]byte // by address

	mu     sync.Mutex // guards handle: events come from the device
	handle map[any]verbs.Handle
}

var _ verbs.Node = (*Node)(nil)

// offers are the features of package roce beyond the basics.
const offers = verbs.HasExtendedPost | verbs.HasSRQ | verbs.HasResizeCQ | verbs.HasChannels | verbs.HasMulticast |
	verbs.HasMW | verbs.HasRereg | verbs.HasLocalInv | verbs.HasFastReg | verbs.HasXRC | verbs.HasAtomicWrite | verbs.HasFlush | verbs.HasFlushPost |
	verbs.HasMaskedAtomics | verbs.HasPathMigration | verbs.HasIndirect | verbs.HasCrossChannel | verbs.HasDC

// Open returns a Node for an opened device, which the Node then owns. If err is not nil, Open
// returns it. The Node uses the first IPv4 address of the device.
func Open(dev *roce.Device, err error) (verbs.Node, error) {
	if err != nil {
		return nil, err
	}
	n := &Node{dev: dev, objects: map[verbs.Handle]any{}, memory: map[uint64][]byte{}, handle: map[any]verbs.Handle{}}
	var v4 []int
	for i, g := range dev.GIDs() {
		if g.Is4() {
			v4 = append(v4, i)
		}
	}
	if len(v4) == 0 {
		dev.Close()
		return nil, errors.New("roce: the device has no IPv4 address")
	}
	n.index, n.gid, n.second = v4[0], dev.GIDs()[v4[0]], -1
	if len(v4) > 1 {
		n.second = v4[1]
	}
	return n, nil
}

func (n *Node) Label() string { return "roce" }

func (n *Node) Kernel() string { return "" }

func (n *Node) Offers() verbs.Feature { return offers }

func (n *Node) GID() (int, bth.GID) { return n.index, n.gid }

// Alternate returns the second address.
func (n *Node) Alternate() (int, bth.GID) {
	if n.second < 0 {
		return -1, bth.GID{}
	}
	return n.second, n.dev.GIDs()[n.second]
}

// Close closes the device, and frees the memory, which is no longer in use then.
func (n *Node) Close() error {
	err := n.dev.Close()
	for _, b := range n.memory {
		err = errors.Join(err, syscall.Munmap(b))
	}
	return err
}

// Device returns the device, to look at its counters.
func (n *Node) Device() *roce.Device { return n.dev }

// add gives an object a handle.
func (n *Node) add(o any) verbs.Handle {
	n.last++
	n.objects[n.last] = o
	n.mu.Lock()
	n.handle[o] = n.last
	n.mu.Unlock()
	return n.last
}

// made gives an object a handle if err is nil.
func made[T any](n *Node, o T, err error) (verbs.Handle, error) {
	if err != nil {
		return 0, err
	}
	return n.add(o), nil
}

// get returns the object of a handle, and the zero value for handle 0. It panics for a handle of
// another kind of object, because that is a bug of the test.
func get[T any](n *Node, h verbs.Handle) (o T) {
	if h == 0 {
		return o
	}
	o, ok := n.objects[h].(T)
	if !ok {
		panic(fmt.Sprintf("handle %d is a %T, not a %T", h, n.objects[h], o))
	}
	return o
}

// closed removes the handle of an object if closing it has returned no error.
func (n *Node) closed(h verbs.Handle, err error) error {
	if err != nil {
		return err
	}
	delete(n.objects, h)
	return nil
}

// wait returns a context with a time limit.
func wait(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// patience is the time limit of calls that resolve a neighbour.
const patience = 10 * time.Second

func (n *Node) AllocPD() (verbs.Handle, error) { return n.add(n.dev.AllocPD()), nil }

func (n *Node) DeallocPD(pd verbs.Handle) error { return n.closed(pd, get[*roce.PD](n, pd).Close()) }

// ahAttr converts an address.
func ahAttr(a verbs.AH) roce.AHAttr {
	return roce.AHAttr{DGID: a.DGID, SGIDIndex: a.SGIDIndex, FlowLabel: a.FlowLabel, TrafficClass: a.TrafficClass, HopLimit: a.HopLimit}
}

func (n *Node) path(a verbs.AH) (*roce.AH, error) {
	ctx, stop := wait(patience)
	defer stop()
	return n.dev.CreateAH(ctx, ahAttr(a))
}

func (n *Node) CreateAH(_ verbs.Handle, a verbs.AH) (verbs.Handle, error) {
	ah, err := n.path(a)
	return made(n, ah, err)
}

// DestroyAH only removes the handle: package roce has no call that destroys an address handle.
func (n *Node) DestroyAH(ah verbs.Handle) error { return n.closed(ah, nil) }

// Alloc gets memory from the kernel, not from Go. A peer may read the memory at any time,
// also while the test writes it, for instance if a packet of the peer is duplicated. That is
// allowed, but in Go memory the race detector would report it.
func (n *Node) Alloc(size uint64) (uint64, error) {
	b, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return 0, err
	}
	p := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	n.memory[p] = b
	return p, nil
}

// slice returns the memory at an address, or nil.
func (n *Node) slice(addr, size uint64) []byte {
	for at, b := range n.memory {
		if off := addr - at; addr >= at && off <= uint64(len(b)) && size <= uint64(len(b))-off {
			return b[off : off+size : off+size]
		}
	}
	return nil
}

// settle synchronizes the test with the device's goroutine, which executes the peer's accesses to
// memory. A completion tells the test that such an access is over, but does not synchronize the two
// goroutines for the Go memory model.
func (n *Node) settle() { n.dev.Counters() }

func (n *Node) ReadMem(addr, size uint64) ([]byte, error) {
	n.settle()
	b := n.slice(addr, size)
	if b == nil && size > 0 {
		return nil, syscall.EFAULT
	}
	b = append([]byte(nil), b...)
	n.settle()
	return b, nil
}

func (n *Node) WriteMem(addr uint64, data []byte) error {
	b := n.slice(addr, uint64(len(data)))
	if b == nil && len(data) > 0 {
		return syscall.EFAULT
	}
	copy(b, data)
	n.settle()
	return nil
}

// RegMR calls PD.RegMR. For unmapped memory it returns the error of a kernel, because Go cannot
// have a slice of such memory.
func (n *Node) RegMR(pd verbs.Handle, addr, size uint64, access mr.Access) (verbs.MR, error) {
	b := n.slice(addr, size)
	if b == nil {
		return verbs.MR{}, &verbs.Error{Side: "roce", Call: "reg_mr", Errno: syscall.EFAULT}
	}
	m, err := get[*roce.PD](n, pd).RegMR(b, access)
	return n.region(m, access, err)
}

func (n *Node) RegMRIova(pd verbs.Handle, addr, size, iova uint64, access mr.Access) (verbs.MR, error) {
	m, err := get[*roce.PD](n, pd).RegMRIova(n.slice(addr, size), iova, access)
	return n.region(m, access, err)
}

func (n *Node) region(m *roce.MR, access mr.Access, err error) (verbs.MR, error) {
	if err != nil {
		return verbs.MR{}, err
	}
	return verbs.MR{H: n.add(m), LKey: m.LKey(), RKey: m.RKey(), Addr: m.Addr(), Len: uint64(m.Len()), Access: access}, nil
}

func (n *Node) DeregMR(m verbs.Handle) error { return n.closed(m, get[*roce.MR](n, m).Close()) }

func (n *Node) CreateQP(i verbs.QPInit) (verbs.QP, error) {
	c := roce.QPConfig{Type: i.Type, SendCQ: get[*roce.CQ](n, i.SendCQ), RecvCQ: get[*roce.CQ](n, i.RecvCQ), SRQ: get[*roce.SRQ](n, i.SRQ),
		Caps: i.Caps, SignalAll: i.SignalAll, MaskedAtomics: i.Masked,
		CrossChannel: i.CrossChannel, ManagedSend: i.ManagedSend, ManagedRecv: i.ManagedRecv}
	var q *roce.QP
	var err error
	if i.Type == qp.XRCRecv {
		q, err = get[*roce.XRCD](n, i.XRCD).CreateQP(c)
	} else {
		q, err = get[*roce.PD](n, i.PD).CreateQP(c)
	}
	if err != nil {
		return verbs.QP{}, err
	}
	_, caps := q.Query()
	return verbs.QP{H: n.add(q), QPN: q.Num(), Caps: caps}, nil
}

func (n *Node) ModifyQP(h verbs.Handle, a *verbs.QPAttr, mask qp.AttrMask) error {
	attr := roce.Attr{State: a.State, CurState: a.CurState, SQDNotify: a.SQDNotify, Access: a.Access, PKeyIndex: a.PKeyIndex,
		Port: a.Port, QKey: a.QKey, DCKey: a.DCKey, PathMTU: a.PathMTU, DestQPN: a.DestQPN, RQPSN: a.RQPSN, SQPSN: a.SQPSN, Timeout: a.Timeout,
		RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry, MinRNRTimer: a.MinRNRTimer, MaxRdAtomic: a.MaxRdAtomic,
		MaxDestRdAtomic: a.MaxDestRdAtomic}
	if mask&qp.AttrAV != 0 {
		path, err := n.path(a.AV)
		if err != nil {
			return err
		}
		attr.AV = path
		if a.FlushQuirk {
			attr.FlushICRCQuirk = true
			mask |= qp.AttrFlushICRCQuirk
		}
	}
	if mask&qp.AttrAltPath != 0 {
		path, err := n.path(a.Alt)
		if err != nil {
			return err
		}
		attr.AltAV, attr.AltPort, attr.AltTimeout = path, uint8(a.Alt.Port), a.AltTimeout
	}
	attr.PathMigState = qp.MigState(a.MigState)
	return get[*roce.QP](n, h).Modify(&attr, mask)
}

func (n *Node) QueryQP(h verbs.Handle, _ qp.AttrMask) (verbs.QPAttr, qp.Caps, error) {
	a, caps := get[*roce.QP](n, h).Query()
	return verbs.QPAttr{State: a.State, CurState: a.CurState, PathMTU: a.PathMTU, QKey: a.QKey, RQPSN: a.RQPSN, SQPSN: a.SQPSN,
		DestQPN: a.DestQPN, Access: a.Access, PKeyIndex: a.PKeyIndex, MaxRdAtomic: a.MaxRdAtomic, MaxDestRdAtomic: a.MaxDestRdAtomic,
		MinRNRTimer: a.MinRNRTimer, Port: a.Port, Timeout: a.Timeout, RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry,
		Draining: a.SQDraining, MigState: uint8(a.PathMigState)}, caps, nil
}

func (n *Node) DestroyQP(q verbs.Handle) error { return n.closed(q, get[*roce.QP](n, q).Close()) }

func (n *Node) PostSend(h verbs.Handle, wrs ...verbs.SendWR) error {
	list := make([]roce.SendWR, len(wrs))
	for i, w := range wrs {
		list[i] = n.send(w)
	}
	posted, err := get[*roce.QP](n, h).PostSends(list)
	if err != nil {
		return &verbs.Error{Side: "roce", Call: "post_send", Errno: verbs.Errno(err), Posted: posted}
	}
	return nil
}

// send converts a work request.
func (n *Node) send(w verbs.SendWR) roce.SendWR {
	var s roce.SendWR
	switch w.Op {
	case qp.BindMW:
		return get[*roce.MW](n, w.MW).WR(n.bind(w.Bind, w.ID, w.Flags, w.NewKey))
	case qp.RegMR:
		s = get[*roce.FastMR](n, w.FastMR).RegWR(w.Bind.Access)
		s.ID, s.Flags, s.RKey = w.ID, w.Flags, w.NewKey
		return s
	case qp.CQEWait:
		return get[*roce.CQ](n, w.WaitCQ).WaitWR(w.ID, w.Count, w.Flags)
	case qp.SendEnable:
		return get[*roce.QP](n, w.Enable).SendEnableWR(w.ID, w.Count, w.Flags)
	case qp.RecvEnable:
		return get[*roce.QP](n, w.Enable).RecvEnableWR(w.ID, w.Count, w.Flags)
	}
	return roce.SendWR{ID: w.ID, Opcode: w.Op, Flags: w.Flags, SG: w.SG, Inline: w.Inline, RemoteAddr: w.RemoteAddr,
		RKey: w.RKey, Imm: w.Imm, InvKey: w.InvKey, CompareAdd: w.CompareAdd, Swap: w.Swap,
		CompareMask: w.CompareMask, SwapMask: w.SwapMask, Boundary: w.Boundary,
		FlushType: w.FlushType, Selectivity: w.FlushLevel, Length: w.FlushLength, Calc: w.Calc,
		AH: get[*roce.AH](n, w.AH), RemoteQPN: w.QPN, RemoteQKey: w.QKey, DCKey: w.DCKey, RemoteSRQN: bth.SRQN(w.SRQN)}
}

// PostTask calls Device.PostTask.
func (n *Node) PostTask(tasks ...verbs.Task) (bad int, err error) {
	list := make([]roce.Task, len(tasks))
	for i, t := range tasks {
		list[i].QP = get[*roce.QP](n, t.QP)
		for _, w := range t.Sends {
			list[i].Sends = append(list[i].Sends, n.send(w))
		}
	}
	return n.dev.PostTask(list)
}

// PostSendEx is the same as PostSend: package roce has only one call for posting sends.
func (n *Node) PostSendEx(h verbs.Handle, wrs ...verbs.SendWR) error { return n.PostSend(h, wrs...) }

func (n *Node) PostRecv(h verbs.Handle, wrs ...verbs.RecvWR) error {
	return postRecvs("post_recv", get[*roce.QP](n, h), wrs)
}
