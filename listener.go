package roce

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/gsi"
	"github.com/goroce/roce/internal/hostnet"
)

// ListenConfig configures [Device.Listen].
type ListenConfig struct {
	// Backlog bounds the requests that the program has neither accepted nor rejected.
	// At this limit a new request replaces the oldest request of the source with the
	// most requests, or is dropped; senders repeat dropped requests. See [ConnLimits]. 0: 128.
	Backlog int

	// RequestTimeout bounds the time until the program accepts or rejects a request.
	// After this time the request ends. 0: that of [ConnLimits].
	RequestTimeout time.Duration
}

const defaultBacklog = 128

// requests is the common part of [Listener] and [UDListener]. T is a request.
type requests[T comparable] struct {
	dev      *Device
	addr     netip.AddrPort
	listener *gsi.Listener
	queue    gsi.RequestQueue[T]
	reject   func(T)
}

// Listener receives connection requests (rdma_listen).
type Listener struct{ requests[*ConnRequest] }

// Listen receives connection requests for an address of the device and a port of the RDMA
// connection manager's TCP port space (rdma_bind_addr and rdma_listen). addr is
// "host:port"; "0.0.0.0:port", "[::]:port" or ":port" accept requests for any address; for
// port 0 the device chooses a port. host may be a name, for which Listen uses its first
// address that the device has, and port the name of a TCP service. It fails with EADDRINUSE
// if another listener has the port, and with EADDRNOTAVAIL if the device does not have the
// address.
//
// ctx bounds the call, not the listener.
func (d *Device) Listen(ctx context.Context, addr string, c ListenConfig) (*Listener, error) {
	l := new(Listener)
	l.reject = func(r *ConnRequest) { r.end.destroy() }
	if err := l.listen(ctx, d, cm.PortSpaceTCP, addr, c, gsi.ListenHandler{Conn: l.offer, Gone: l.gone}); err != nil {
		return nil, err
	}
	return l, nil
}

// listen binds to an address and a port of a port space.
func (l *requests[T]) listen(ctx context.Context, d *Device, ps cm.PortSpace, addr string, c ListenConfig, h gsi.ListenHandler) error {
	l.dev = d
	l.queue.Init(d.nic)
	addrs, err := hostnet.LookupAddr(ctx, ps.String(), addr) // "tcp" or "udp"
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return errs.New("listen", err, "%s", addr)
	}
	i := slices.IndexFunc(addrs, func(a netip.AddrPort) bool { return a.Addr().IsUnspecified() || d.hasAddr(a.Addr()) })
	if i < 0 {
		return fail("listen", syscall.EADDRNOTAVAIL, "%s is not an address of the device", addr)
	}
	at := addrs[i]
	if c.Backlog < 0 || c.RequestTimeout < 0 {
		return fail("listen", syscall.EINVAL, "Backlog %d and RequestTimeout %v must not be negative", c.Backlog, c.RequestTimeout)
	}
	p := cm.ListenParam{Addr: at.Addr(), Backlog: cmp.Or(c.Backlog, defaultBacklog), RequestTimeout: c.RequestTimeout}
	port := at.Port()
	for try := 0; ; try++ {
		if at.Port() == 0 {
			port = d.cm.EphemeralPort()
		}
		p.ServiceID = cm.Service(ps, port)
		l.listener, err = d.cm.Listen(p, h)
		if at.Port() != 0 || try == 1000 || !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		return errs.New("listen", err, "%v", at)
	}
	l.addr = netip.AddrPortFrom(at.Addr(), port)
	return nil
}

// Addr returns the address and port that peers can dial. For a listener on any address it
// returns the first address of the device: a link-local one only if there is no other, and the
// wildcard address if the device has none.
func (l *requests[T]) Addr() netip.AddrPort {
	if !l.addr.Addr().IsUnspecified() {
		return l.addr
	}
	addr := l.addr.Addr()
	for _, g := range l.dev.nic.Routes().GIDs().Slots() {
		switch a := g.Addr(); {
		case g.IsZero(), l.addr.Addr().Is4() && !a.Is4():
		case !a.IsLinkLocalUnicast():
			return netip.AddrPortFrom(a, l.addr.Port())
		case addr.IsUnspecified():
			addr = a
		}
	}
	return netip.AddrPortFrom(addr, l.addr.Port())
}

// offer receives a request from the connection manager, which bounds the
// backlog. No lock is held.
func (l *Listener) offer(c *gsi.Conn, ev cm.Event) {
	e := newEndpoint(l.dev)
	e.cm = c
	r := &ConnRequest{listener: l, end: e, private: ev.Private, local: ev.Conn.LocalAddr(), remote: ev.Conn.RemoteAddr(), offer: c.Offer()}
	e.mu.Lock()
	e.request = r
	e.mu.Unlock()
	c.Handle(e.handler())
	if !l.queue.Push(r, ev.Conn.PeerAddress()) {
		e.destroy()
	}
}

// Accept waits for the next request (rdma_get_request). Answer it with [ConnRequest.Accept] or
// [ConnRequest.Reject], on a separate goroutine: accepting waits for the peer, and a peer that
// does not answer must not delay others. If the peer repeats its request meanwhile, the
// connection manager asks it to wait. Accept returns requests of different sources in turn. It
// drops a request that its sender has given up, or that is not answered in time. Accept returns
// the context's error, or [ErrClosed] after Close.
func (l *Listener) Accept(ctx context.Context) (*ConnRequest, error) { return l.queue.Next(ctx) }

// Close stops the listener and rejects requests that Accept has not returned. Connections, and
// requests that Accept has returned, stay. A second Close returns [ErrClosed].
func (l *requests[T]) Close() error { return l.end(ErrClosed) }

func (l *requests[T]) end(why error) error {
	rest, err := l.queue.Close(why)
	if err != nil {
		return err
	}
	l.listener.Close()
	for _, r := range rest {
		l.reject(r)
	}
	l.dev.nic.Nudge()
	return nil
}

// gone ends the listener when the device ends. A caller that waits in Accept notices by itself
// that the device was closed.
func (l *requests[T]) gone(why error) {
	if !errors.Is(why, ErrClosed) {
		l.end(why)
	}
}

func (d *Device) hasAddr(a netip.Addr) bool {
	_, ok := d.nic.Routes().GIDs().Index(bth.GIDFrom(a.WithZone("")))
	return ok
}

// ConnRequest is a peer's request to connect (RDMA_CM_EVENT_CONNECT_REQUEST).
type ConnRequest struct {
	listener *Listener
	end      *endpoint
	private  []byte
	local    netip.AddrPort
	remote   netip.AddrPort
	offer    cm.Offer
	answered atomic.Bool
}

// PrivateData returns the peer's private data: 56 bytes, padded with zeros.
func (r *ConnRequest) PrivateData() []byte { return r.private }

// RemoteAddr returns the peer's address and port.
func (r *ConnRequest) RemoteAddr() netip.AddrPort { return r.remote }

// LocalAddr returns the address and port to which the request was sent.
func (r *ConnRequest) LocalAddr() netip.AddrPort { return r.local }

// Offer returns the parameters that the peer proposes: READs, atomics and
// retries.
func (r *ConnRequest) Offer() Offer { return r.offer }

// AcceptConfig configures [ConnRequest.Accept]. Its fields have the meaning of
// those of [DialConfig]; the zero Param grants the peer's proposal as far as
// the device can.
type AcceptConfig struct {
	QP       *QP
	PD       *PD
	QPConfig QPConfig
	Access   *Access
	Setup    func(*QP) error
	Param    ConnParam

	// OnAlternate also decides on the alternate path of the request.
	OnAlternate func(PathRecord) APStatus
}

// Accept accepts the request (rdma_accept) and waits until the peer confirms, or its first data
// arrives. After the time in [ConnLimits] it fails with ETIMEDOUT, or earlier with ECONNABORTED if
// other requests needed the room. Accept makes the queue pair, or uses that of c, and sets it up
// before it answers the peer. If Accept fails, or ctx ends first, it rejects the request.
func (r *ConnRequest) Accept(ctx context.Context, c AcceptConfig) (*Conn, error) {
	conn, err := r.accept(ctx, c)
	if err != nil {
		return nil, errs.New("accept", err, "%v", r.remote)
	}
	return conn, nil
}

func (r *ConnRequest) accept(ctx context.Context, c AcceptConfig) (*Conn, error) {
	e, d := r.end, r.listener.dev
	if !r.answered.CompareAndSwap(false, true) {
		return nil, fail("accept", syscall.EINVAL, "the request is answered already")
	}
	p := c.Param
	if err := p.completeForDevice(&r.offer); err != nil {
		e.destroy()
		return nil, err
	}
	ap := cm.AcceptParam{FlowControl: p.FlowControl, RNRRetryCount: uint8(p.RNRRetryCount), Private: p.PrivateData,
		ResponderResources: min(uint8(p.ResponderResources), r.offer.ResponderResources),
		InitiatorDepth:     min(uint8(p.InitiatorDepth), r.offer.InitiatorDepth)}
	// A flood of requests with forged addresses of unreachable hosts must not cost queue
	// pairs.
	if err := e.reach(ctx, ap); err != nil {
		e.destroy()
		return nil, err
	}
	u, err := d.prepareQP(c.QP, c.PD, c.QPConfig, c.Access, c.Setup)
	if err != nil {
		e.destroy()
		return nil, err
	}
	q := u.qp
	e.lateAccess = u.late
	ap.QPN, ap.SRQ = q.Num(), q.srq != nil
	e.cm.SetQP(q.core())
	if c.OnAlternate != nil {
		e.onAlternate = c.OnAlternate
		e.cm.Handle(e.handler())
	}
	ap.Failover = e.cm.AlternateOffer(ctx)
	if err := e.accept(ctx, q, ap, p); err != nil {
		e.destroy()
		closeAll(u.owned)
		return nil, err
	}
	return &Conn{end: e, qp: q, owned: u.owned, private: r.private, param: e.agreed, local: r.local, remote: r.remote}, nil
}

// reach resolves the path to the peer before accept needs it.
func (e *endpoint) reach(ctx context.Context, ap cm.AcceptParam) error {
	attr, err := e.cm.AcceptAttr(ap)
	if err != nil {
		return e.why(ctx, err)
	}
	if _, err := e.cm.Path(ctx, attr); err != nil {
		return cmp.Or(e.reason(), err)
	}
	return nil
}

// accept does the passive side of the handshake.
func (e *endpoint) accept(ctx context.Context, q *QP, ap cm.AcceptParam, p ConnParam) error {
	attr, err := e.cm.AcceptAttr(ap)
	if err != nil {
		return e.why(ctx, err)
	}
	if err := e.connectQP(ctx, q, attr, p); err != nil {
		return err
	}
	if err := e.cm.Accept(ap); err != nil {
		return e.why(ctx, err)
	}
	ev, err := e.next(ctx)
	switch {
	case errors.Is(err, ErrDisconnected):
		return nil // was established, and has already ended
	case err != nil:
		return err
	case ev.Kind == cm.Established:
		return nil
	}
	if err := asRefusal(ev); err != nil {
		return err
	}
	return fail("accept", syscall.EPROTO, "unexpected %v", ev)
}

// Reject refuses the request (rdma_reject), with up to 148 bytes for the
// peer's application. With more bytes it fails, and the request stays open.
func (r *ConnRequest) Reject(private []byte) error {
	if !r.answered.CompareAndSwap(false, true) {
		return fail("reject", syscall.EINVAL, "the request is answered already")
	}
	err := r.reject(cm.RejectConsumer, private)
	if errors.Is(err, cm.ErrPrivateData) {
		r.answered.Store(false)
	}
	return err
}

func (r *ConnRequest) reject(reason cm.RejectReason, private []byte) error {
	err := r.end.cm.Reject(reason, private)
	if err == nil {
		r.end.finish(ErrClosed)
	}
	return err
}
