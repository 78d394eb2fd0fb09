package roce

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/gsi"
	"github.com/goroce/roce/internal/notify"
	"github.com/goroce/roce/qp"
)

// ErrDisconnected is the reason for the end of a connection that either side
// disconnected.
var ErrDisconnected = errors.New("roce: disconnected")

// ConnParam is struct rdma_conn_param. The zero value is a good choice. For READs and
// retries, 0 means the default and -1 means none; [Conn.Param] and the events of package
// rdmacm report the actual numbers.
type ConnParam struct {
	// PrivateData is for the peer's application: at most 56 bytes when
	// connecting, 196 when accepting. The peer gets it padded with zeros.
	PrivateData []byte

	// ResponderResources is the number of READs and atomics that the peer may have
	// outstanding at this side, InitiatorDepth the number that this side may have
	// outstanding at the peer: up to [qp.MaxRdAtomic]. 0: a request asks for
	// [qp.DefaultRdAtomic], the most that Linux peers grant, and an answer grants the
	// number in the request. -1: none. The two sides agree on the lower number; see
	// [Conn.Param].
	ResponderResources, InitiatorDepth int

	// FlowControl tells the peer that this side supports end-to-end flow control. An
	// answer also sets it if the request does.
	FlowControl bool

	// RetryCount is the number of times that a queue pair repeats an unacknowledged request,
	// RNRRetryCount the number of times that it repeats a request after an RNR NAK: 1 to 7.
	// For RNRRetryCount 7 means for ever. More than 7 is EINVAL, but package rdmacm uses 7
	// instead. 0 means 7, but in an answer RNRRetryCount 0 means that of the request. -1: no
	// repetition. RetryCount of the request applies to both sides.
	RetryCount, RNRRetryCount int

	// MinRNRTimer is the pause that this side requests from the peer when it
	// has no receive. The handshake does not carry it. 0:
	// [DefaultMinRNRTimer].
	MinRNRTimer uint8

	// FlushICRCQuirk makes FLUSH work with an rxe of Linux 6.12 as peer; see
	// [Peer].
	FlushICRCQuirk bool

	// Alternate, if set, is an alternate path for the peer to load with the connection,
	// as [Conn.LoadAlternate] does later. Only a request may have one. A peer that does
	// not accept the path connects without it; see [Conn.Alternate]. Do not set it for
	// Linux peers.
	Alternate *AlternatePath

	// QPN is the number of a queue pair that the connection manager does not know, and
	// SRQ tells whether this queue pair has a shared receive queue. They are for package
	// rdmacm; Dial and Accept, which connect a queue pair of the device, refuse them
	// (EINVAL).
	QPN QPN
	SRQ bool
}

// DefaultMinRNRTimer is the code of 0.64 ms.
const DefaultMinRNRTimer = gsi.DefaultMinRNRTimer

// complete replaces 0 and -1 by the actual numbers. If offer is nil, p is for a request,
// otherwise for the answer to offer. It returns EINVAL for numbers that are out of range.
func (p *ConnParam) complete(offer *cm.Offer) error {
	if n := max(p.ResponderResources, p.InitiatorDepth); n > qp.MaxRdAtomic {
		return fail("connection parameters", syscall.EINVAL, "%d READs and atomics, the device has %d; 0 asks for as many as both sides can", n, qp.MaxRdAtomic)
	}
	d := cm.Offer{ResponderResources: qp.DefaultRdAtomic, InitiatorDepth: qp.DefaultRdAtomic, RetryCount: 7, RNRRetryCount: 7}
	if offer != nil {
		d = *offer
		d.ResponderResources, d.InitiatorDepth = min(d.ResponderResources, qp.MaxRdAtomic), min(d.InitiatorDepth, qp.MaxRdAtomic)
	}
	for _, f := range []struct {
		n         *int
		byDefault uint8
	}{{&p.ResponderResources, d.ResponderResources}, {&p.InitiatorDepth, d.InitiatorDepth}, {&p.RetryCount, d.RetryCount}, {&p.RNRRetryCount, d.RNRRetryCount}} {
		switch {
		case *f.n < -1:
			return fail("connection parameters", syscall.EINVAL, "%d READs or retries; -1 stands for none", *f.n)
		case *f.n == -1:
			*f.n = 0
		case *f.n == 0:
			*f.n = int(f.byDefault)
		}
	}
	p.FlowControl = p.FlowControl || d.FlowControl
	p.MinRNRTimer = cmp.Or(p.MinRNRTimer, DefaultMinRNRTimer)
	return nil
}

// completeForDevice is complete, but refuses parameters that a queue pair of the device cannot have.
// Package rdmacm does not call it, because Linux accepts more than 7 retries and uses 7.
func (p *ConnParam) completeForDevice(offer *cm.Offer) error {
	if err := p.complete(offer); err != nil {
		return err
	}
	if n := max(p.RetryCount, p.RNRRetryCount); n > 7 {
		return fail("connection parameters", syscall.EINVAL, "%d retries, the limit is 7", n)
	}
	if p.QPN != 0 || p.SRQ {
		return fail("connection parameters", syscall.EINVAL, "QPN %v and SRQ %v: the queue pair of the connection is known", p.QPN, p.SRQ)
	}
	return nil
}

// endpoint is one end of a connection, an identifier of rdma_cm. ResolveUD uses one without a connection to wait for
// its answer.
type endpoint struct {
	dev    *Device
	cm     *gsi.Conn     // nil: ResolveUD
	signal notify.Chan   // holds a token when there is an event
	done   chan struct{} // closed when the connection is over

	onAlternate func(cm.Path) cm.APStatus
	agreed      ConnParam // parameters that both sides agreed on
	lateAccess  Access    // rights of the peer if it is granted READs; 0: those of the queue pair

	mu      sync.Mutex
	events  []cm.Event   // of the handshake
	request *ConnRequest // not accepted yet
	err     error        // reason for the end
}

func newEndpoint(d *Device) *endpoint {
	return &endpoint{dev: d, signal: notify.New(), done: make(chan struct{})}
}

func (e *endpoint) handler() gsi.Handler {
	return gsi.Handler{Event: e.handle, Alternate: e.onAlternate, Gone: e.end}
}

// finish records the reason for the end of the connection, once.
func (e *endpoint) finish(err error) {
	e.blame(err)
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.over() {
		close(e.done)
		e.dev.nic.Nudge()
	}
}

// blame records the reason for the coming end of the connection, for programs whose work
// requests are flushed before the end.
func (e *endpoint) blame(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err = cmp.Or(e.err, err)
}

// over reports whether the connection has ended.
func (e *endpoint) over() bool { return notify.Closed(e.done) }

// reason returns the reason for the end of the connection, nil before the
// end.
func (e *endpoint) reason() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// handle takes an event of the connection manager. No lock is held.
func (e *endpoint) handle(ev cm.Event) {
	switch ev.Kind {
	case cm.ConnectResponse, cm.Established:
		e.push(ev)
	case cm.Rejected, cm.Unreachable:
		e.push(ev)
		e.end(asRefusal(ev))
	case cm.DisconnectRequest:
		e.end(ErrDisconnected)
		e.cm.Disconnect(nil) // the DREP
	case cm.Disconnected:
		e.end(cmp.Or(ev.Err, ErrDisconnected))
	}
}

// push adds an event of the handshake. The queue is not bounded, because a
// handshake has few events.
func (e *endpoint) push(ev cm.Event) {
	e.mu.Lock()
	e.events = append(e.events, ev)
	e.mu.Unlock()
	e.signal.Notify()
}

// end records the end of the connection, flushes the queue pair, and drops the request if the
// program has not accepted it.
func (e *endpoint) end(why error) {
	e.blame(why)
	e.cm.Flush()
	e.finish(why)
	e.mu.Lock()
	r := e.request
	e.mu.Unlock()
	if r != nil {
		r.listener.queue.Remove(r)
	}
}

// destroy ends the connection in any state and tells the peer.
func (e *endpoint) destroy() {
	e.cm.Destroy()
	e.finish(ErrClosed)
}

// next waits for an event of the handshake, or for the answer of ResolveUD. It returns events from
// before the end of the connection first, and then the reason for the end.
func (e *endpoint) next(ctx context.Context) (ev cm.Event, err error) {
	err = e.dev.nic.Wait(ctx, e.signal, e.done, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.events) > 0
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.events) > 0 {
		ev, e.events = e.events[0], e.events[1:]
		return ev, nil
	}
	return ev, cmp.Or(e.err, err)
}

// why replaces the error of a handshake operation by its cause: if the state had
// already changed, the event that changed it is the cause.
func (e *endpoint) why(ctx context.Context, err error) error {
	if !errors.Is(err, cm.ErrState) {
		return err
	}
	ev, reason := e.next(ctx)
	return cmp.Or(reason, asRefusal(ev), err)
}

// connectQP moves the queue pair of a connection from INIT to RTS with the attributes
// of the handshake. If the connection ends meanwhile, which moves the queue pair to
// ERR, it returns the reason.
func (e *endpoint) connectQP(ctx context.Context, q *QP, a cm.QPAttr, p ConnParam) error {
	e.agreed = p.agreed(a)
	err := e.cm.ConnectQP(ctx, q.core(), a, e.lateAccess, p.MinRNRTimer, p.FlushICRCQuirk)
	if err != nil {
		err = cmp.Or(e.reason(), err)
	}
	return err
}

// Conn is an established RC connection: a queue pair and its state in the
// connection manager.
type Conn struct {
	end     *endpoint
	qp      *QP
	owned   []io.Closer // objects that were made for this connection, and close with it
	private []byte
	param   ConnParam // as agreed
	closed  atomic.Bool

	mu      sync.Mutex
	regions map[*MR]struct{} // of RegMR; nil once the connection is closed

	local  netip.AddrPort
	remote netip.AddrPort
}

// QP returns the queue pair, in state RTS while the connection lasts.
func (c *Conn) QP() *QP { return c.qp }

// PrivateData returns the peer's private data from its request or answer: the
// whole field, padded with zeros, because the wire does not carry its length.
func (c *Conn) PrivateData() []byte { return c.private }

// Param returns the agreed parameters from the view of this side, without private data
// and alternate path: the granted READs and atomics, and the retries.
func (c *Conn) Param() ConnParam { return c.param }

// agreed returns p with the numbers that the handshake has agreed on.
func (p ConnParam) agreed(a cm.QPAttr) ConnParam {
	p.PrivateData, p.Alternate = nil, nil
	p.ResponderResources, p.InitiatorDepth = int(min(a.MaxDestRdAtomic, qp.MaxRdAtomic)), int(min(a.MaxRdAtomic, qp.MaxRdAtomic))
	p.RetryCount, p.RNRRetryCount = int(a.RetryCount), int(a.RNRRetry)
	return p
}

// LocalAddr returns the address and port of this end.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// RemoteAddr returns the address and port of the other end.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.remote }

// Done returns a channel that is closed when the connection ends for any reason. On a
// polled device the program must call [Device.Progress], or wait for completions,
// meanwhile.
func (c *Conn) Done() <-chan struct{} { return c.end.done }

// Err returns the reason for the end of the connection: [ErrDisconnected] if
// either side disconnected. It returns nil before the end.
func (c *Conn) Err() error { return c.end.reason() }

// Disconnect ends the connection (rdma_disconnect). It sends the DREQ, and repeats it,
// until the peer confirms. Then the queue pair moves to ERR, which flushes posted work
// requests. If ctx ends first, the repetitions continue in the background. Disconnect does
// nothing on a connection that has ended; after Close it returns [ErrClosed].
//
// librdmacm moves the queue pair to ERR first. Here the queue pair answers the peer until
// the peer confirms: if the last acknowledgement was lost, the peer repeats its request and
// needs another acknowledgement, and rxe repeats for ever.
func (c *Conn) Disconnect(ctx context.Context) error {
	if c.closed.Load() {
		return ErrClosed
	}
	e := c.end
	e.cm.DisconnectEstablished()
	err := e.dev.nic.Wait(ctx, e.signal, e.done, e.over)
	e.cm.Flush()
	if err != nil && !e.over() {
		return err
	}
	if err := e.reason(); errors.Is(err, syscall.ETIMEDOUT) {
		return &errs.Error{Op: "disconnect", Detail: "the peer has not confirmed the end of the connection", Err: err}
	}
	return nil
}

// Close ends the connection without waiting for the peer's confirmation. It closes the
// regions of [Conn.RegMR], and the queue pair, the queues and the domain if Dial or Accept
// made them. Posted work requests are flushed, and data in flight may be lost: to deliver
// all data, wait for completions and call [Conn.Disconnect] first. Other regions of the
// domain stay, and the domain is freed with the last of them. A second Close returns
// [ErrClosed].
//
// Close need not be repeated. If it fails with EBUSY because a memory window is bound to a
// region, or the region is part of an indirect region, the program must close that region
// itself.
func (c *Conn) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return ErrClosed
	}
	if c.end.over() {
		c.end.cm.Flush()
	} else {
		c.end.destroy()
	}
	c.mu.Lock()
	regions := slices.Collect(maps.Keys(c.regions))
	c.regions = nil
	c.mu.Unlock()
	return errors.Join(closeAll(c.owned), closeAll(regions))
}

// PD returns the protection domain of the queue pair.
func (c *Conn) PD() *PD { return c.qp.PD() }

// RegMR registers memory in the domain of the connection, as [PD.RegMR] does.
// [Conn.Close] closes the region, unless the program closes it before.
func (c *Conn) RegMR(buf []byte, access Access) (*MR, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() {
		return nil, ErrClosed
	}
	m, err := c.PD().RegMR(buf, access)
	if err != nil {
		return nil, err
	}
	if m.conn = c; c.regions == nil {
		c.regions = map[*MR]struct{}{}
	}
	c.regions[m] = struct{}{}
	return m, nil
}

// forget drops a region that the program has closed, so that the connection does not
// keep the program's memory.
func (c *Conn) forget(m *MR) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.regions, m)
}

// closeAll closes objects in order and returns the first error other than
// "closed already".
func closeAll[T io.Closer](objects []T) (first error) {
	for _, o := range objects {
		if err := o.Close(); err != nil && first == nil && !errors.Is(err, net.ErrClosed) {
			first = err
		}
	}
	return first
}
