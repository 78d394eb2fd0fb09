package message

import (
	"context"
	"errors"
	"net"

	"github.com/goroce/roce"
)

var (
	errClosed = net.ErrClosed
	errOver   = errors.New("the connection is over")
)

// slots hands out the pieces of a buffer.
type slots struct{ free chan int }

func newSlots(n int) *slots {
	s := &slots{make(chan int, n)}
	for i := range n {
		s.free <- i
	}
	return s
}

func (s *slots) len() int  { return cap(s.free) }
func (s *slots) put(i int) { s.free <- i }

// take waits for a free piece.
func (s *slots) take(ctx context.Context, over <-chan struct{}) (int, error) {
	select {
	case i := <-s.free:
		return i, nil
	default:
	}
	select {
	case i := <-s.free:
		return i, nil
	case <-over:
		return 0, errOver
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// buffers is what a connection needs before it has a peer.
type buffers struct {
	pd               *roce.PD
	cq               *roce.CQ
	sbuf, rbuf, xbuf []byte
	smr, rmr, xmr    *roce.MR
	limit, depth     int
}

// newBuffers makes the domain, the queue and the receive buffer.
func newBuffers(d *roce.Device, cfg Config) (b *buffers, err error) {
	b = &buffers{pd: d.AllocPD(), limit: cfg.MaxMessage, depth: cfg.Depth + ctrlDepth}
	defer func() {
		if err != nil {
			b.release(nil)
		}
	}()
	if b.cq, err = d.CreateCQ(2*(maxSends(cfg)+b.depth) + 1); err != nil {
		return nil, err
	}
	b.rbuf = make([]byte, b.depth*b.limit)
	if b.rmr, err = b.pd.RegMR(b.rbuf, roce.LocalWrite); err != nil {
		return nil, err
	}
	b.xbuf = make([]byte, cfg.Transfers*pieceLen)
	b.xmr, err = b.pd.RegMR(b.xbuf, roce.LocalWrite)
	return b, err
}

// maxSends is how many sends are under way at most. The peer's depth is not
// known when the queue pair is made.
func maxSends(cfg Config) int { return maxSending + cfg.Transfers + ctrlDepth }

// maxSending bounds the messages that are under way, whatever the peer takes.
const maxSending = 64

// prepare posts the receives.
func (b *buffers) prepare(q *roce.QP) error {
	for i := range b.depth {
		if err := b.postRecv(q, i); err != nil {
			return err
		}
	}
	return nil
}

func (b *buffers) postRecv(q *roce.QP, slot int) error {
	return q.PostRecv(&roce.RecvWR{ID: recvFlag | uint64(slot), SG: []roce.SGE{b.rmr.SGE(slot*b.limit, b.limit)}})
}

// qpConfig is the queue pair of a connection.
func (b *buffers) qpConfig(cfg Config) roce.QPConfig {
	return roce.QPConfig{SendCQ: b.cq, SignalAll: true,
		Caps: roce.Caps{MaxSendWR: maxSends(cfg), MaxRecvWR: b.depth, MaxSendSGE: 1, MaxRecvSGE: 1}}
}

// release frees everything but the queue pair. served is closed when nobody
// polls the queue any more; nil: nobody did.
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
