package roce

import (
	"syscall"

	"github.com/goroce/roce/bth/ids"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/qp"
)

// The attributes of a shared receive queue.
type (
	SRQAttr     = qp.SRQAttr     // struct ibv_srq_attr
	SRQAttrMask = qp.SRQAttrMask // enum ibv_srq_attr_mask
)

// The attributes that [SRQ.Modify] sets.
const (
	SRQMaxWR = qp.SRQMaxWR
	SRQLimit = qp.SRQLimit
)

// maxSRQ is the number of shared receive queues that a device can have.
const maxSRQ = 1 << 20

// SRQConfig is struct ibv_srq_init_attr.
type SRQConfig struct {
	MaxWR  int // capacity in receives; rounded up to 2^k; [SRQ.Query] returns the result
	MaxSGE int // scatter elements of one receive; 0: 1
	Limit  int // arms [EventSRQLimit], see [SRQAttr]; 0: not armed

	// Shard is the shard of the queue, see [CQConfig]. Only queue pairs of
	// this shard can use the queue.
	Shard int

	// XRCD makes it a queue for XRC (IBV_SRQT_XRC): only target queue pairs of
	// that domain use it, and its receives complete into CQ. Both must be of one
	// shard, which is also that of the queue; Shard has no effect.
	XRCD *XRCD
	CQ   *CQ

	UserData any // returned by SRQ.UserData (srq_context)
}

// SRQ is a shared receive queue (struct ibv_srq) of many queue pairs: the next
// message of any of them takes the next receive. Its methods may be called
// from any goroutine.
//
// A receive completes into the receive completion queue of the queue pair whose
// message took it, or for XRC into that of the shared receive queue; WC.QPN is
// the number of that queue pair. The memory of a receive must be in the domain
// of the shared receive queue; the queue pairs may be in other domains.
type SRQ struct {
	dev      *Device
	shard    *nic.Shard
	pd       *PD
	cq       *CQ
	engine   *qp.SRQ
	userData any
	closed   bool // changes with every shard locked
}

// CreateSRQ creates a shared receive queue (ibv_create_srq). It fails with
// EINVAL if MaxWR is not within 1…DeviceAttr.MaxSRQWR, MaxSGE is more than
// DeviceAttr.MaxSRQSGE, Limit is more than the capacity, the shard does not
// exist, only one of XRCD and CQ is set, or these two are not of this device
// and of one shard.
func (p *PD) CreateSRQ(c SRQConfig) (*SRQ, error) {
	d := p.dev
	if c.Shard < 0 || c.Shard >= d.nic.Shards() {
		return nil, fail("create srq", syscall.EINVAL, "shard %d, the device has %d", c.Shard, d.nic.Shards())
	}
	s := &SRQ{dev: d, shard: d.nic.Shard(c.Shard), pd: p, cq: c.CQ, userData: c.UserData}
	e := qp.SRQConfig{PD: p.pd, MaxWR: c.MaxWR, MaxSGE: c.MaxSGE, Limit: c.Limit,
		Event: func(_ *qp.SRQ, t qp.EventType) { d.raise(Event{Type: EventType(t), SRQ: s}) }}
	if c.XRCD != nil || c.CQ != nil {
		if c.XRCD == nil || c.CQ == nil || c.XRCD.dev != d || c.XRCD.shard != c.CQ.shard {
			return nil, fail("create srq", syscall.EINVAL, "XRC needs an XRC domain and a completion queue, of this device and of one shard")
		}
		s.shard = c.XRCD.shard
		e.XRCD, e.CQ = c.XRCD.engine, c.CQ.q
	}
	d.nic.Lock()
	defer d.nic.Unlock()
	if d.nic.Closed() || p.closed || c.XRCD != nil && (c.XRCD.closed || c.CQ.closed) {
		return nil, ErrClosed
	}
	if err := d.nic.Check(); err != nil {
		return nil, err
	}
	var err error
	if e.Num, err = d.srqNumber(s); err != nil {
		return nil, err
	}
	if s.engine, err = qp.NewSRQ(e); err != nil {
		d.freeSRQNumber(e.Num)
		return nil, err
	}
	if err := retain(s.uses()); err != nil {
		s.engine.Close()
		d.freeSRQNumber(e.Num)
		return nil, err
	}
	return s, nil
}

// uses lists the objects that cannot be closed while the queue exists. The XRC
// domain counts its queues itself.
func (s *SRQ) uses() []retained {
	if s.cq != nil {
		return []retained{s.pd.pd, s.cq.q}
	}
	return []retained{s.pd.pd}
}

// newSRQNumbers makes the table of the numbers of shared receive queues. They are random,
// like those of queue pairs, because a peer names the queue by its number with XRC.
func newSRQNumbers(rnd func() uint64) *ids.Table[SRQ] {
	return ids.NewTable[SRQ](ids.Config{Max: maxSRQ, Rand: rnd, Rest: nic.MaxResting, Reserved: func(n uint32) bool { return n == 0 }})
}

// srqNumber gives a queue a number.
func (d *Device) srqNumber(s *SRQ) (SRQN, error) {
	n, ok := d.srqs.Draw(d.nic.Now(), s, ids.Part{})
	if !ok {
		return 0, fail("create srq", syscall.ENOMEM, "the device has %d shared receive queues, the limit; close some first", d.srqs.Len())
	}
	return SRQN(n), nil
}

// freeSRQNumber undoes srqNumber.
func (d *Device) freeSRQNumber(n SRQN) { d.srqs.Free(uint32(n), d.nic.Now().Add(nic.NumberRest)) }

// Num returns the number of the queue (ibv_get_srq_num).
func (s *SRQ) Num() SRQN { return s.engine.Num() }

// PD returns the protection domain of its receives.
func (s *SRQ) PD() *PD { return s.pd }

// UserData returns SRQConfig.UserData (srq_context).
func (s *SRQ) UserData() any { return s.userData }

// PostRecv queues a receive (ibv_post_srq_recv of one). It copies wr; the
// memory that wr names stays in use until the completion. It fails with an
// *[Error], for instance ENOMEM if the queue is full.
func (s *SRQ) PostRecv(wr *RecvWR) error {
	if wr == nil {
		return errs.On("post receive", s.Num().Object(), syscall.EINVAL, "the work request is nil")
	}
	return s.locked(func() error { return s.engine.PostRecv(wr) })
}

// PostRecvs queues several receives (ibv_post_srq_recv of a list). It stops at the first
// refused receive, wrs[n] (bad_wr), and returns n.
func (s *SRQ) PostRecvs(wrs []RecvWR) (n int, err error) {
	err = s.locked(func() error {
		n, err = postRecvs(s.engine, wrs)
		return err
	})
	return n, err
}

// Modify resizes the queue, which keeps its receives, or arms the limit
// (ibv_modify_srq). It fails with EINVAL if a size is out of range, below the
// limit or below the number of queued receives, or if the limit is more than
// the capacity, and then changes nothing.
func (s *SRQ) Modify(a SRQAttr, mask SRQAttrMask) error {
	return s.locked(func() error { return s.engine.Modify(a, mask) })
}

// Query returns the granted sizes and the limit (ibv_query_srq). The limit is 0
// after its event.
func (s *SRQ) Query() SRQAttr {
	s.shard.Lock()
	defer s.shard.Unlock()
	return s.engine.Query()
}

// Len returns the number of receives in the queue.
func (s *SRQ) Len() int {
	s.shard.Lock()
	defer s.shard.Unlock()
	return s.engine.Len()
}

func (s *SRQ) locked(f func() error) error {
	s.shard.Lock()
	defer s.shard.Unlock()
	if s.closed || s.dev.nic.Closed() {
		return ErrClosed
	}
	return f()
}

// CQ returns the completion queue of a queue for XRC, and nil for others.
func (s *SRQ) CQ() *CQ { return s.cq }

// Close destroys the queue (ibv_destroy_srq). Its receives get no completion. It
// fails with EBUSY while queue pairs use it, and while an XRC target that has
// received a part of a message uses one of its receives; [QP.Modify] of the target
// to RESET or ERR ends this use.
func (s *SRQ) Close() error {
	return s.dev.closeOnce(&s.closed, func() error {
		if err := s.engine.Close(); err != nil {
			return err
		}
		s.dev.freeSRQNumber(s.Num())
		s.dev.events.drop(func(e *Event) bool { return e.SRQ == s })
		release(s.uses())
		return nil
	})
}
