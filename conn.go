package roce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/qp"
)

// ErrDisconnected is why a connection is over when either side ended it in
// order.
var ErrDisconnected = errors.New("roce: disconnected")

// ConnParam is struct rdma_conn_param.
type ConnParam struct {
	// PrivateData goes to the peer's application: at most 56 bytes when
	// connecting, 196 when accepting. The peer sees it padded with zeros.
	PrivateData []byte

	// READs and atomics the peer may have outstanding here, and this side
	// there: up to [qp.MaxRdAtomic]. [Unlimited]: 128, or as many as the peer can.
	ResponderResources, InitiatorDepth uint8

	FlowControl   bool
	RetryCount    uint8 // transport retries, at most 7
	RNRRetryCount uint8 // receiver-not-ready retries, 7: for ever

	// MinRNRTimer is the pause this side asks for when it has no receive. The
	// protocol does not carry it. 0: 12, which is 0.64 ms.
	MinRNRTimer uint8

	// FlushICRCQuirk says that the peer is an rxe of Linux 6.12 with which FLUSH
	// is used; see [Peer].
	FlushICRCQuirk bool
}

// Unlimited asks for as many READs and atomics as are usual, [qp.DefaultRdAtomic], or
// grants as many as the peer asks for (RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH).
const Unlimited = qp.UnlimitedRdAtomic

// DefaultConnParam is what a nil *ConnParam stands for, as with librdmacm.
var DefaultConnParam = ConnParam{ResponderResources: Unlimited, InitiatorDepth: Unlimited, RetryCount: 7, RNRRetryCount: 7}

func (p *ConnParam) orDefault() ConnParam {
	c := DefaultConnParam
	if p != nil {
		c = *p
	}
	if c.MinRNRTimer == 0 {
		c.MinRNRTimer = 12
	}
	return c
}

// endpoint is one end of a connection while it exists: what rdma_cm calls an
// identifier.
type endpoint struct {
	dev    *Device
	cm     *CMConn
	signal chan struct{} // holds a token when there is an event
	done   chan struct{} // closed when the connection is over

	onAlternate func(cm.Path) cm.APStatus
	lateAccess  Access // of the peer if it is granted READs, 0: as the queue pair has it

	mu      sync.Mutex
	events  []cm.Event   // of the handshake
	request *ConnRequest // that nobody has accepted yet
	err     error        // why it is over
}

func newEndpoint(d *Device) *endpoint {
	return &endpoint{dev: d, signal: make(chan struct{}, 1), done: make(chan struct{})}
}

func (e *endpoint) handler() CMHandler {
	return CMHandler{Event: e.handle, Alternate: e.onAlternate, Gone: e.end}
}

// finish records why the connection is over, once.
func (e *endpoint) finish(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.err = err
	}
	if !e.over() {
		close(e.done)
		e.dev.nudge()
	}
}

// blame records why the connection is about to be over, so that whoever sees its
// work requests flushed can tell.
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
	select {
	case e.signal <- struct{}{}:
	default:
	}
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

// end is what the peer's end of the connection means here: a request that nobody
// has accepted vanishes.
func (e *endpoint) end(why error) {
	e.blame(why)
	e.cm.Flush()
	e.finish(why)
	e.mu.Lock()
	r := e.request
	e.mu.Unlock()
	if r != nil {
		r.listener.queue.remove(r)
	}
}

// destroy gives the connection up, whatever state it is in: the peer is told.
func (e *endpoint) destroy() {
	e.cm.Destroy()
	e.finish(ErrClosed)
}

// next waits for an event of the handshake. What was said before the end comes
// first.
func (e *endpoint) next(ctx context.Context) (cm.Event, error) {
	err := e.dev.wait(ctx, e.signal, e.done, func() bool {
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
	var late *cm.StateError
	if !errors.As(err, &late) {
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
	err := e.cm.ConnectQP(ctx, q, a, e.lateAccess, p.MinRNRTimer, p.FlushICRCQuirk)
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
	owned   []interface{ Close() error } // made for this connection, closed with it
	private []byte
	local   netip.AddrPort
	remote  netip.AddrPort
}

// QP returns the queue pair, in state RTS while the connection lasts.
func (c *Conn) QP() *QP { return c.qp }

// PrivateData returns what the peer sent along when it connected or accepted:
// the whole area, padded with zeros. Its length is not on the wire.
func (c *Conn) PrivateData() []byte { return c.private }

// LocalAddr returns the address and port of this end.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// RemoteAddr returns the address and port of the other end.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.remote }

// Done is closed when the connection is over, for whatever reason. On a polled
// device someone has to drive it meanwhile.
func (c *Conn) Done() <-chan struct{} { return c.end.done }

// Err says why the connection is over: [ErrDisconnected] when either side
// ended it. It is nil before.
func (c *Conn) Err() error { return c.end.reason() }

// Disconnect ends the connection (rdma_disconnect): the peer is told until it
// confirms, and the queue pair goes to ERR, which flushes what is posted. If ctx
// ends first, the telling goes on in the background. On a connection that is over
// already Disconnect does nothing.
//
// Other than with librdmacm, where the queue pair goes first, it answers the peer
// until the peer has confirmed: to one that lost the last acknowledgement nobody
// would give another, and rxe, which repeats for ever, would wait for ever.
func (c *Conn) Disconnect(ctx context.Context) error {
	e := c.end
	e.cm.try(func(now mono.Time) error {
		if e.cm.conn.State() == cm.StateEstablished {
			return e.cm.conn.Disconnect(now, nil)
		}
		return nil
	})
	err := e.dev.wait(ctx, e.signal, e.done, e.over)
	e.cm.Flush()
	if err != nil && !e.over() {
		return err
	}
	if err := e.reason(); isTimeout(err) {
		return fmt.Errorf("disconnect: %w", err)
	}
	return nil
}

// Close gives the connection up without waiting for the peer's confirmation,
// and closes the queue pair and queues if they were made for it. If their
// domain is still in use (EBUSY), close the memory regions in it and call Close
// again.
func (c *Conn) Close() error {
	if c.end.over() {
		c.end.cm.Flush()
	} else {
		c.end.destroy()
	}
	return closeAll(c.owned)
}

// closeAll closes in order and returns the first error that is not "closed
// already".
func closeAll(objects []interface{ Close() error }) (first error) {
	for _, o := range objects {
		if err := o.Close(); err != nil && first == nil && !errors.Is(err, net.ErrClosed) {
			first = err
		}
	}
	return first
}
