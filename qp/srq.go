package qp

import (
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/mr"
)

// Limits of a shared receive queue, as ibv_query_device reports them.
const (
	MaxSRQWR  = 1 << 20 // receives it may hold
	MaxSRQSGE = MaxSGE  // scatter elements of one receive
)

// SRQConfig has the parameters of a new shared receive queue (struct ibv_srq_init_attr).
type SRQConfig struct {
	Num    bth.SRQN
	PD     *mr.PD
	MaxWR  int // receives it must hold; rounded up to 2^k
	MaxSGE int // scatter elements of one receive; 0: 1
	Limit  int // see [SRQAttr]

	Event func(*SRQ, EventType) // [EventSRQLimit]; nil: dropped

	// XRCD makes it a queue for XRC: only target queue pairs of that domain take receives from it. CQ is then the
	// completion queue of its receives.
	XRCD *XRCD
	CQ   *cq.CQ
}

// SRQAttr is struct ibv_srq_attr.
type SRQAttr struct {
	MaxWR  int // receives it holds
	MaxSGE int // scatter elements of one receive

	// Limit arms [EventSRQLimit], which is raised once when a message takes a
	// receive and fewer than that are left; then Limit is 0 again. 0: not
	// armed. (IBTA 10.2.9.)
	Limit int
}

// SRQAttrMask says which fields of an [SRQAttr] a Modify sets, with the bits of
// enum ibv_srq_attr_mask.
type SRQAttrMask uint32

const (
	SRQMaxWR SRQAttrMask = 1 << 0 // MaxWR and, unless it is 0, MaxSGE
	SRQLimit SRQAttrMask = 1 << 1
)

// SRQ is a shared receive queue (struct ibv_srq): queue pairs take their receives from it instead of from a queue of
// their own. Like a completion queue it belongs to the owner of those queue pairs: it is not safe for concurrent use
// with any of them.
//
// A message takes the oldest receive when it begins. From then on the receive belongs to the queue pair. It completes
// once, into the receive completion queue of that queue pair, even if the queue pair fails. Only RESET drops it
// without a completion. Receives in the queue are never flushed. A queue pair that has entered ERR, and whose receive
// is complete, raises [EventLastWQE].
//
// The scatter elements of its receives are checked against its own domain,
// which may be another than that of the queue pairs.
type SRQ struct {
	// Owner is for the owner's use; the engine never looks at it.
	Owner any

	num     bth.SRQN
	pd      *mr.PD
	onEvent func(*SRQ, EventType)

	xrcd   *XRCD  // nil: not for XRC
	cq     *cq.CQ // of XRC
	rq     recvQueue
	sge    int
	limit  int
	users  int
	inUse  int // receives taken and not complete
	closed bool
}

// NewSRQ creates a shared receive queue (ibv_create_srq). Errors are *[errs.Error]
// and wrap EINVAL.
func NewSRQ(c SRQConfig) (*SRQ, error) {
	s := &SRQ{num: c.Num, pd: c.PD, onEvent: c.Event, xrcd: c.XRCD, cq: c.CQ}
	switch {
	case c.PD == nil:
		return nil, errs.New(createSRQ, syscall.EINVAL, "no protection domain")
	case (c.XRCD == nil) != (c.CQ == nil):
		return nil, errs.New(createSRQ, syscall.EINVAL, "an XRC domain and a completion queue belong together")
	}
	a := SRQAttr{MaxWR: c.MaxWR, MaxSGE: max(c.MaxSGE, defaultSGE), Limit: c.Limit}
	if c.MaxSGE < 0 {
		a.MaxSGE = c.MaxSGE
	}
	if err := s.check(createSRQ, &a, SRQMaxWR|SRQLimit); err != nil {
		return nil, err
	}
	if c.XRCD != nil {
		if err := c.XRCD.add(s); err != nil {
			return nil, err
		}
	}
	s.rq, s.sge, s.limit = newRecvQueue(a.MaxWR, a.MaxSGE), a.MaxSGE, a.Limit
	return s, nil
}

const createSRQ = "create srq" // there is no object to name yet

// refuse makes the error of a refused call.
func (s *SRQ) refuse(op string, errno syscall.Errno, format string, args ...any) error {
	if op == createSRQ {
		return errs.New(op, errno, format, args...)
	}
	return errs.On(op, s.num.Object(), errno, format, args...)
}

// Num returns the number, by which XRC requests name the queue.
func (s *SRQ) Num() bth.SRQN { return s.num }

// PD returns the protection domain of its receives.
func (s *SRQ) PD() *mr.PD { return s.pd }

// Len returns how many receives wait to be taken.
func (s *SRQ) Len() int { return s.rq.len() }

// PostRecv queues a receive work request (ibv_post_srq_recv of one). A refusal
// is an *[errs.Error]: EINVAL for too many scatter elements or bytes, ENOMEM when
// the queue is full.
func (s *SRQ) PostRecv(wr *RecvWR) error {
	switch n := total(wr.SG); {
	case len(wr.SG) > s.sge:
		return s.refuse("post receive", syscall.EINVAL, "%d scatter elements, the queue has %d", len(wr.SG), s.sge)
	case n > MaxMessage:
		return s.refuse("post receive", syscall.EINVAL, "receive buffer of %d bytes, the limit is 2^31", n)
	case s.rq.len() >= s.rq.cap():
		return s.refuse("post receive", syscall.ENOMEM, "the queue is full (%d work requests)", s.rq.cap())
	}
	s.rq.push(wr.ID, wr.SG)
	return nil
}

// Modify resizes the queue, which keeps its receives, or sets the limit (ibv_modify_srq). It changes everything or
// nothing. It returns EINVAL if a size is out of range, below the limit or below the queued receives, or if the limit
// is more than the queue holds.
func (s *SRQ) Modify(a SRQAttr, mask SRQAttrMask) error {
	if bad := mask &^ (SRQMaxWR | SRQLimit); bad != 0 {
		return s.refuse("modify srq", syscall.EINVAL, "unknown attributes %#x", uint32(bad))
	}
	if a.MaxSGE == 0 {
		a.MaxSGE = s.sge
	}
	if err := s.check("modify srq", &a, mask); err != nil {
		return err
	}
	if mask&SRQMaxWR != 0 {
		old := s.rq
		s.rq, s.sge = newRecvQueue(a.MaxWR, a.MaxSGE), a.MaxSGE
		for ; old.len() > 0; old.head++ {
			w := old.front()
			s.rq.push(w.id, old.list(w))
		}
	}
	if mask&SRQLimit != 0 {
		s.limit = a.Limit
	}
	return nil
}

// check validates what mask names, as rxe_srq_chk_attr does.
func (s *SRQ) check(op string, a *SRQAttr, mask SRQAttrMask) error {
	limit, holds := s.limit, s.rq.cap()
	if mask&SRQLimit != 0 {
		limit = a.Limit
	}
	if mask&SRQMaxWR != 0 {
		holds = ringSize(a.MaxWR)
		widest := 0
		for i := s.rq.head; i != s.rq.tail; i++ {
			widest = max(widest, int(s.rq.at(i).sges))
		}
		switch {
		case a.MaxWR < 1 || a.MaxWR > MaxSRQWR:
			return s.refuse(op, syscall.EINVAL, "%d work requests, want 1 to %d", a.MaxWR, MaxSRQWR)
		case a.MaxSGE < 1 || a.MaxSGE > MaxSRQSGE:
			return s.refuse(op, syscall.EINVAL, "%d scatter elements, want 1 to %d", a.MaxSGE, MaxSRQSGE)
		case mask&SRQLimit == 0 && a.MaxWR < limit:
			return s.refuse(op, syscall.EINVAL, "%d work requests, but the limit is %d", a.MaxWR, limit)
		case holds < s.rq.len():
			return s.refuse(op, syscall.EINVAL, "%d work requests, but %d are queued", a.MaxWR, s.rq.len())
		case a.MaxSGE < widest:
			return s.refuse(op, syscall.EINVAL, "%d scatter elements, but a queued work request has %d", a.MaxSGE, widest)
		}
	}
	if limit < 0 || limit > holds {
		return s.refuse(op, syscall.EINVAL, "limit %d, the queue holds %d", limit, holds)
	}
	return nil
}

// Query returns the sizes granted, and the limit, which is 0 once its event was
// raised (ibv_query_srq).
func (s *SRQ) Query() SRQAttr {
	return SRQAttr{MaxWR: s.rq.cap(), MaxSGE: s.sge, Limit: s.limit}
}

// taken notes that a receive is in use, and off the queue.
func (s *SRQ) taken() {
	s.inUse++
	if s.rq.len() < s.limit {
		s.limit = 0
		if s.onEvent != nil {
			s.onEvent(s, EventSRQLimit)
		}
	}
}

// Retain notes one more queue pair that uses the queue and keeps it from being
// closed. It fails with EINVAL once closed.
func (s *SRQ) Retain() error {
	if s.closed {
		return s.refuse("use srq", syscall.EINVAL, "the queue is closed")
	}
	s.users++
	return nil
}

// Release takes one user away.
func (s *SRQ) Release() { s.users-- }

// Close ends the queue (ibv_destroy_srq). Its receives get no completion. It fails with EBUSY while queue pairs use
// it, or an XRC message that is in progress has one of its receives.
func (s *SRQ) Close() error {
	switch {
	case s.closed:
		return s.refuse("destroy srq", syscall.EINVAL, "closed already")
	case s.users > 0:
		return s.refuse("destroy srq", syscall.EBUSY, "%d queue pairs use it; close them first", s.users)
	case s.inUse > 0:
		return s.refuse("destroy srq", syscall.EBUSY, "%d of its receives are in use; reset the target queue pairs", s.inUse)
	}
	if s.xrcd != nil {
		delete(s.xrcd.srqs, s.num)
	}
	s.closed = true
	return nil
}
