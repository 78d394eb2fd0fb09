package verbs

import (
	"math"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
)

// Types of shared receive queues (enum ibv_srq_type). There is no tag matching.
const (
	srqBasic = 0
	srqXRC   = 1
	srqTM    = 2
)

// srqMask is the attributes of enum ibv_srq_attr_mask.
const srqMask = uint32(roce.SRQMaxWR | roce.SRQLimit)

// sharedQueue is a shared receive queue.
type sharedQueue struct {
	base
	srq  *roce.SRQ
	xrcd *xrcDomain // nil: not an XRC queue
}

// CreateSRQ is ibv_create_srq_ex. It writes the granted sizes to init.
func CreateSRQ(ctx abi.Handle, init *abi.SRQInit) (h abi.Handle, num uint32, err error) {
	c, err := find[*Context](ctx)
	if err != nil {
		return 0, 0, err
	}
	d, err := find[*domain](init.PD)
	if err != nil {
		return 0, 0, err
	}
	q := &sharedQueue{base: base{ctx: c, cookie: init.Cookie}}
	config := roce.SRQConfig{MaxWR: limit(init.MaxWR), MaxSGE: limit(init.MaxSGE), Limit: limit(init.Limit), UserData: q}
	switch init.Type {
	case srqBasic:
	case srqXRC:
		x, err := find[*xrcDomain](init.XRCD)
		if err != nil {
			return 0, 0, err
		}
		cq, err := find[*completionQueue](init.CQ)
		if err != nil {
			return 0, 0, err
		}
		if err := x.enter(); err != nil {
			return 0, 0, err
		}
		config.XRCD, config.CQ, q.xrcd = x.shared.xrcd, cq.cq, x
	case srqTM:
		return 0, 0, syscall.EOPNOTSUPP
	default:
		return 0, 0, syscall.EINVAL
	}
	if q.srq, err = d.pd.CreateSRQ(config); err != nil {
		q.xrcd.leave()
		return 0, 0, err
	}
	if h, err = c.adopt(q); err != nil {
		return 0, 0, err
	}
	a := q.srq.Query()
	init.MaxWR, init.MaxSGE, init.Limit = uint32(a.MaxWR), uint32(a.MaxSGE), uint32(a.Limit)
	return h, uint32(q.srq.Num()), nil
}

// limit converts a number to that of package roce.
func limit(n uint32) int { return int(min(n, math.MaxInt32)) }

// ModifySRQ is ibv_modify_srq.
func ModifySRQ(srq abi.Handle, mask, maxWR, lim uint32) error {
	q, err := find[*sharedQueue](srq)
	if err != nil {
		return err
	}
	if mask&^srqMask != 0 {
		return syscall.EINVAL
	}
	return q.srq.Modify(roce.SRQAttr{MaxWR: limit(maxWR), Limit: limit(lim)}, roce.SRQAttrMask(mask))
}

// QuerySRQ is ibv_query_srq.
func QuerySRQ(srq abi.Handle) (maxWR, maxSGE, lim uint32, err error) {
	q, err := find[*sharedQueue](srq)
	if err != nil {
		return 0, 0, 0, err
	}
	a := q.srq.Query()
	return uint32(a.MaxWR), uint32(a.MaxSGE), uint32(a.Limit), nil
}

// DestroySRQ is ibv_destroy_srq.
func DestroySRQ(srq abi.Handle) error { return destroy[*sharedQueue](srq) }

func (q *sharedQueue) close() error {
	if err := q.srq.Close(); err != nil {
		return err
	}
	q.xrcd.leave()
	q.forget()
	return nil
}
