package ofi

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"syscall"

	"github.com/goroce/roce"
)

// Endpoint is a connected endpoint (struct fid_ep of FI_EP_MSG). Any goroutine may
// call its methods.
type Endpoint struct {
	domain  *Domain
	info    Info
	context any

	eq         *EQ
	txCQ, rxCQ *CQ
	srx        *SharedRecv

	ctx     context.Context // ends with the endpoint
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	qp     *roce.QP
	conn   *roce.Conn
	begun  bool // Connect or Accept was called
	closed bool
	tx, rx ops
}

// OpenEndpoint makes an endpoint (fi_endpoint) from an info. An endpoint that connects takes
// the info of [GetInfo], an endpoint that accepts the info of a [ConnRequest] event.
// [Endpoint.Context] returns ctx.
func (d *Domain) OpenEndpoint(i *Info, ctx any) (*Endpoint, error) {
	if i == nil {
		return nil, fail("endpoint", syscall.EINVAL, "no info")
	}
	info, err := i.complete()
	if err != nil {
		return nil, err
	}
	if info.Device != d.dev {
		return nil, fail("endpoint", syscall.EINVAL, "the info is of another device than the domain")
	}
	e := &Endpoint{domain: d, info: info, context: ctx}
	e.ctx, e.stop = context.WithCancel(context.Background())
	return e, nil
}

// Context returns the ctx of [Domain.OpenEndpoint].
func (e *Endpoint) Context() any { return e.context }

// BindEQ makes the endpoint report its connection to an event queue (fi_ep_bind).
func (e *Endpoint) BindEQ(q *EQ) error {
	if q == nil {
		return fail("ep_bind", syscall.EINVAL, "no event queue")
	}
	return e.bind(func() { e.eq = q })
}

// BindCQ makes sends or receives, or both, complete into a queue (fi_ep_bind with
// FI_TRANSMIT, FI_RECV).
func (e *Endpoint) BindCQ(q *CQ, tx, rx bool) error {
	if q == nil || q.domain != e.domain {
		return fail("ep_bind", syscall.EINVAL, "no completion queue of the endpoint's domain")
	}
	return e.bind(func() {
		if tx {
			e.txCQ = q
		}
		if rx {
			e.rxCQ = q
		}
	})
}

// BindSharedRecv makes the endpoint take its receives from a shared context of its domain
// (fi_ep_bind with a fid_ep of fi_srx_context).
func (e *Endpoint) BindSharedRecv(s *SharedRecv) error {
	if s == nil || s.domain != e.domain {
		return fail("ep_bind", syscall.EINVAL, "no shared receive context of the endpoint's domain")
	}
	return e.bind(func() { e.srx = s })
}

// bind calls f, which binds the endpoint to an object. It fails after Enable.
func (e *Endpoint) bind(f func()) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.qp != nil {
		return fail("ep_bind", syscall.EINVAL, "the endpoint is enabled already")
	}
	f()
	return nil
}

// Enable makes the endpoint ready for receives, and to connect (fi_enable).
func (e *Endpoint) Enable() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return fail("enable", roce.ErrClosed, "the endpoint is closed")
	}
	if e.qp != nil {
		return nil
	}
	if e.txCQ == nil || e.rxCQ == nil || e.eq == nil {
		return fail("enable", syscall.EINVAL, "an event queue and completion queues for both directions must be bound first")
	}
	c := roce.QPConfig{SendCQ: e.txCQ.cq, RecvCQ: e.rxCQ.cq, SignalAll: true,
		Caps: roce.Caps{MaxSendWR: e.info.TxSize, MaxRecvWR: e.info.RxSize, MaxSendSGE: e.info.IOVLimit, MaxRecvSGE: e.info.IOVLimit, MaxInlineData: e.info.InjectSize}}
	if e.srx != nil {
		c.SRQ, c.Caps.MaxRecvWR = e.srx.srq, 0
	}
	q, err := e.domain.pd.CreateQP(c)
	if err != nil {
		return err
	}
	if err := q.Init(roce.DefaultQPAccess, 0); err != nil {
		return errors.Join(err, q.Close())
	}
	e.qp = q
	e.txCQ.attach(e)
	e.rxCQ.attach(e)
	return nil
}

// begin marks the endpoint as connecting, and starts the handshake in the background.
func (e *Endpoint) begin(op string, handshake func(*roce.QP) (*roce.Conn, error)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return fail(op, roce.ErrClosed, "the endpoint is closed")
	case e.qp == nil:
		return fail(op, syscall.EINVAL, "the endpoint is not enabled")
	case e.begun:
		return fail(op, syscall.EISCONN, "the endpoint is connected, or was")
	}
	e.begun = true
	e.running.Go(func() { e.connect(handshake) })
	return nil
}

// connParam returns the connection parameters of the verbs provider.
func connParam(private []byte) roce.ConnParam {
	return roce.ConnParam{PrivateData: private, FlowControl: true, RNRRetryCount: 7}
}

// Connect begins to connect to a passive endpoint (fi_connect), with up to
// [MaxPrivateData] bytes for the peer. The zero address is Info.Dest. The outcome is an
// event: [Connected], or an *[EQError].
func (e *Endpoint) Connect(to netip.AddrPort, data []byte) error {
	private, err := wrapPrivate("connect", data)
	if err != nil {
		return err
	}
	if !to.IsValid() {
		to = e.info.Dest
	}
	if !to.IsValid() {
		return fail("connect", syscall.EINVAL, "no address to connect to")
	}
	return e.begin("connect", func(q *roce.QP) (*roce.Conn, error) {
		return e.info.Device.Dial(e.ctx, to.String(), roce.DialConfig{QP: q, Local: e.info.Src.Addr(), Param: connParam(private)})
	})
}

// Accept begins to accept the request that the endpoint was opened for
// (fi_accept), with up to [MaxPrivateData] bytes for the peer. When the peer has
// confirmed, the event is [Connected].
func (e *Endpoint) Accept(data []byte) error {
	private, err := wrapPrivate("accept", data)
	if err != nil {
		return err
	}
	if e.info.Request == nil {
		return fail("accept", syscall.EINVAL, "the endpoint was not opened for a connection request")
	}
	return e.begin("accept", func(q *roce.QP) (*roce.Conn, error) {
		return e.info.Request.request.Accept(e.ctx, roce.AcceptConfig{QP: q, Param: connParam(private)})
	})
}

// connect does the handshake and reports the outcome, and later the end of the connection.
func (e *Endpoint) connect(handshake func(*roce.QP) (*roce.Conn, error)) {
	c, err := handshake(e.qp)
	if err != nil {
		if e.ctx.Err() == nil {
			e.eq.entries.Put(&entry{err: e.refused(err)})
		}
		return
	}
	e.mu.Lock()
	e.conn = c
	e.mu.Unlock()
	e.eq.entries.Put(&entry{Event: Event{Type: Connected, Endpoint: e, Data: unwrapPrivate(c.PrivateData())}})
	select {
	case <-c.Done():
		e.eq.entries.Put(&entry{Event: Event{Type: Shutdown, Endpoint: e}})
	case <-e.ctx.Done():
	}
}

// refused makes an error entry of a failed handshake.
func (e *Endpoint) refused(err error) *EQError {
	q := &EQError{Endpoint: e, Err: err}
	var r *roce.RejectError
	if errors.As(err, &r) {
		q.Err, q.ProvErrno, q.Data = syscall.ECONNREFUSED, int(r.Reason), unwrapPrivate(r.PrivateData)
	}
	return q
}

// connection returns the connection, ENOTCONN if there is none.
func (e *Endpoint) connection(op string) (*roce.Conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conn == nil {
		return nil, fail(op, syscall.ENOTCONN, "the endpoint is not connected")
	}
	return e.conn, nil
}

// Shutdown ends the connection (fi_shutdown). Posted work requests complete with
// ECANCELED; both sides get a [Shutdown] event.
func (e *Endpoint) Shutdown(ctx context.Context) error {
	c, err := e.connection("shutdown")
	if err != nil {
		return err
	}
	return c.Disconnect(ctx)
}

// Name returns the endpoint's address (fi_getname).
func (e *Endpoint) Name() netip.AddrPort {
	if c, err := e.connection("getname"); err == nil {
		return c.LocalAddr()
	}
	return e.info.Src
}

// Peer returns the address of the other end (fi_getpeer).
func (e *Endpoint) Peer() (netip.AddrPort, error) {
	c, err := e.connection("getpeer")
	if err != nil {
		return netip.AddrPort{}, err
	}
	return c.RemoteAddr(), nil
}

// Close ends the endpoint and its connection (fi_close), without waiting for the peer. If the
// peer must get all data, call [Endpoint.Shutdown] before. Posted work requests get no entries,
// and unread events of the endpoint are dropped. A second call returns net.ErrClosed.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return fail("close", roce.ErrClosed, "the endpoint is closed already")
	}
	e.begun, e.closed = true, true
	q := e.qp
	e.mu.Unlock()
	e.stop()
	e.running.Wait()
	if q != nil {
		// Detach without the lock: reading a completion queue locks the endpoints of its
		// completions.
		e.txCQ.detach(e)
		e.rxCQ.detach(e)
	}
	if e.eq != nil {
		e.eq.entries.Remove(func(o *entry) bool { return o.Endpoint == e || o.err != nil && o.err.Endpoint == e })
	}
	var errs []error
	if c, err := e.connection("close"); err == nil {
		errs = append(errs, c.Close())
	} else if r := e.info.Request; r != nil {
		r.request.Reject(nil) // an error says that the request is answered
	}
	if q != nil {
		errs = append(errs, q.Close())
	}
	return errors.Join(errs...)
}
