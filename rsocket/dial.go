package rsocket

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/acceptor"
)

// Dial connects to a listener (rsocket, rconnect). addr is "host:port" with an IP address
// or a name. Its errors are those of [roce.Device.Dial], and ENOTSUP if the peer is not an
// rsocket.
func Dial(ctx context.Context, d *roce.Device, addr string, c Config) (*Conn, error) {
	conn, err := dial(ctx, d, addr, c)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "rsocket", Err: err}
	}
	return conn, nil
}

func dial(ctx context.Context, d *roce.Device, addr string, c Config) (*Conn, error) {
	cfg, err := c.complete()
	if err != nil {
		return nil, err
	}
	e, err := newEndpoint(d, cfg)
	if err != nil {
		return nil, err
	}
	conn, err := d.Dial(ctx, addr, roce.DialConfig{Local: cfg.Local, PD: e.pd, QPConfig: e.qpConfig(), Setup: e.prepare, TrafficClass: cfg.TrafficClass,
		Param: roce.ConnParam{PrivateData: e.hello(), ResponderResources: -1, InitiatorDepth: -1, FlowControl: true}})
	if err != nil {
		return nil, errors.Join(err, e.release())
	}
	peer, err := parseHello(conn.PrivateData())
	if err != nil {
		return nil, errors.Join(err, conn.Close(), e.release())
	}
	return newConn(e, conn, peer)
}

// newConn makes the stream of an established connection.
func newConn(e *endpoint, conn *roce.Conn, peer hello) (*Conn, error) {
	if err := e.start(conn.QP(), peer); err != nil {
		return nil, errors.Join(err, conn.Close(), e.release())
	}
	return &Conn{endpoint: e, conn: conn, local: Addr{conn.LocalAddr()}, remote: Addr{conn.RemoteAddr()}, linger: e.cfg.Linger,
		readDeadline: newDeadline(), writeDeadline: newDeadline(), closed: make(chan struct{})}, nil
}

// Listener accepts streams. It is a net.Listener.
type Listener struct {
	dev      *roce.Device
	cfg      atomic.Pointer[Config]
	addr     Addr
	acceptor *acceptor.Acceptor[*Conn]
}

// Listen accepts streams to an address of the device (rsocket, rbind, rlisten). addr is
// as in [roce.Device.Listen]; c configures the streams. The listener does handshakes in
// the background, at most Config.Backlog at a time, and makes the buffers of a stream
// when the peer has confirmed it.
func Listen(d *roce.Device, addr string, c Config) (*Listener, error) {
	cfg, err := c.complete()
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: "rsocket", Err: err}
	}
	l := &Listener{dev: d}
	l.cfg.Store(&cfg)
	if l.acceptor, err = acceptor.Listen(d, addr, cfg.Backlog, l.accept, (*Conn).abort); err != nil {
		return nil, &net.OpError{Op: "listen", Net: "rsocket", Err: err}
	}
	l.addr = Addr{l.acceptor.Addr()}
	return l, nil
}

// SetConfig configures the streams of later requests. Its Backlog has no effect.
func (l *Listener) SetConfig(c Config) error {
	cfg, err := c.complete()
	if err != nil {
		return &net.OpError{Op: "set", Net: "rsocket", Addr: l.addr, Err: err}
	}
	l.cfg.Store(&cfg)
	return nil
}

// accept answers a request. It rejects a peer that uses another protocol.
func (l *Listener) accept(ctx context.Context, r *roce.ConnRequest) (*Conn, error) {
	peer, err := parseHello(r.PrivateData())
	if err != nil {
		return nil, errors.Join(err, r.Reject(nil))
	}
	e, err := newEndpoint(l.dev, *l.cfg.Load())
	if err != nil {
		return nil, errors.Join(err, r.Reject(nil))
	}
	conn, err := r.Accept(ctx, roce.AcceptConfig{PD: e.pd, QPConfig: e.qpConfig(), Setup: e.prepare,
		Param: roce.ConnParam{PrivateData: e.hello(), ResponderResources: -1, InitiatorDepth: -1}})
	if err != nil {
		return nil, errors.Join(err, e.release())
	}
	return newConn(e, conn, peer)
}

// Accept waits for the next stream (raccept).
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.AcceptContext(context.Background())
	if err != nil {
		return nil, err
	}
	return c, nil
}

// AcceptContext is Accept with a context.
func (l *Listener) AcceptContext(ctx context.Context) (*Conn, error) {
	c, err := l.acceptor.Accept(ctx)
	if err != nil {
		return nil, &net.OpError{Op: "accept", Net: "rsocket", Addr: l.addr, Err: err}
	}
	return c, nil
}

// Addr returns the address of the listener, an [Addr].
func (l *Listener) Addr() net.Addr { return l.addr }

// Close stops the listener. Streams that Accept returned stay open.
func (l *Listener) Close() error {
	if err := l.acceptor.Close(); err != nil {
		return &net.OpError{Op: "close", Net: "rsocket", Addr: l.addr, Err: err}
	}
	return nil
}
