package rdmacm

import (
	"cmp"
	"context"
	"errors"
	"syscall"

	"github.com/goroce/roce"
)

// queues are the queue pair of an ID and its queues.
type queues struct {
	pd             *roce.PD
	qp             *roce.QP
	srq            *roce.SRQ
	sendCQ, recvCQ *roce.CQ
	made           []*roce.CQ // made by CreateQP
}

// CreateQP makes the queue pair of the ID (rdma_create_qp), in pd; for nil it
// uses the host's domain for the device. If c has no completion queues, CreateQP
// makes two. The queue pair uses the shared receive queue of the ID, if it has
// one. It is in INIT, in which receives can be posted; a UD queue pair is in RTS
// with Q_Key [UDPQKey]. The connection manager makes the further changes of
// state.
//
// CreateQP fails with EINVAL before the ID is bound to a device, if it already
// has a queue pair, if the domain belongs to another device, or if the type is
// not that of the ID (for [IB]: RC or UC).
func (id *ID) CreateQP(pd *roce.PD, c roce.QPConfig) error {
	const op = "create qp"
	id.op.Lock()
	defer id.op.Unlock()
	s := id.snapshot()
	dev, t, srq := s.dev, s.qpType, s.queues.srq
	if dev == nil || s.queues.qp != nil {
		return id.fail(op, syscall.EINVAL, "the ID is bound to no device, or has a queue pair")
	}
	if c.Type == roce.UC && id.ps == IB && s.conn == nil { // its type is not fixed yet
		t = roce.UC
	}
	if c.Type != 0 && c.Type != t {
		return id.fail(op, syscall.EINVAL, "type %v, the ID is of %v", c.Type, t)
	}
	c.Type = t
	if pd == nil {
		pd = id.host.pd(dev)
	}
	c.Caps, c.SRQ = cmp.Or(c.Caps, roce.DefaultCaps), cmp.Or(c.SRQ, srq)
	made := queues{pd: pd, srq: srq}
	fill := func(q **roce.CQ, n int) error {
		if *q != nil {
			return nil
		}
		var err error
		if *q, err = dev.CreateCQ(max(n, 1)); err == nil {
			made.made = append(made.made, *q)
		}
		return err
	}
	err := fill(&c.SendCQ, c.Caps.MaxSendWR)
	if err == nil {
		err = fill(&c.RecvCQ, c.Caps.MaxRecvWR)
	}
	if err == nil {
		if made.qp, err = pd.CreateQP(c); err == nil {
			err = initQP(dev, made.qp, t)
		}
	}
	if err != nil {
		made.close()
		return id.named(op, err)
	}
	made.sendCQ, made.recvCQ = made.qp.SendCQ(), made.qp.RecvCQ()
	id.locked(func() { id.queues, id.qpType = made, t })
	return nil
}

// lateAccess has the rights of a peer to which READs were granted.
const lateAccess = roce.DefaultQPAccess

func initQP(d *roce.Device, q *roce.QP, t roce.QPType) error {
	if t != roce.UD {
		return q.Init(roce.RemoteWrite, 0) // lateAccess is added when READs are granted
	}
	if err := q.Init(0, UDPQKey); err != nil {
		return err
	}
	return q.Ready(d.RandomPSN())
}

// close destroys the queues that CreateQP made.
func (q *queues) close() error {
	if q.qp != nil {
		if err := q.qp.Close(); err != nil && !errors.Is(err, roce.ErrClosed) {
			return err // the queue pair still uses its queues
		}
	}
	var errs []error
	for _, c := range q.made {
		if err := c.Close(); err != nil && !errors.Is(err, roce.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// DestroyQP destroys the queue pair that CreateQP made, with its queues
// (rdma_destroy_qp). It first detaches the queue pair from the groups that the
// ID has joined. Without a queue pair it does nothing.
func (id *ID) DestroyQP() error {
	id.op.Lock()
	defer id.op.Unlock()
	s := id.snapshot()
	q := s.queues
	if q.qp == nil {
		return nil
	}
	for _, g := range s.groups {
		g.detach()
	}
	if s.conn != nil {
		s.conn.Flush()
		s.conn.SetQP(nil)
	}
	if err := q.close(); err != nil {
		return err
	}
	id.locked(func() { id.queues = queues{srq: q.srq} })
	return nil
}

// QP returns the queue pair, nil before CreateQP.
func (id *ID) QP() *roce.QP { id.mu.Lock(); defer id.mu.Unlock(); return id.queues.qp }

// PD returns the protection domain of the queue pair. Without a queue pair it
// returns the host's domain for the device, or nil without a device.
func (id *ID) PD() *roce.PD {
	s := id.snapshot()
	if s.queues.pd == nil && s.dev != nil {
		return id.host.pd(s.dev)
	}
	return s.queues.pd
}

// SendCQ returns the completion queue of sends, nil before CreateQP.
func (id *ID) SendCQ() *roce.CQ { id.mu.Lock(); defer id.mu.Unlock(); return id.queues.sendCQ }

// RecvCQ returns the completion queue of receives, nil before CreateQP.
func (id *ID) RecvCQ() *roce.CQ { id.mu.Lock(); defer id.mu.Unlock(); return id.queues.recvCQ }

// SRQ returns the shared receive queue that CreateSRQ made, or nil.
func (id *ID) SRQ() *roce.SRQ { id.mu.Lock(); defer id.mu.Unlock(); return id.queues.srq }

// CreateSRQ makes a shared receive queue for a later CreateQP (rdma_create_srq).
// It fails with EINVAL before the ID is bound to a device, and if the ID already
// has one.
func (id *ID) CreateSRQ(pd *roce.PD, c roce.SRQConfig) error {
	id.op.Lock()
	defer id.op.Unlock()
	if id.Device() == nil || id.SRQ() != nil {
		return id.fail("create srq", syscall.EINVAL, "the ID is bound to no device, or has a shared receive queue")
	}
	if pd == nil {
		pd = id.PD()
	}
	s, err := pd.CreateSRQ(c)
	if err != nil {
		return id.named("create srq", err)
	}
	id.locked(func() { id.queues.srq = s })
	return nil
}

// DestroySRQ destroys the shared receive queue (rdma_destroy_srq). It fails with
// EBUSY before DestroyQP.
func (id *ID) DestroySRQ() error {
	id.op.Lock()
	defer id.op.Unlock()
	s := id.SRQ()
	if s == nil {
		return nil
	}
	if err := s.Close(); err != nil && !errors.Is(err, roce.ErrClosed) {
		return err
	}
	id.locked(func() { id.queues.srq = nil })
	return nil
}

// InitQPAttr returns the attributes to modify a queue pair of the program to
// INIT, RTR or RTS (rdma_init_qp_attr). Before Connect or a request it knows
// INIT only, and fails with EINVAL for the others. For RTR it may wait for the
// neighbour's answer. For UD queue pairs: INIT with Q_Key [UDPQKey], the
// others without attributes.
func (id *ID) InitQPAttr(ctx context.Context, s roce.QPState) (roce.Attr, roce.AttrMask, error) {
	const op = "init qp attr"
	id.op.Lock()
	now := id.snapshot()
	conn, t, dev := now.conn, now.qpType, now.dev
	id.op.Unlock()
	attr := roce.Attr{State: s, Port: 1}
	switch {
	case dev == nil:
		return attr, 0, id.fail(op, syscall.EINVAL, "the ID is bound to no device")
	case t == roce.UD && s == roce.StateInit:
		attr.QKey = UDPQKey
		return attr, roce.AttrState | roce.AttrPKeyIndex | roce.AttrPort | roce.AttrQKey, nil
	case t == roce.UD && s == roce.StateRTR:
		return attr, roce.AttrState, nil
	case t == roce.UD && s == roce.StateRTS:
		attr.SQPSN = dev.RandomPSN()
		return attr, roce.AttrState | roce.AttrSQPSN, nil
	case conn == nil && s == roce.StateInit:
		attr.Access = roce.RemoteWrite
		return attr, roce.AttrState | roce.AttrPKeyIndex | roce.AttrPort | roce.AttrAccess, nil
	case conn == nil:
		return attr, 0, id.fail(op, syscall.EINVAL, "state %v before there is a connection", s)
	}
	a, err := conn.QPAttr()
	if err != nil {
		return attr, 0, id.named(op, err)
	}
	a.Timeout = cmp.Or(now.opts.ackTimeout, a.Timeout)
	attr, mask, err := conn.Attr(ctx, t, s, a, roce.DefaultMinRNRTimer)
	return attr, mask, id.named(op, err)
}

// RegMsgs registers memory for messages (rdma_reg_msgs): LOCAL_WRITE.
func (id *ID) RegMsgs(buf []byte) (*roce.MR, error) { return id.reg(buf, roce.LocalWrite) }

// RegRead registers memory that the peer may READ (rdma_reg_read).
func (id *ID) RegRead(buf []byte) (*roce.MR, error) {
	return id.reg(buf, roce.LocalWrite|roce.RemoteRead)
}

// RegWrite registers memory that the peer may WRITE (rdma_reg_write).
func (id *ID) RegWrite(buf []byte) (*roce.MR, error) {
	return id.reg(buf, roce.LocalWrite|roce.RemoteWrite)
}

func (id *ID) reg(buf []byte, a roce.Access) (*roce.MR, error) {
	pd := id.PD()
	if pd == nil {
		return nil, id.fail("register memory", syscall.EINVAL, "the ID is bound to no device")
	}
	return pd.RegMR(buf, a)
}

// noQP is the error of posting without a queue pair.
func (id *ID) noQP(op string) error { return id.fail(op, syscall.EINVAL, "the ID has no queue pair") }

// PostRecv posts a receive (rdma_post_recv, rdma_post_recvv), to the shared
// receive queue if the ID has one. The completion has wrID.
func (id *ID) PostRecv(wrID uint64, sg ...roce.SGE) error {
	id.mu.Lock()
	q, srq := id.queues.qp, id.queues.srq
	id.mu.Unlock()
	wr := &roce.RecvWR{ID: wrID, SG: sg}
	switch {
	case srq != nil:
		return srq.PostRecv(wr)
	case q != nil:
		return q.PostRecv(wr)
	}
	return id.noQP("post recv")
}

func (id *ID) post1(op string, wr *roce.SendWR) error {
	q := id.QP()
	if q == nil {
		return id.noQP(op)
	}
	return q.PostSend(wr)
}

// PostSend posts a SEND (rdma_post_send, rdma_post_sendv).
func (id *ID) PostSend(wrID uint64, flags roce.SendFlags, sg ...roce.SGE) error {
	return id.post1("post send", &roce.SendWR{ID: wrID, Opcode: roce.Send, Flags: flags, SG: sg})
}

// PostRead posts an RDMA READ of the peer's memory into sg (rdma_post_read,
// rdma_post_readv).
func (id *ID) PostRead(wrID uint64, flags roce.SendFlags, remote uint64, key roce.RKey, sg ...roce.SGE) error {
	return id.post1("post read", &roce.SendWR{ID: wrID, Opcode: roce.Read, Flags: flags, SG: sg, RemoteAddr: remote, RKey: key})
}

// PostWrite posts an RDMA WRITE of sg into the peer's memory (rdma_post_write,
// rdma_post_writev).
func (id *ID) PostWrite(wrID uint64, flags roce.SendFlags, remote uint64, key roce.RKey, sg ...roce.SGE) error {
	return id.post1("post write", &roce.SendWR{ID: wrID, Opcode: roce.Write, Flags: flags, SG: sg, RemoteAddr: remote, RKey: key})
}

// PostUDSend posts a datagram to a UD queue pair with Q_Key [UDPQKey]
// (rdma_post_ud_send).
func (id *ID) PostUDSend(wrID uint64, flags roce.SendFlags, ah *roce.AH, n roce.QPN, sg ...roce.SGE) error {
	return id.post1("post ud send", &roce.SendWR{ID: wrID, Opcode: roce.Send, Flags: flags, SG: sg, AH: ah, RemoteQPN: n, RemoteQKey: UDPQKey})
}

// SendComp waits for the next completion of a send (rdma_get_send_comp).
func (id *ID) SendComp(ctx context.Context) (roce.WC, error) {
	return id.comp(ctx, id.SendCQ())
}

// RecvComp waits for the next completion of a receive (rdma_get_recv_comp).
func (id *ID) RecvComp(ctx context.Context) (roce.WC, error) {
	return id.comp(ctx, id.RecvCQ())
}

func (id *ID) comp(ctx context.Context, q *roce.CQ) (roce.WC, error) {
	if q == nil {
		return roce.WC{}, id.noQP("wait for a completion")
	}
	return q.Next(ctx)
}
