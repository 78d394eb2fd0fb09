package verbs

import (
	"context"
	"sync"
	"syscall"
	"unsafe"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/translate"
	"github.com/goroce/roce/qp"
)

// queuePair is a queue pair, or a handle of an XRC target.
type queuePair struct {
	base
	qp  *roce.QP
	typ roce.QPType

	send, recv *completionQueue // nil: none
	xrcd       *xrcDomain       // of an XRC target: the handle that made or opened it

	mu      sync.Mutex
	ah, alt abi.AHAttr // as given to ModifyQP; the path does not keep all fields
}

// blockLoopback is IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, the only flag of enum ibv_qp_create_flags in the stack.
const blockLoopback = 1 << 1

// Types of enum ibv_qp_type that the stack does not have.
const (
	typeRawPacket = 8
	typeDriver    = 0xFF
)

// atomicWriteLen is the data of an ATOMIC_WRITE, which ibv_wr_atomic_write takes inline from every queue
// pair.
const atomicWriteLen = 8

// inlinePerSGE is how many bytes of inline data a queue pair grants for each element of its lists. Adapters
// and rxe grant them without a request, and programs such as rdma_xclient rely on it.
const inlinePerSGE = 16

// CreateQP is ibv_create_qp_ex. It writes the granted sizes to init.
func CreateQP(ctx abi.Handle, init *abi.QPInit) (h abi.Handle, num uint32, err error) {
	c, err := find[*Context](ctx)
	if err != nil {
		return 0, 0, err
	}
	q := &queuePair{base: base{ctx: c, cookie: init.Cookie}, typ: roce.QPType(init.Type)}
	switch init.Type {
	case uint32(roce.RC), uint32(roce.UC), uint32(roce.UD), uint32(roce.XRCSend):
		err = q.create(init)
	case uint32(roce.XRCRecv):
		err = q.createTarget(init)
	case typeRawPacket, typeDriver:
		err = syscall.EOPNOTSUPP
	default:
		err = syscall.EINVAL
	}
	if err != nil {
		return 0, 0, err
	}
	if h, err = c.adopt(q); err != nil {
		return 0, 0, err
	}
	queuePairs.Store(place{c.roce, q.qp.Num()}, q)
	_, caps := q.qp.Query()
	init.Cap = translate.GrantedCaps(caps)
	return h, uint32(q.qp.Num()), nil
}

func (q *queuePair) create(init *abi.QPInit) error {
	if init.CreateFlags&^blockLoopback != 0 {
		return syscall.EOPNOTSUPP
	}
	d, err := find[*domain](init.PD)
	if err != nil {
		return err
	}
	send, err := find[*completionQueue](init.SendCQ)
	if err != nil {
		return err
	}
	q.send = send
	config := roce.QPConfig{Type: q.typ, SendCQ: send.cq, Caps: translate.Caps(&init.Cap), SignalAll: init.SignalAll != 0, UserData: q,
		NoMulticastLoopback: init.CreateFlags&blockLoopback != 0}
	if q.typ != roce.XRCSend {
		recv, err := find[*completionQueue](init.RecvCQ)
		if err != nil {
			return err
		}
		srq, err := findOptional[*sharedQueue](init.SRQ)
		if err != nil {
			return err
		}
		config.RecvCQ, q.recv = recv.cq, recv
		if srq != nil {
			config.SRQ = srq.srq
		}
		config.RecvRing = recvRing(init)
	}
	inline := min(inlinePerSGE*config.Caps.MaxSendSGE, qp.MaxInline)
	if q.typ == roce.RC || q.typ == roce.XRCSend {
		inline = max(inline, atomicWriteLen)
	}
	if n := &config.Caps.MaxInlineData; *n >= 0 { // a negative size is refused
		*n = max(*n, inline)
	}
	q.qp, err = d.pd.CreateQP(config)
	return err
}

// recvRing returns the ring of receives that the library shares with a queue pair; nil: none.
func recvRing(init *abi.QPInit) *roce.RecvRing {
	if init.RecvRing == nil {
		return nil
	}
	state := (*roce.RecvRingState)(init.RecvRing)
	return &roce.RecvRing{RecvRingState: state, Slots: unsafe.Slice((*roce.RecvSlot)(unsafe.Add(init.RecvRing, unsafe.Sizeof(*state))), init.RecvSlots)}
}

// createTarget creates a target queue pair of XRC. It has an XRC domain and no protection domain.
func (q *queuePair) createTarget(init *abi.QPInit) error {
	x, err := find[*xrcDomain](init.XRCD)
	if err != nil {
		return err
	}
	if err := x.enter(); err != nil {
		return err
	}
	if q.qp, err = x.shared.xrcd.CreateQP(roce.QPConfig{Type: roce.XRCRecv, UserData: q}); err != nil {
		x.leave()
		return err
	}
	q.xrcd = x
	return nil
}

// OpenQP is ibv_open_qp: another handle of a target queue pair of XRC.
func OpenQP(xrcd abi.Handle, num uint32, cookie uint64) (abi.Handle, error) {
	x, err := find[*xrcDomain](xrcd)
	if err != nil {
		return 0, err
	}
	if err := x.enter(); err != nil {
		return 0, err
	}
	q := &queuePair{base: base{ctx: x.ctx, cookie: cookie}, typ: roce.XRCRecv, xrcd: x}
	if q.qp, err = x.shared.xrcd.OpenQP(roce.QPN(num)); err != nil {
		x.leave()
		return 0, err
	}
	x.ctx.dev.opened.Store(q.qp, q) // the UserData of the queue pair belongs to its creator
	return x.ctx.adopt(q)
}

// DestroyQP is ibv_destroy_qp.
func DestroyQP(qp abi.Handle) error { return destroy[*queuePair](qp) }

func (q *queuePair) close() error {
	if err := q.qp.Close(); err != nil {
		return err
	}
	q.xrcd.leave()
	q.forget()
	queuePairs.CompareAndDelete(place{q.ctx.roce, q.qp.Num()}, q)
	q.ctx.dev.opened.Delete(q.qp)
	q.dropCompletions()
	return nil
}

// dropCompletions removes the completions of the queue pair from its completion queues.
func (q *queuePair) dropCompletions() {
	num := uint32(q.qp.Num())
	q.send.drop(num)
	if q.recv != q.send {
		q.recv.drop(num)
	}
}

// ModifyQP is ibv_modify_qp. It resolves the address vectors, so it may wait for a neighbour.
func ModifyQP(qp abi.Handle, attr *abi.QPAttr, mask uint32) error {
	q, err := find[*queuePair](qp)
	if err != nil {
		return err
	}
	m, err := translate.AttrMask(q.typ, mask)
	if err != nil {
		return err
	}
	a := translate.Attr(attr)
	for _, v := range []struct {
		bit roce.AttrMask
		in  *abi.AHAttr
		out **roce.AH
	}{{roce.AttrAV, &attr.AH, &a.AV}, {roce.AttrAltPath, &attr.AltAH, &a.AltAV}} {
		if m&v.bit == 0 {
			continue
		}
		if *v.out, err = q.resolve(v.in, &a, m); err != nil {
			return err
		}
	}
	if err := q.qp.Modify(&a, m); err != nil {
		return err
	}
	if m&roce.AttrState != 0 && a.State == roce.StateReset {
		q.dropCompletions()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if m&roce.AttrAV != 0 {
		q.ah = attr.AH
	}
	if m&roce.AttrAltPath != 0 {
		q.alt = attr.AltAH
	}
	return nil
}

// resolve makes the path of an address vector. Without a flow label the path gets one that is derived from the
// two queue pairs, as on Linux, so that connections have different UDP source ports.
func (q *queuePair) resolve(av *abi.AHAttr, a *roce.Attr, m roce.AttrMask) (*roce.AH, error) {
	to, err := translate.AHAttr(av)
	if err != nil {
		return nil, err
	}
	if to.FlowLabel == 0 {
		peer := a.DestQPN
		if m&roce.AttrDestQPN == 0 {
			now, _ := q.qp.Query()
			peer = now.DestQPN
		}
		to.FlowLabel = frame.FlowLabelFromQPNs(q.qp.Num(), peer)
	}
	return q.ctx.roce.CreateAH(context.Background(), to)
}

// QueryQP is ibv_query_qp.
func QueryQP(qp abi.Handle, attr *abi.QPAttr, caps *abi.Caps) error {
	q, err := find[*queuePair](qp)
	if err != nil {
		return err
	}
	a, granted := q.qp.Query()
	*caps = translate.GrantedCaps(granted)
	translate.QPAttr(attr, &a)
	attr.Cap = *caps
	q.mu.Lock()
	defer q.mu.Unlock()
	if path, ok := q.qp.Path(); ok {
		attr.AH = q.given(&path)
	}
	if a.AltAV != nil {
		attr.AltAH = q.alt
	}
	return nil
}

// given returns the address vector of a path as the program gave it. After a migration the path is the former
// alternate path.
func (q *queuePair) given(path *roce.AHAttr) (out abi.AHAttr) {
	for _, v := range []*abi.AHAttr{&q.ah, &q.alt} {
		if v.IsGlobal != 0 && v.DGID == path.DGID && int(v.SGIDIndex) == path.SGIDIndex {
			return *v
		}
	}
	translate.FromAHAttr(&out, path)
	return out
}

// AttachMcast is ibv_attach_mcast.
func AttachMcast(qp abi.Handle, gid *[16]byte) error {
	return multicast(qp, gid, (*roce.QP).AttachMulticast)
}

// DetachMcast is ibv_detach_mcast.
func DetachMcast(qp abi.Handle, gid *[16]byte) error {
	return multicast(qp, gid, (*roce.QP).DetachMulticast)
}

func multicast(qp abi.Handle, gid *[16]byte, f func(*roce.QP, roce.GID) error) error {
	q, err := find[*queuePair](qp)
	if err != nil {
		return err
	}
	return f(q.qp, *gid)
}
