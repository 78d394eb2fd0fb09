package perftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/acceptor"
	"github.com/goroce/roce/internal/tools/oob"
)

// control is what the two sides talk to each other by: TCP, or SENDs on a connection
// that the connection manager has made.
type control interface {
	io.ReadWriteCloser
	// Peer is the address the other side is reached at.
	Peer() netip.Addr
	// gone is closed when the peer has hung up; nothing is read any more.
	gone() <-chan struct{}
	// linger tells the peer that this side is done and waits until it is too, or has
	// hung up, at most so long.
	linger(ctx context.Context, atMost time.Duration)
}

// overTCP is control over TCP.
type overTCP struct{ *oob.Conn }

func (c overTCP) gone() <-chan struct{} {
	left := make(chan struct{})
	go func() {
		io.Copy(io.Discard, c)
		close(left)
	}()
	return left
}

func (c overTCP) linger(_ context.Context, atMost time.Duration) { c.Conn.Linger(atMost) }

// mailbox is control by SENDs, each of which is one Write and one Read.
type mailbox struct {
	ctx   context.Context
	conn  *roce.Conn
	send  *roce.CQ
	recv  *roce.CQ
	mr    *roce.MR // a letter to send, then those that come
	taken uint64   // letters that came
	owned []io.Closer
}

const (
	letter  = 256 // bytes of one, at most
	letters = 8   // room for those that come
)

// newMailbox makes what a mailbox is made of. connect connects its queue pair, in a
// domain and with receives posted by setup.
func newMailbox(ctx context.Context, d *roce.Device, connect func(*roce.PD, roce.QPConfig, func(*roce.QP) error) (*roce.Conn, error)) (m *mailbox, err error) {
	m = &mailbox{ctx: ctx}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	pd := d.AllocPD()
	m.own(pd)
	if m.mr, err = pd.RegMR(make([]byte, (1+letters)*letter), roce.LocalWrite); err != nil {
		return m, err
	}
	m.own(m.mr)
	for _, q := range []**roce.CQ{&m.send, &m.recv} {
		if *q, err = d.CreateCQ(letters); err != nil {
			return m, err
		}
		m.own(*q)
	}
	config := roce.QPConfig{SendCQ: m.send, RecvCQ: m.recv, SignalAll: true, Caps: roce.Caps{MaxSendWR: 1, MaxRecvWR: letters, MaxSendSGE: 1, MaxRecvSGE: 1}}
	m.conn, err = connect(pd, config, func(q *roce.QP) error {
		for i := range uint64(letters) {
			if err := m.room(q, i); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		m.own(m.conn)
	}
	return m, err
}

func (m *mailbox) own(c io.Closer) { m.owned = append(m.owned, c) }

// room posts the receive for letter i.
func (m *mailbox) room(q *roce.QP, i uint64) error {
	return q.PostRecv(&roce.RecvWR{ID: i, SG: []roce.SGE{m.mr.SGE(int(1+i%letters)*letter, letter)}})
}

func (m *mailbox) Write(b []byte) (int, error) {
	if len(b) > letter {
		return 0, fmt.Errorf("a message of %d bytes, of at most %d", len(b), letter)
	}
	copy(m.mr.Bytes(), b)
	if err := m.conn.QP().PostSend(&roce.SendWR{Opcode: roce.Send, SG: []roce.SGE{m.mr.SGE(0, len(b))}}); err != nil {
		return 0, err
	}
	wc, err := m.send.Next(m.ctx)
	if err == nil {
		err = wc.Err()
	}
	return len(b), err
}

// Read reads a letter, which must fit.
func (m *mailbox) Read(b []byte) (int, error) {
	wc, err := m.recv.Next(m.ctx)
	if err == nil {
		err = wc.Err()
	}
	if err != nil {
		select {
		case <-m.conn.Done():
			return 0, io.EOF
		default:
			return 0, err
		}
	}
	i := m.taken
	m.taken++
	if wc.ByteLen > uint32(len(b)) {
		return 0, fmt.Errorf("a message of %d bytes, of at most %d", wc.ByteLen, len(b))
	}
	copy(b, m.mr.Bytes()[int(1+i%letters)*letter:][:wc.ByteLen])
	return int(wc.ByteLen), m.room(m.conn.QP(), i+letters)
}

func (m *mailbox) Peer() netip.Addr      { return m.conn.RemoteAddr().Addr() }
func (m *mailbox) gone() <-chan struct{} { return m.conn.Done() }

func (m *mailbox) linger(ctx context.Context, atMost time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	m.ctx = ctx
	if _, err := m.Write([]byte(done)); err == nil {
		m.recv.Next(ctx)
	}
}

// Close disconnects and frees everything, the last made first.
func (m *mailbox) Close() (err error) {
	for i := len(m.owned) - 1; i >= 0; i-- {
		err = errors.Join(err, m.owned[i].Close())
	}
	return err
}

// manager makes the connections of one side by the connection manager.
type manager struct {
	dev    *roce.Device
	addr   string         // client: of the server
	listen *roce.Listener // server
}

// param is what the connections are asked for with.
func (c *Config) param(data bool) roce.ConnParam {
	p := roce.ConnParam{RetryCount: retryCount, RNRRetryCount: rnrRetry, MinRNRTimer: minRNRTimer}
	if data && c.Test.reads {
		p.ResponderResources, p.InitiatorDepth = uint8(c.OutReads), uint8(c.OutReads)
	}
	return p
}

// meet makes the connection for control.
func (m *manager) meet(ctx context.Context, c *Config) (*mailbox, error) {
	return newMailbox(ctx, m.dev, func(pd *roce.PD, q roce.QPConfig, setup func(*roce.QP) error) (*roce.Conn, error) {
		if m.listen == nil {
			return m.dev.Dial(ctx, m.addr, roce.DialConfig{PD: pd, QPConfig: q, Setup: setup, Param: c.param(false)})
		}
		return acceptor.One(ctx, m.listen, func(ctx context.Context, r *roce.ConnRequest) (*roce.Conn, error) {
			conn, err := r.Accept(ctx, roce.AcceptConfig{PD: pd, QPConfig: q, Setup: setup, Param: c.param(false)})
			if err != nil {
				empty(q.SendCQ, q.RecvCQ) // of what the queue pair of this attempt had posted
			}
			return conn, err
		})
	})
}

// empty takes all completions.
func empty(queues ...*roce.CQ) {
	var wcs [16]roce.WC
	for _, q := range queues {
		for q.Poll(wcs[:]) > 0 {
		}
	}
}

// A server of perftest stops listening once it has the connection for control, and
// begins again a little later.
const (
	redials   = 20
	redialGap = 100 * time.Millisecond
)

// connect makes the connection of a queue pair.
func (m *manager) connect(ctx context.Context, e *end) (*roce.Conn, error) {
	if m.listen != nil {
		r, err := m.listen.Accept(ctx)
		if err != nil {
			return nil, err
		}
		return r.Accept(ctx, roce.AcceptConfig{QP: e.qp, Param: e.cfg.param(true)})
	}
	for n := 1; ; n++ {
		conn, err := m.dev.Dial(ctx, m.addr, roce.DialConfig{QP: e.qp, Param: e.cfg.param(true)})
		var refused *roce.RejectError
		if !errors.As(err, &refused) || n == redials {
			return conn, err
		}
		if err := e.qp.Modify(&roce.Attr{State: roce.StateReset}, roce.AttrState); err != nil {
			return nil, err
		}
		if err := e.pause(ctx, redialGap); err != nil {
			return nil, err
		}
	}
}

// pause lets time go by, and the device work.
func (s *side) pause(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	err := s.cq.Wait(ctx) // nothing will complete: nothing was posted
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}
