package roce

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/qp"
)

// DefaultUDPQKey is the Q_Key that the UD queue pairs of the connection manager
// use unless told otherwise (RDMA_UDP_QKEY).
const DefaultUDPQKey = cm.DefaultUDPQKey

// UDPeer is a UD queue pair of a peer, and how to send to it: what
// RDMA_CM_EVENT_ESTABLISHED tells (struct rdma_ud_param).
type UDPeer struct {
	AH   *AH
	QPN  bth.QPN
	QKey bth.QKey

	// PrivateData is what the peer sent along: 136 bytes, padded with zeros.
	PrivateData []byte

	LocalAddr, RemoteAddr netip.AddrPort
}

// Address makes a work request go to the peer.
func (p *UDPeer) Address(wr *SendWR) { wr.AH, wr.RemoteQPN, wr.RemoteQKey = p.AH, p.QPN, p.QKey }

// ResolveError is a service that the peer did not give a queue pair for
// (RDMA_CM_EVENT_UNREACHABLE with a positive status). It unwraps to
// ECONNREFUSED.
type ResolveError struct {
	Status      cm.SIDRStatus // 1: nobody listens, 2: the application refused
	PrivateData []byte        // of the peer's application
}

func (e *ResolveError) Error() string {
	return fmt.Sprintf("roce: service not resolved: status %d (%v)", uint8(e.Status), e.Status)
}

// Unwrap returns ECONNREFUSED.
func (e *ResolveError) Unwrap() error { return syscall.ECONNREFUSED }

// ResolveConfig says how [Device.ResolveUD] asks.
type ResolveConfig struct {
	// Local is the address to ask, and later to send, from. Invalid: one that
	// fits.
	Local netip.Addr

	// PrivateData goes to the peer's application: at most 180 bytes.
	PrivateData []byte

	// QKey is the Q_Key of the queue pair that will talk to the peer. If it is not
	// zero the peer must use the same; otherwise its answers would be dropped.
	QKey bth.QKey

	// TrafficClass is the IP TOS of what is sent to the peer.
	TrafficClass uint8
}

// ResolveUD asks a listener of the RDMA connection manager's UDP port space for
// its queue pair (rdma_resolve_addr to rdma_connect of an identifier of
// RDMA_PS_UDP). addr is "host:port" with an IP address. There is no connection
// then: the peer knows nothing of the queue pair that will send to it, and
// nothing has to be ended.
//
// A refusal is a *[ResolveError] (ECONNREFUSED), a Q_Key other than the one
// demanded is EINVAL. A peer that does not answer is ETIMEDOUT after more than a
// minute, so give ctx a deadline.
func (d *Device) ResolveUD(ctx context.Context, addr string, c *ResolveConfig) (*UDPeer, error) {
	if c == nil {
		c = &ResolveConfig{}
	}
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fail("resolve ud", syscall.EINVAL, "%v", err)
	}
	p, err := d.resolveUD(ctx, to, c)
	if err != nil {
		return nil, fmt.Errorf("resolve %v: %w", to, err)
	}
	return p, nil
}

func (d *Device) resolveUD(ctx context.Context, to netip.AddrPort, c *ResolveConfig) (*UDPeer, error) {
	if d.closing.Load() {
		return nil, ErrClosed
	}
	remote := bth.GIDFrom(to.Addr())
	index, local, err := d.source(c.Local, remote)
	if err != nil {
		return nil, err
	}
	attr := AHAttr{DGID: remote, SGIDIndex: index, TrafficClass: c.TrafficClass}
	path, err := d.resolve(ctx, attr, frame.HashPort(bth.QPNGSI))
	if err != nil {
		return nil, err
	}
	src := netip.AddrPortFrom(local.Addr(), d.ephemeralPort())
	q := &query{dev: d, signal: make(chan struct{}, 1), done: make(chan struct{})}
	closed := d.gsi.do(func(now mono.Time) {
		if err = d.present(); err != nil {
			return
		}
		key := pathKey{local, remote}
		d.gsi.remember(key, path)
		q.query, err = d.gsi.manager.Resolve(now, cm.ResolveParam{ServiceID: cm.Service(cm.PortSpaceUDP, to.Port()),
			Local: local, Remote: remote, Src: src, Dst: to, Private: c.PrivateData, User: q})
		if err == nil {
			q.way = d.gsi.hold(key)
			d.gsi.asking[q] = struct{}{}
		}
	})
	if err = cmp.Or(closed, err); err != nil {
		return nil, err
	}
	ev, err := q.answer(ctx)
	switch {
	case err != nil:
		return nil, err
	case ev.Kind == cm.Unreachable:
		return nil, ev.Err
	case ev.Status != cm.SIDRValid:
		return nil, &ResolveError{ev.Status, ev.Private}
	case c.QKey != 0 && ev.QKey != c.QKey:
		return nil, fail("resolve ud", syscall.EINVAL, "the peer's Q_Key is %v, want %v", ev.QKey, c.QKey)
	}
	attr.FlowLabel = cm.FlowLabel(src.Port(), to.Port())
	ah, err := d.CreateAH(ctx, attr)
	if err != nil {
		return nil, err
	}
	return &UDPeer{AH: ah, QPN: ev.QPN, QKey: ev.QKey, PrivateData: ev.Private, LocalAddr: src, RemoteAddr: to}, nil
}

// query is a question under way.
type query struct {
	dev    *Device
	query  *cm.Query
	way    *way          // where it goes
	signal chan struct{} // holds a token when there is an answer
	done   chan struct{} // closed when there will be none

	mu    sync.Mutex
	event *cm.Event
	err   error // why there will be none
}

// end is for a device that is gone. No lock is held.
func (q *query) end(why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = why
		close(q.done)
	}
}

// handle takes the answer. No lock is held.
func (q *query) handle(ev cm.Event) {
	q.mu.Lock()
	q.event = &ev
	q.mu.Unlock()
	q.signal <- struct{}{} // the only one
}

// answer waits for the answer.
func (q *query) answer(ctx context.Context) (cm.Event, error) {
	err := q.dev.wait(ctx, q.signal, q.done, func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.event != nil
	})
	q.dev.gsi.do(func(mono.Time) {
		q.query.Cancel()
		q.dev.gsi.release(q.way)
		delete(q.dev.gsi.asking, q)
	})
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.event != nil {
		return *q.event, nil
	}
	return cm.Event{}, cmp.Or(q.err, err)
}

// UDListener is asked for UD queue pairs (rdma_listen of an identifier of
// RDMA_PS_UDP).
type UDListener struct {
	dev      *Device
	addr     netip.AddrPort
	listener *cm.Listener
	queue    requestQueue[*UDRequest]
}

// ListenUD takes requests for UD queue pairs, as [Device.Listen] does for
// connections. The UDP port space is one of its own.
func (d *Device) ListenUD(_ context.Context, addr string, c *ListenConfig) (*UDListener, error) {
	l := &UDListener{dev: d}
	l.queue.init(d)
	var err error
	if l.listener, l.addr, err = d.listen(cm.PortSpaceUDP, addr, c, l); err != nil {
		return nil, err
	}
	return l, nil
}

// Addr returns the address and port that is listened on.
func (l *UDListener) Addr() netip.AddrPort { return l.addr }

// Accept waits for the next request (rdma_get_request). Answer it with
// [UDRequest.Accept] or [UDRequest.Reject]; a repeated request is dropped
// meanwhile.
func (l *UDListener) Accept(ctx context.Context) (*UDRequest, error) { return l.queue.next(ctx) }

// Close takes no more requests and rejects those nobody has accepted yet.
func (l *UDListener) Close() error { return l.end(ErrClosed) }

func (l *UDListener) end(why error) error {
	rest, err := l.queue.close(why)
	if err != nil {
		return err
	}
	l.dev.gsi.unlisten(l.listener, l)
	for _, r := range rest {
		r.Reject(nil)
	}
	l.dev.nudge()
	return nil
}

// offer takes a request from the connection manager. No lock is held.
func (l *UDListener) offer(ev cm.Event) {
	r := ev.Inquiry.User.(*UDRequest)
	r.listener, r.private = l, ev.Private
	if !l.queue.push(r) {
		r.Reject(nil)
	}
}

// UDRequest is a peer's wish for a UD queue pair (RDMA_CM_EVENT_CONNECT_REQUEST
// of an identifier of RDMA_PS_UDP). What it asks from is not known, only its
// address.
type UDRequest struct {
	dev      *Device
	listener *UDListener
	inquiry  *cm.Inquiry
	way      *way // where the answer goes
	private  []byte
	answered atomic.Bool
}

// newUDRequest is called with the shard locked.
func (g *gsi) newUDRequest(q *cm.Inquiry) *UDRequest {
	r := &UDRequest{dev: g.dev, inquiry: q, way: g.hold(pathKey{q.LocalGID(), q.PeerAddress()})}
	g.asked[r] = struct{}{}
	return r
}

// PrivateData returns what the peer sent along: 180 bytes, padded with zeros.
func (r *UDRequest) PrivateData() []byte { return r.private }

// RemoteAddr returns the peer's address and port.
func (r *UDRequest) RemoteAddr() netip.AddrPort { return r.inquiry.RemoteAddr() }

// LocalAddr returns the address the request is for.
func (r *UDRequest) LocalAddr() netip.AddrPort { return r.inquiry.LocalAddr() }

// Accept gives the peer a UD queue pair of the device (rdma_accept), with the
// Q_Key that it has, and up to 136 bytes for the peer's application. It must be
// able to receive: in RTR or beyond, with receives posted, because the peer may
// send at once. EINVAL otherwise, or if its Q_Key is 0, which the answer cannot
// say; the request then stays open.
//
// The answer is sent once. If it is lost the peer asks again, which is another
// request.
func (r *UDRequest) Accept(q *QP, private []byte) error {
	if q.dev != r.dev || q.engine.Type() != qp.UD {
		return fail("accept", syscall.EINVAL, "qp %v is not a UD queue pair of the device", q.num)
	}
	a, _ := q.Query()
	if !slices.Contains([]qp.State{qp.RTR, qp.RTS, qp.SQD, qp.SQE}, a.State) {
		return fail("accept", syscall.EINVAL, "qp %v is in state %v and cannot receive; see QP.Ready", q.num, a.State)
	}
	if a.QKey == 0 {
		return fail("accept", syscall.EINVAL, "the Q_Key of qp %v is 0; use DefaultUDPQKey", q.num)
	}
	return r.answer("accept", func() error { return r.inquiry.Accept(q.num, a.QKey, private) })
}

// Reject refuses the request (rdma_reject), with up to 136 bytes for the peer's
// application. With more it fails and the request stays open.
func (r *UDRequest) Reject(private []byte) error {
	return r.answer("reject", func() error { return r.inquiry.Reject(cm.SIDRReject, private) })
}

// answer sends an answer unless there was one.
func (r *UDRequest) answer(op string, f func() error) error {
	if !r.answered.CompareAndSwap(false, true) {
		return fail(op, syscall.EINVAL, "the request of %v is answered already", r.RemoteAddr())
	}
	var err error
	closed := r.dev.gsi.do(func(mono.Time) {
		if err = f(); err == nil {
			r.dev.gsi.forgetRequest(r)
		}
	})
	if err != nil {
		r.answered.Store(false)
	}
	return cmp.Or(closed, err)
}

// forgetRequest is called with the shard locked.
func (g *gsi) forgetRequest(r *UDRequest) {
	if _, ok := g.asked[r]; ok {
		delete(g.asked, r)
		g.release(r.way)
	}
}
