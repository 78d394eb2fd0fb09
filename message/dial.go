package message

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/acceptor"
	"github.com/goroce/roce/internal/mailbox"
)

// Dial connects to a listener. addr is as in [roce.Device.Dial]. Errors are those of that call,
// EPROTO if the peer uses another protocol, and EINVAL for a wrong Config.
func Dial(ctx context.Context, d *roce.Device, addr string, c Config) (*Conn, error) {
	conn, err := dial(ctx, d, addr, c)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "message", Err: err}
	}
	return conn, nil
}

func dial(ctx context.Context, d *roce.Device, addr string, c Config) (*Conn, error) {
	cfg, err := c.complete()
	if err != nil {
		return nil, err
	}
	b, err := newBuffers(d, cfg)
	if err != nil {
		return nil, err
	}
	conn, err := d.Dial(ctx, addr, roce.DialConfig{PD: b.pd, QPConfig: b.qpConfig(), Setup: b.allocate,
		Param: roce.ConnParam{PrivateData: hello{cfg.Depth, cfg.MaxMessage}.append(nil)}})
	if err != nil {
		return nil, errors.Join(err, b.release(nil))
	}
	peer, err := parseHello(conn.PrivateData())
	if err != nil {
		return nil, errors.Join(err, conn.Close(), b.release(nil))
	}
	return start(b, conn, peer), nil
}

// start makes the connection after the handshake and the posting of receives.
func start(b *buffers, conn *roce.Conn, peer hello) *Conn {
	c := &Conn{buffers: b, peer: peer, conn: conn, qp: conn.QP(), credits: make(chan struct{}, peer.depth),
		inbox: mailbox.New[arrival](b.cfg.Depth), sending: newSlots(b.cfg.sends()), pieces: newSlots(b.cfg.Transfers),
		over: make(chan struct{}), flushing: make(chan struct{}, 1), served: make(chan struct{}), exports: map[*Export]struct{}{}}
	for range peer.depth {
		c.addCredit()
	}
	go c.serve()
	return c
}

// Listener accepts connections.
type Listener struct {
	dev      *roce.Device
	cfg      Config
	acceptor *acceptor.Acceptor[*Conn]
}

// Listen accepts connections to an address of the device, "host:port". The
// listener does handshakes in the background, at most Config.Backlog at a time,
// and makes the buffers of a connection when the peer has confirmed it.
func Listen(d *roce.Device, addr string, c Config) (*Listener, error) {
	cfg, err := c.complete()
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: "message", Err: err}
	}
	l := &Listener{dev: d, cfg: cfg}
	if l.acceptor, err = acceptor.Listen(d, addr, cfg.Backlog, l.accept, (*Conn).abort); err != nil {
		return nil, &net.OpError{Op: "listen", Net: "message", Err: err}
	}
	return l, nil
}

// accept answers a request. It posts the receives when the peer has confirmed,
// because any host can send a request. If a message arrives before, the peer's
// queue pair repeats it until there is a receive (RNR retry 7: for ever).
func (l *Listener) accept(ctx context.Context, r *roce.ConnRequest) (*Conn, error) {
	peer, err := parseHello(r.PrivateData())
	if err != nil {
		return nil, errors.Join(err, r.Reject(nil))
	}
	b, err := newBuffers(l.dev, l.cfg)
	if err != nil {
		return nil, errors.Join(err, r.Reject(nil))
	}
	conn, err := r.Accept(ctx, roce.AcceptConfig{PD: b.pd, QPConfig: b.qpConfig(),
		Param: roce.ConnParam{PrivateData: hello{l.cfg.Depth, l.cfg.MaxMessage}.append(nil), RNRRetryCount: 7}})
	if err != nil {
		return nil, errors.Join(err, b.release(nil))
	}
	if err := b.allocate(conn.QP()); err != nil {
		return nil, errors.Join(err, conn.Close(), b.release(nil))
	}
	return start(b, conn, peer), nil
}

// Accept waits for the next connection.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	c, err := l.acceptor.Accept(ctx)
	if err != nil {
		return nil, &net.OpError{Op: "accept", Net: "message", Addr: net.TCPAddrFromAddrPort(l.Addr()), Err: err}
	}
	return c, nil
}

// Addr returns the address and port of the listener.
func (l *Listener) Addr() netip.AddrPort { return l.acceptor.Addr() }

// Close stops the listener. Connections that Accept returned stay. A second Close returns
// net.ErrClosed.
func (l *Listener) Close() error {
	if err := l.acceptor.Close(); err != nil {
		return &net.OpError{Op: "close", Net: "message", Addr: net.TCPAddrFromAddrPort(l.Addr()), Err: err}
	}
	return nil
}
