package roce

import (
	"cmp"
	"context"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/qp"
)

// QPConfig is struct ibv_qp_init_attr.
type QPConfig struct {
	Type      QPType // RC, UC, UD, XRCSend or DCI; 0: RC
	SendCQ    *CQ
	RecvCQ    *CQ  // nil: SendCQ
	SRQ       *SRQ // source of receives; nil: the queue pair has its own receive queue
	Caps      Caps // zero: [DefaultCaps]
	SignalAll bool // every send generates a completion

	// MaskedAtomics allows [MaskedCompareSwap] and [MaskedFetchAdd] on an RC queue
	// pair, in both directions. Only this stack has them. The peer must set
	// MaskedAtomics, too, or they end with RETRY_EXC_ERR. See
	// docs/masked-atomics.md.
	MaskedAtomics bool

	// MaxAtomicArg is the maximum size of an operand of masked atomics in bytes, max_atomic_arg of
	// ibv_exp_qp_init_attr: 8, 16 or 32. 0: 8. More than 8 makes all atomics of the device slower.
	MaxAtomicArg int

	// BigEndianReply stores the results of all atomics in network byte order, each 8 bytes separately. Otherwise they are
	// in the byte order of the host. The peer need not know.
	BigEndianReply bool

	// Congestion turns on congestion control for this queue pair with its own
	// parameters. Nil: those of the device ([Config.Congestion]). See
	// docs/congestion-control.md.
	Congestion *DCQCN

	// SplitWrites sends each packet of a WRITE of 2 to 32 packets as a separate message,
	// on a reliable queue pair. The drivers link/udp and link/raw then send such WRITEs
	// faster; other drivers do not. The standard requires one message for each work
	// request; a peer sees the difference only in its counters. See docs/benchmarks.md.
	SplitWrites bool

	// CrossChannel allows [SendEnable], [RecvEnable], [CQEWait] and reductions on an RC
	// queue pair. A managed queue holds its work requests until a SendEnable or
	// RecvEnable of a queue pair of the shard releases them. See docs/cross-channel.md.
	CrossChannel bool
	ManagedSend  bool
	ManagedRecv  bool

	// RecvRing is where the program puts receives without a call, on an RC or UC queue pair without SRQ. Front ends use it, such
	// as the library for C; after a queue pair has failed they call [QP.EndRecvs]. Nil: there is none.
	RecvRing *RecvRing

	Window   int // maximum of unacknowledged packets; 0: qp.DefaultWindow
	UserData any // returned by QP.UserData (qp_context)

	// NoMulticastLoopback stops the delivery of the queue pair's multicast
	// datagrams to the device's own queue pairs
	// (IBV_QP_CREATE_BLOCK_SELF_MCAST_LB).
	NoMulticastLoopback bool
}

// DefaultCaps are the queue sizes of a queue pair without Caps.
var DefaultCaps = Caps{MaxSendWR: 128, MaxRecvWR: 128, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64}

// QP is a queue pair (struct ibv_qp). Its methods may be called from any
// goroutine. Posting sends on the caller's goroutine.
type QP struct {
	nic nic.QP // first: its first cache line has the fields that every packet needs

	dev            *Device
	pd             *PD
	sendCQ, recvCQ *CQ
	srq            *SRQ    // nil: none
	xrcd           *XRCD   // of an XRC target, which has none of the fields above
	target         *target // of an XRC target and all its handles; nil for other queue pairs
	userData       any

	dct *DCT // the DC target to which the queue pair belongs; nil: a queue pair of the program
}

// CreateQP creates a queue pair in state RESET (ibv_create_qp). Targets of XRC
// are created by [XRCD.CreateQP].
func (p *PD) CreateQP(c QPConfig) (*QP, error) {
	d := p.dev
	c.RecvCQ = cmp.Or(c.RecvCQ, c.SendCQ)
	if c.SendCQ == nil || c.SendCQ.dev != d || c.RecvCQ.dev != d {
		return nil, fail("create qp", syscall.EINVAL, "a completion queue of the same device is required")
	}
	if c.SendCQ.shard != c.RecvCQ.shard {
		return nil, fail("create qp", syscall.EINVAL, "both completion queues must be of one shard")
	}
	if c.SRQ != nil && c.SRQ.shard != c.SendCQ.shard {
		return nil, fail("create qp", syscall.EINVAL, "the shared receive queue must be of the device and shard of the completion queues")
	}
	switch c.Type {
	case 0:
		c.Type = qp.RC
	case qp.GSI:
		return nil, fail("create qp", syscall.EINVAL, "QP 1 is the device's own")
	case qp.XRCSend:
		c.RecvCQ = nil // as in ibv_create_qp_ex, which ignores it
	case qp.DCI:
		c.RecvCQ = nil // it receives nothing
	case qp.DCT:
		return nil, fail("create qp", syscall.EINVAL, "a target is no queue pair: use PD.CreateDCT")
	case qp.XRCRecv:
		return nil, fail("create qp", syscall.EINVAL, "an XRC target is in an XRC domain: use XRCD.CreateQP")
	}
	if c.NoMulticastLoopback && c.Type != qp.UD {
		return nil, fail("create qp", syscall.EINVAL, "a %v queue pair has no multicast", c.Type)
	}
	c.Caps = cmp.Or(c.Caps, DefaultCaps)
	return d.createQP(&QP{dev: d, pd: p, sendCQ: c.SendCQ, recvCQ: c.RecvCQ, srq: c.SRQ, userData: c.UserData}, c.SendCQ.shard, c)
}

// createQP makes the engine of a queue pair and adds it to the device. It returns the
// object for the program: the queue pair, or the first handle of an XRC target.
func (d *Device) createQP(q *QP, s *nic.Shard, c QPConfig) (*QP, error) {
	e := qp.Config{Type: c.Type, Memory: d.mem, Caps: c.Caps, PortMTU: bth.ActiveMTU(d.nic.MTU()), SignalAll: c.SignalAll,
		MaskedAtomics: c.MaskedAtomics, MaxAtomicArg: c.MaxAtomicArg, BigEndianReply: c.BigEndianReply, Congestion: d.congestion, Window: c.Window, SplitWrites: c.SplitWrites,
		CrossChannel: c.CrossChannel, ManagedSend: c.ManagedSend, ManagedRecv: c.ManagedRecv, AlwaysAckReq: d.nic.SleepsAtOnce()}
	if c.Congestion != nil {
		e.Congestion = d.lineRate(c.Congestion)
	}
	if c.Type == qp.DCI || c.Type == qp.DCT {
		e.Congestion = nil // DC has no congestion control
	}
	q.nic.Init(s, q, q.raise)
	d.nic.Lock()
	defer d.nic.Unlock()
	if c.Type == qp.DCI {
		e.FirstNumber = d.rand()
	}
	if q.dct != nil {
		var err error
		if e.DCT, err = q.dct.engine(d.nic, d.rand); err != nil {
			return nil, err
		}
	}
	var closed bool
	if q.pd != nil {
		e.PD, closed = q.pd.pd, closed || q.pd.closed
	}
	if q.sendCQ != nil {
		e.SendCQ, closed = q.sendCQ.q, closed || q.sendCQ.closed
	}
	if q.recvCQ != nil {
		e.RecvCQ, closed = q.recvCQ.q, closed || q.recvCQ.closed
	}
	if q.srq != nil {
		e.SRQ, closed = q.srq.engine, closed || q.srq.closed
	}
	if q.xrcd != nil {
		e.XRCD, closed = q.xrcd.engine, closed || q.xrcd.closed
	}
	if closed {
		return nil, ErrClosed
	}
	if err := d.nic.Check(); err != nil {
		return nil, err
	}
	if err := d.nic.Create(&q.nic, e, c.RecvRing, c.NoMulticastLoopback, func() error { return retain(q.uses()) }); err != nil {
		return nil, err
	}
	if q.target != nil {
		return q.handle(), nil
	}
	return q, nil
}

// retained is an object that cannot be closed while it has users.
type retained interface {
	Retain() error
	Release()
}

// retain adds a user to each of the objects, or, if it fails, to none.
func retain(objects []retained) error {
	for i, o := range objects {
		if err := o.Retain(); err != nil {
			release(objects[:i])
			return err
		}
	}
	return nil
}

func release(objects []retained) {
	for _, o := range objects {
		o.Release()
	}
}

// uses lists the objects that cannot be closed while the queue pair exists.
func (q *QP) uses() []retained {
	var u []retained
	if q.pd != nil {
		u = append(u, q.pd.pd)
	}
	for _, c := range []*CQ{q.sendCQ, q.recvCQ} {
		if c != nil {
			u = append(u, c.q)
		}
	}
	if q.srq != nil {
		u = append(u, q.srq.engine)
	}
	if q.xrcd != nil {
		u = append(u, q.xrcd.engine)
	}
	return u
}

// Close destroys the queue pair (ibv_destroy_qp). Queued work requests get no completion. An
// XRC target is destroyed when the last of its handles is closed, see [XRCD.OpenQP]. Close
// fails with EBUSY while the queue pair is attached to a multicast group (IBTA o10-2.2.3).
func (q *QP) Close() error {
	d := q.dev
	d.nic.Lock()
	defer d.nic.Unlock()
	if q.nic.Closed() {
		return ErrClosed
	}
	if n := q.nic.Attached(); n > 0 {
		return errs.On("close qp", q.Num().Object(), syscall.EBUSY, "it is attached to %d multicast groups", n)
	}
	d.events.drop(func(e *Event) bool { return e.QP == q || q.dct != nil && e.DCT == q.dct })
	if q.target != nil {
		q.nic.SetClosed()
		if !q.target.leave(q) {
			return nil
		}
		q = q.target.core
	}
	d.nic.Destroy(&q.nic)
	release(q.uses())
	return nil
}

// Num returns the queue pair number.
func (q *QP) Num() QPN { return q.nic.Num() }

// UserData returns QPConfig.UserData (qp_context).
func (q *QP) UserData() any { return q.userData }

// PD returns the protection domain; nil for an XRC target.
func (q *QP) PD() *PD { return q.pd }

// SendCQ returns the completion queue of sends; nil for an XRC target.
func (q *QP) SendCQ() *CQ { return q.sendCQ }

// RecvCQ returns the completion queue of receives; nil for XRC.
func (q *QP) RecvCQ() *CQ { return q.recvCQ }

// SRQ returns the shared receive queue, or nil.
func (q *QP) SRQ() *SRQ { return q.srq }

// CancelRecv cancels a receive that no message has begun to use: the receive
// completes with WR_FLUSH_ERR. It fails with ENOENT if there is none with this
// ID. The verbs have no such call.
func (q *QP) CancelRecv(id uint64) error {
	return q.post(1, func(e *qp.QP) error { return e.CancelRecv(id) })
}

// Modify changes attributes and state (ibv_modify_qp): all of them or, if it
// fails, none. mask selects the fields of a; the table of the verbs says which
// of them a change of state requires and allows. Other combinations fail with an
// *[Error] that wraps EINVAL and names the attribute.
//
// While a queue pair in SQD still drains, it can change to RESET or ERR only, and the
// attributes for the repetition of requests in flight cannot change: address vector, timeout,
// retries and MaxRdAtomic. If [AttrSQDNotify] was set in the change to SQD, the device raises
// [EventSQDrained] when the queue pair has drained.
//
// For Attr.AV use [Device.CreateAH]; [QP.Connect] does the usual sequence in one
// call.
func (q *QP) Modify(a *Attr, mask AttrMask) error {
	if a == nil {
		return errs.On("modify qp", q.Num().Object(), syscall.EINVAL, "the attributes are nil")
	}
	if err := q.checkAV(a, mask); err != nil {
		return err
	}
	return q.nic.Modify(q.core(), a, mask)
}

// core returns the queue pair in the NIC core: for a handle of an XRC target that of the
// target, for nil nil.
func (q *QP) core() *nic.QP {
	switch {
	case q == nil:
		return nil
	case q.target != nil:
		return &q.target.core.nic
	}
	return &q.nic
}

// raise receives the events of the engine, with the lock of the shard held.
func (q *QP) raise(t nic.EventType) {
	if q.dct != nil {
		q.dev.raise(Event{Type: EventType(t), DCT: q.dct})
		return
	}
	if q.target == nil {
		q.dev.raise(Event{Type: EventType(t), QP: q})
		return
	}
	for _, handle := range q.target.handles {
		q.dev.raise(Event{Type: EventType(t), QP: handle})
	}
}

// Query returns the attributes, with the current PSNs and whether the send
// queue is draining, and the granted sizes (ibv_query_qp). There is no mask: all
// attributes are always returned.
func (q *QP) Query() (a Attr, c Caps) {
	q.nic.View(func(e *qp.QP) { a, c = e.Query() })
	return a, c
}

// State returns the state.
func (q *QP) State() (s QPState) {
	q.nic.View(func(e *qp.QP) { s = e.State() })
	return s
}

// Init moves a new queue pair to INIT, in which receives can be posted. Only
// UD queue pairs use qkey.
func (q *QP) Init(access Access, qkey QKey) error {
	mask := qp.AttrState | qp.AttrPKeyIndex | qp.AttrPort
	if q.nic.Type() == qp.UD {
		mask |= qp.AttrQKey
	} else {
		mask |= qp.AttrAccess
	}
	return q.Modify(&Attr{State: qp.Init, Port: 1, Access: access, QKey: qkey}, mask)
}

// Peer describes the other end of an RC or UC queue pair, and the parameters of the
// connection. The two programs exchange this description by other means than RDMA.
type Peer struct {
	AHAttr
	QPN         QPN
	PSN         PSN // the first PSN that the peer sends
	MTU         MTU
	Timeout     uint8 // local ACK timeout code; 0: none
	RetryCnt    uint8
	RNRRetry    uint8
	MinRNRTimer RNRTimer
	RdAtomic    uint8 // READs and atomics this side may have outstanding

	// DestRdAtomic is the number that the peer may have outstanding at this
	// side; 0: RdAtomic.
	DestRdAtomic uint8

	// FlushICRCQuirk makes this side compute the ICRC of FLUSH as rxe of Linux
	// 6.12 does, which rejects the right ICRC. See [bth.CRC.UpdateFlushQuirk].
	FlushICRCQuirk bool
}

// Connect connects an RC, UC or XRC queue pair to a peer without the connection manager: it
// moves the queue pair from INIT through RTR to RTS. psn is the first PSN that the queue pair
// sends.
func (q *QP) Connect(ctx context.Context, p Peer, psn PSN) error {
	path, err := q.resolve(ctx, p.AHAttr, p.QPN)
	if err != nil {
		return err
	}
	t := q.nic.Type()
	err = q.Modify(&Attr{State: qp.RTR, AV: path, PathMTU: p.MTU, DestQPN: p.QPN, RQPSN: p.PSN, MaxDestRdAtomic: cmp.Or(p.DestRdAtomic, p.RdAtomic),
		MinRNRTimer: p.MinRNRTimer, FlushICRCQuirk: p.FlushICRCQuirk}, qp.MaskRTR(t))
	if err != nil {
		return err
	}
	return q.Modify(&Attr{State: qp.RTS, SQPSN: psn, Timeout: p.Timeout, RetryCnt: p.RetryCnt, RNRRetry: p.RNRRetry, MaxRdAtomic: p.RdAtomic}, qp.MaskRTS(t))
}

// resolve makes the path to a peer.
func (q *QP) resolve(ctx context.Context, a AHAttr, peer QPN) (*AH, error) {
	fl := cmp.Or(a.FlowLabel, frame.FlowLabelFromQPNs(q.Num(), peer))
	p, err := q.dev.nic.Routes().Resolve(ctx, route.Way(a), frame.SourcePort(fl))
	return qp.NewAH(p), err
}

// Ready moves a UD queue pair in INIT through RTR to RTS. psn is the first PSN
// that the queue pair sends; receivers ignore it. A UD queue pair has no peer:
// every work request names its destination.
func (q *QP) Ready(psn PSN) error {
	if err := q.Modify(&Attr{State: qp.RTR}, qp.AttrState); err != nil {
		return err
	}
	return q.Modify(&Attr{State: qp.RTS, SQPSN: psn}, qp.AttrState|qp.AttrSQPSN)
}

// Congestion returns the state of congestion control: whether it is on, and
// the current rate.
func (q *QP) Congestion() CongestionState { return q.nic.Congestion() }
