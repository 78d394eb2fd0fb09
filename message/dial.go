package message

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/acceptor"
)

// connParam asks for as many READs and atomics as there are transfers.
func (c *Config) connParam(h hello) *roce.ConnParam {
	return &roce.ConnParam{PrivateData: h.append(nil), ResponderResources: roce.Unlimited, InitiatorDepth: roce.Unlimited,
		RetryCount: 7, RNRRetryCount: 7}
}

// Dial connects to a listener. addr is "host:port" with an IP address.
func Dial(ctx context.Context, d *roce.Device, addr string, c *Config) (*Conn, error) {
	conn, err := dial(ctx, d, addr, c.complete())
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "message", Err: err}
	}
	return conn, nil
}

func dial(ctx context.Context, d *roce.Device, addr string, cfg Config) (*Conn, error) {
	b, err := newBuffers(d, cfg)
	if err != nil {
		return nil, err
	}
	conn, err := d.Dial(ctx, addr, &roce.DialConfig{PD: b.pd, QPConfig: b.qpConfig(cfg), Setup: b.prepare,
		Param: cfg.connParam(hello{cfg.Depth, cfg.MaxMessage})})
	if err != nil {
		return nil, errors.Join(err, b.release(nil))
	}
	return start(b, cfg, conn)
}

// start makes the connection when the handshake is done.
func start(b *buffers, cfg Config, conn *roce.Conn) (*Conn, error) {
	peer, err := parseHello(conn.PrivateData())
	if err != nil {
		return nil, errors.Join(err, conn.Close(), b.release(nil))
	}
	sends := min(peer.depth, maxSending)
	b.sbuf = make([]byte, max(sends*peer.limit, 1))
	if b.smr, err = b.pd.RegMR(b.sbuf, 0); err != nil {
		return nil, errors.Join(err, conn.Close(), b.release(nil))
	}
	c := &Conn{buffers: b, cfg: cfg, peer: peer, conn: conn, qp: conn.QP(), credits: make(chan struct{}, peer.depth),
		inbox: make(chan arrival, cfg.Depth), sending: newSlots(sends), pieces: newSlots(cfg.Transfers),
		over: make(chan struct{}), served: make(chan struct{}), exports: map[*Export]struct{}{}}
	for range peer.depth {
		c.credits <- struct{}{}
	}
	go c.serve()
	return c, nil
}

// Listener takes connections.
type Listener struct {
	dev      *roce.Device
	cfg      Config
	acceptor *acceptor.Acceptor[*Conn]
}

// Listen takes connections to an address of the device, "host:port".
func Listen(d *roce.Device, addr string, c *Config) (*Listener, error) {
	l := &Listener{dev: d, cfg: c.complete()}
	var err error
	if l.acceptor, err = acceptor.Listen(d, addr, l.accept, func(ctx context.Context, c *Conn) { c.Close(ctx) }); err != nil {
		return nil, &net.OpError{Op: "listen", Net: "message", Err: err}
	}
	return l, nil
}

func (l *Listener) accept(ctx context.Context, r *roce.ConnRequest) (*Conn, error) {
	if _, err := parseHello(r.PrivateData()); err != nil {
		return nil, errors.Join(err, r.Reject(nil))
	}
	b, err := newBuffers(l.dev, l.cfg)
	if err != nil {
		return nil, errors.Join(err, r.Reject(nil))
	}
	conn, err := r.Accept(ctx, &roce.AcceptConfig{PD: b.pd, QPConfig: b.qpConfig(l.cfg), Setup: b.prepare,
		Param: l.cfg.connParam(hello{l.cfg.Depth, l.cfg.MaxMessage})})
	if err != nil {
		return nil, errors.Join(err, b.release(nil))
	}
	return start(b, l.cfg, conn)
}

// Accept waits for the next connection.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	c, err := l.acceptor.Accept(ctx)
	if err != nil {
		return nil, &net.OpError{Op: "accept", Net: "message", Addr: net.TCPAddrFromAddrPort(l.Addr()), Err: err}
	}
	return c, nil
}

// Addr returns the address and port that is listened on.
func (l *Listener) Addr() netip.AddrPort { return l.acceptor.Addr() }

// Close takes no more connections. Those that Accept returned stay.
func (l *Listener) Close() error { return l.acceptor.Close() }
