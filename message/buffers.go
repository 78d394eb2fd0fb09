package message

import (
	"context"
	"errors"

	"github.com/goroce/roce"
	"github.com/goroce/roce/errs"
)

var (
	errClosed = errs.ErrClosed
	errOver   = errors.New("the connection is over")
)

// slots has the free pieces of a buffer.
type slots chan int

func newSlots(n int) slots {
	s := make(slots, n)
	for i := range n {
		s <- i
	}
	return s
}

// take takes a value from a channel. If there is none, it waits for one, for the end of the connection, or of ctx.
func take[T any](ctx context.Context, from <-chan T, over <-chan struct{}) (v T, err error) {
	select {
	case v = <-from:
		return v, nil
	default:
	}
	select {
	case v = <-from:
		return v, nil
	case <-over:
		return v, errOver
	case <-ctx.Done():
		return v, ctx.Err()
	}
}

// buffers has the memory and the queue of a connection. Only this side's
// configuration determines their sizes, never the peer.
type buffers struct {
	cfg              Config
	pd               *roce.PD
	cq               *roce.CQ
	sbuf, rbuf, xbuf []byte // for sends, receives, transfers; the last is made when it is needed
	smr, rmr, xmr    *roce.MR
}

// newBuffers makes the domain and the queue. allocate makes the buffers, which are
// large.
func newBuffers(d *roce.Device, cfg Config) (b *buffers, err error) {
	b = &buffers{cfg: cfg, pd: d.AllocPD()}
	if b.cq, err = d.CreateCQ(cfg.maxSendWR() + cfg.receives()); err != nil {
		return nil, errors.Join(err, b.release(nil))
	}
	return b, nil
}

// allocate makes the buffers, and posts the receives to a queue pair.
func (b *buffers) allocate(q *roce.QP) (err error) {
	for _, r := range []struct {
		buf    *[]byte
		mr     **roce.MR
		size   int
		access roce.Access
	}{
		{&b.sbuf, &b.smr, b.cfg.sends() * b.cfg.MaxSend, 0},
		{&b.rbuf, &b.rmr, b.cfg.receives() * b.cfg.MaxMessage, roce.LocalWrite},
	} {
		*r.buf = make([]byte, r.size)
		if *r.mr, err = b.pd.RegMR(*r.buf, r.access); err != nil {
			return err
		}
	}
	for i := range b.cfg.receives() {
		if err := b.postRecv(q, i); err != nil {
			return err
		}
	}
	return nil
}

func (b *buffers) postRecv(q *roce.QP, slot int) error {
	return q.PostRecv(&roce.RecvWR{ID: recvFlag | uint64(slot), SG: []roce.SGE{b.rmr.SGE(slot*b.cfg.MaxMessage, b.cfg.MaxMessage)}})
}

// qpConfig returns the configuration of a connection's queue pair.
func (b *buffers) qpConfig() roce.QPConfig {
	return roce.QPConfig{SendCQ: b.cq,
		Caps: roce.Caps{MaxSendWR: b.cfg.maxSendWR(), MaxRecvWR: b.cfg.receives(), MaxSendSGE: 1, MaxRecvSGE: 1}}
}

// release frees everything except the queue pair. served is closed when no
// goroutine polls the queue any more; nil means that none did.
func (b *buffers) release(served <-chan struct{}) error {
	var errs []error
	if b.cq != nil {
		errs = append(errs, b.cq.Close())
		if served != nil {
			<-served
		}
	}
	for _, m := range []*roce.MR{b.smr, b.rmr, b.xmr} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(append(errs, b.pd.Close())...)
}
