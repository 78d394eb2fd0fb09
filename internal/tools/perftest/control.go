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
	"github.com/goroce/roce/internal/tools/objects"
	"github.com/goroce/roce/internal/tools/oob"
)

// control is the connection for the exchange: a TCP connection, or a mailbox on a connection that the
// connection manager has made.
type control interface {
	io.ReadWriteCloser
	// Peer returns the address of the other side.
	Peer() netip.Addr
	// gone returns a channel that is closed when the peer has closed the connection. The caller must not read any
	// more.
	gone() <-chan struct{}
	// linger tells the peer that this side is done. It returns when the peer has said the same or has closed the
	// connection, or after atMost.
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

// mailbox is a control over SENDs: one SEND transfers the data of one Write to one Read.
type mailbox struct {
	*objects.Set
	ctx        context.Context
	conn       *roce.Conn
	send, recv *roce.CQ
	mr         *roce.MR // a buffer to send, then buffers for received messages
	received   uint64   // messages
}

const (
	maxMessage = 256 // bytes
	messages   = 8   // buffers for received messages
)

// newMailbox makes a mailbox. connect creates and connects its queue pair in a protection domain, and
// calls setup before the peer can send.
func newMailbox(ctx context.Context, d *roce.Device, connect func(pd *roce.PD, c roce.QPConfig, setup func(*roce.QP) error) (*roce.Conn, error)) (*mailbox, error) {
	s := objects.New(d)
	m := &mailbox{Set: s, ctx: ctx, mr: s.MR((1+messages)*maxMessage, roce.LocalWrite), send: s.CQ(messages), recv: s.CQ(messages)}
	err := s.Err()
	if err == nil {
		config := roce.QPConfig{SendCQ: m.send, RecvCQ: m.recv, SignalAll: true, Caps: roce.Caps{MaxSendWR: 1, MaxRecvWR: messages, MaxSendSGE: 1, MaxRecvSGE: 1}}
		m.conn, err = connect(s.PD, config, func(q *roce.QP) (err error) {
			for i := uint64(0); i < messages && err == nil; i++ {
				err = m.postRecv(q, i)
			}
			return err
		})
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	s.Add(m.conn)
	return m, nil
}

// postRecv posts the receive for message i.
func (m *mailbox) postRecv(q *roce.QP, i uint64) error {
	return q.PostRecv(&roce.RecvWR{ID: i, SG: []roce.SGE{m.mr.SGE(int(1+i%messages)*maxMessage, maxMessage)}})
}

// Write sends b, which must fit in one message. If the peer has ended the connection before it has acknowledged
// the message, Write succeeds: the peer may have read it, and the next Read tells whether it has answered.
func (m *mailbox) Write(b []byte) (int, error) {
	if len(b) > maxMessage {
		return 0, fmt.Errorf("a message of %d bytes, of at most %d", len(b), maxMessage)
	}
	copy(m.mr.Bytes(), b)
	if err := m.conn.QP().PostSend(&roce.SendWR{Opcode: roce.Send, SG: []roce.SGE{m.mr.SGE(0, len(b))}}); err != nil {
		return 0, err
	}
	wc, err := m.send.Next(m.ctx)
	if err == nil && (wc.Status != roce.StatusWRFlushErr || !errors.Is(m.conn.Err(), roce.ErrDisconnected)) {
		err = wc.Err()
	}
	return len(b), err
}

// Read reads one message, which must fit in b.
func (m *mailbox) Read(b []byte) (int, error) {
	wc, err := m.recv.Next(m.ctx)
	if err == nil {
		err = wc.Err()
	}
	if err != nil {
		if m.conn.Err() != nil { // known before the receives are flushed, which is before Done
			err = io.EOF
		}
		return 0, err
	}
	i := m.received
	m.received++
	if wc.ByteLen > uint32(len(b)) {
		return 0, fmt.Errorf("a message of %d bytes, of at most %d", wc.ByteLen, len(b))
	}
	copy(b, m.mr.Bytes()[int(1+i%messages)*maxMessage:][:wc.ByteLen])
	return int(wc.ByteLen), m.postRecv(m.conn.QP(), i+messages)
}

// Peer implements [control].
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

// manager makes the connections of one side by the connection manager.
type manager struct {
	dev    *roce.Device
	addr   string         // client: of the server
	listen *roce.Listener // server
}

// param returns the parameters of a connection (struct rdma_conn_param). data says that it is a connection of the test, not that of the exchange.
func (c *Config) param(data bool) roce.ConnParam {
	reads := -1
	if data && c.Test.Reads {
		reads = c.OutReads
	}
	return roce.ConnParam{ResponderResources: reads, InitiatorDepth: reads, RetryCount: retryCount, RNRRetryCount: rnrRetry, MinRNRTimer: minRNRTimer}
}

// meet makes the connection for the exchange.
func (m *manager) meet(ctx context.Context, c *Config) (*mailbox, error) {
	return newMailbox(ctx, m.dev, func(pd *roce.PD, q roce.QPConfig, setup func(*roce.QP) error) (*roce.Conn, error) {
		if m.listen == nil {
			return m.dev.Dial(ctx, m.addr, roce.DialConfig{PD: pd, QPConfig: q, Setup: setup, Param: c.param(false)})
		}
		return acceptor.One(ctx, m.listen, func(ctx context.Context, r *roce.ConnRequest) (*roce.Conn, error) {
			conn, err := r.Accept(ctx, roce.AcceptConfig{PD: pd, QPConfig: q, Setup: setup, Param: c.param(false)})
			if err != nil {
				empty(q.SendCQ, q.RecvCQ) // drops the flushed work requests of this attempt
			}
			return conn, err
		})
	})
}

// empty polls and drops all completions.
func empty(queues ...*roce.CQ) {
	var wcs [16]roce.WC
	for _, q := range queues {
		for q.Poll(wcs[:]) > 0 {
		}
	}
}

// A server of perftest stops listening once it has the connection for the exchange, and
// listens again a little later.
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
		if _, refused := errors.AsType[*roce.RejectError](err); !refused || n == redials {
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

// pause waits for a time. It drives a polled device meanwhile.
func (s *side) pause(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	err := s.cq.Wait(ctx) // there is no completion, because nothing is posted
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}
