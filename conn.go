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
	"github.com/goroce/roce/qp"
)

// ErrDisconnected is why a connection is over when either side ended it in
// order.
var ErrDisconnected = errors.New("roce: disconnected")

// ConnParam is struct rdma_conn_param. The zero value is a good choice. Of the READs and
// the retries 0 stands for the default and -1 for none; what [Conn.Param] and the events of
// package rdmacm report are the numbers themselves.
type ConnParam struct {
	// PrivateData goes to the peer's application: at most 56 bytes when
	// connecting, 196 when accepting. The peer sees it padded with zeros.
	PrivateData []byte

	// ResponderResources is how many READs and atomics the peer may have outstanding
	// here, InitiatorDepth how many this side may have outstanding there: up to
	// [qp.MaxRdAtomic]. 0: a request asks for [qp.DefaultRdAtomic], as many as Linux peers
	// can grant, and an answer grants what the request asks for. -1: none. The two sides
	// agree on the lower number; see [Conn.Param].
	ResponderResources, InitiatorDepth int

	// FlowControl says that this side can end-to-end flow control. An answer also says so
	// if the request does.
	FlowControl bool

	// RetryCount is how often a queue pair repeats what is not acknowledged, RNRRetryCount
	// how often what found no receive: 1 to 7, which for RNRRetryCount is for ever. More
	// than 7 is EINVAL, and in package rdmacm 7. 0: 7, and in an answer RNRRetryCount of the
	// request. -1: not at all. RetryCount of the request holds for both sides.
	RetryCount, RNRRetryCount int

	// MinRNRTimer is the pause this side asks for when it has no receive. The
	// protocol does not carry it. 0: [DefaultMinRNRTimer].
	MinRNRTimer uint8

	// FlushICRCQuirk says that the peer is an rxe of Linux 6.12 with which FLUSH
	// is used; see [Peer].
	FlushICRCQuirk bool

	// Alternate, if set, is an alternate path for the peer to load with the
	// connection, as [Conn.LoadAlternate] does later. Only a request has it. A peer that
	// will not take it connects without; see [Conn.Alternate]. Leave it out for Linux
	// peers.
	Alternate *AlternatePath

	// QPN and SRQ tell the number of a queue pair that the connection manager does not
	// have, and whether it has a shared receive queue. They are for package rdmacm; Dial
	// and Accept, which connect a queue pair of the device, refuse them (EINVAL).
	QPN QPN
	SRQ bool
}

// DefaultMinRNRTimer stands for 0.64 ms.
const DefaultMinRNRTimer = gsi.DefaultMinRNRTimer

// complete puts the numbers in the place of 0 and -1: of a request, or of the answer to an
// offer if that is not nil. Numbers that no connection can have are EINVAL.
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

// ofDevice refuses parameters that a queue pair of the device cannot have. Package rdmacm takes
// them as Linux does: it takes more than 7 retries as 7.
func (p ConnParam) ofDevice() error {
	if n := max(p.RetryCount, p.RNRRetryCount); n > 7 {
		return fail("connection parameters", syscall.EINVAL, "%d retries, the limit is 7", n)
	}
	if p.QPN != 0 || p.SRQ {
		return fail("connection parameters", syscall.EINVAL, "QPN %v and SRQ %v: the queue pair of the connection is known", p.QPN, p.SRQ)
	}
	return nil
}

// endpoint is one end of a connection while it exists: what rdma_cm calls an
// identifier.
type endpoint struct {
	dev    *Device
	cm     *gsi.Conn
	signal chan struct{} // holds a token when there is an event
	done   chan struct{} // closed when the connection is over

	onAlternate func(cm.Path) cm.APStatus
	agreed      ConnParam // by both sides
	lateAccess  Access    // of the peer if it is granted READs, 0: as the queue pair has it

	mu      sync.Mutex
	events  []cm.Event   // of the handshake
	request *ConnRequest // that waits to be accepted
	err     error        // why it is over
}

func newEndpoint(d *Device) *endpoint {
	return &endpoint{dev: d, signal: make(chan struct{}, 1), done: make(chan struct{})}
}

func (e *endpoint) handler() gsi.Handler {
	return gsi.Handler{Event: e.handle, Alternate: e.onAlternate, Gone: e.end}
}

// finish records why the connection is over, once.
func (e *endpoint) finish(err error) {
	e.blame(err)
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.over() {
		close(e.done)
		e.dev.nic.Nudge()
	}
}

// blame records why the connection is about to be over, for programs that find their work
// requests flushed.
func (e *endpoint) blame(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.err = err
	}
}

// over reports whether the connection is over.
func (e *endpoint) over() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// reason is why it is over, nil before.
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
		if ev.Err == nil {
			ev.Err = ErrDisconnected
		}
		e.end(ev.Err)
	}
}

// push adds an event of the handshake, of which there are few.
func (e *endpoint) push(ev cm.Event) {
	e.mu.Lock()
	e.events = append(e.events, ev)
	e.mu.Unlock()
	token(e.signal)
}

// pop takes the oldest event. Without any it says why there will be none, if
// the connection is over.
func (e *endpoint) pop() (ev cm.Event, ok bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.events) == 0 {
		return ev, false, e.err
	}
	ev, e.events = e.events[0], e.events[1:]
	return ev, true, nil
}

// end records that the connection is over, flushes the queue pair, and drops the request if the
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

// next waits for an event of the handshake. What was said before the end comes
// first.
func (e *endpoint) next(ctx context.Context) (cm.Event, error) {
	err := e.dev.nic.Wait(ctx, e.signal, e.done, func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.events) > 0
	})
	ev, ok, why := e.pop()
	switch {
	case ok:
		return ev, nil
	case why != nil:
		return ev, why
	}
	return ev, err
}

// why explains the error of an operation of the handshake: if it came too late for
// the state, the event that has changed the state says what happened.
func (e *endpoint) why(ctx context.Context, err error) error {
	if !errors.Is(err, cm.ErrState) {
		return err
	}
	ev, reason := e.next(ctx)
	if reason == nil {
		reason = asRefusal(ev)
	}
	return cmp.Or(reason, err)
}

// connectQP moves the queue pair of a connection from INIT to RTS with the
// attributes of the handshake. If the connection is over meanwhile, which has moved the
// queue pair to ERR, it says why.
func (e *endpoint) connectQP(ctx context.Context, q *QP, a cm.QPAttr, p ConnParam) error {
	e.agreed = p.agreed(a)
	err := e.cm.ConnectQP(ctx, q.core(), a, e.lateAccess, p.MinRNRTimer, p.FlushICRCQuirk)
	if err != nil {
		err = cmp.Or(e.reason(), err)
	}
	return err
}

// Conn is an established RC connection: a queue pair and what the connection
// manager knows of it.
type Conn struct {
	end     *endpoint
	qp      *QP
	owned   []io.Closer // made for this connection, closed with it
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

// PrivateData returns what the peer sent along when it connected or accepted:
// the whole area, padded with zeros. Its length is not on the wire.
func (c *Conn) PrivateData() []byte { return c.private }

// Param returns what the two sides have agreed on, seen from this side, without private
// data and alternate path: the READs and atomics that are granted, and the retries.
func (c *Conn) Param() ConnParam { return c.param }

// agreed returns p with what the handshake made of it.
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

// Done is closed when the connection is over, for whatever reason. On a polled
// device the program must call [Device.Progress], or wait for completions, meanwhile.
func (c *Conn) Done() <-chan struct{} { return c.end.done }

// Err says why the connection is over: [ErrDisconnected] when either side
// ended it. It is nil before.
func (c *Conn) Err() error { return c.end.reason() }

// Disconnect ends the connection (rdma_disconnect). It sends the DREQ, and repeats it,
// until the peer confirms. Then the queue pair goes to ERR, which flushes what is posted.
// If ctx ends first, the repetitions go on in the background. Disconnect does nothing on a
// connection that is over; after Close it returns [ErrClosed].
//
// librdmacm moves the queue pair to ERR first. Here the queue pair answers the peer until
// the peer confirms: a peer that lost the last acknowledgement repeats its request and needs
// another one, and rxe repeats without an end.
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
	if err := e.reason(); isTimeout(err) {
		return &errs.Error{Op: "disconnect", Detail: "the peer was not told", Err: err}
	}
	return nil
}

// Close ends the connection without waiting for the peer's confirmation. It closes the
// regions of [Conn.RegMR], and the queue pair, the queues and the domain if Dial or Accept
// made them. What is posted is flushed, and data in flight may be lost: a program that must
// deliver waits for its completions and calls [Conn.Disconnect] first. Other regions of the
// domain stay, and the domain is freed with the last of them. The second time it is
// [ErrClosed].
//
// Close need not be repeated. If it fails with EBUSY because a memory window is bound to a
// region, or the region is part of an indirect one, that region is left to the program.
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

// RegMR registers memory in the domain of the connection, as [PD.RegMR] does. The region
// is closed with the connection, unless the program closes it before.
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

// forget drops a region that the program has closed, and with it the program's memory.
func (c *Conn) forget(m *MR) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.regions, m)
}

// closeAll closes in order and returns the first error that is not "closed
// already".
func closeAll[T io.Closer](objects []T) (first error) {
	for _, o := range objects {
		if err := o.Close(); err != nil && first == nil && !errors.Is(err, net.ErrClosed) {
			first = err
		}
	}
	return first
}
