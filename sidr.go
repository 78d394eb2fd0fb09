package roce

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"syscall"

	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/gsi"
)

// DefaultUDPQKey is the default Q_Key of UD queue pairs of the connection
// manager (RDMA_UDP_QKEY).
const DefaultUDPQKey = cm.DefaultUDPQKey

// UDPeer is a UD queue pair of a peer, with the address handle and Q_Key for
// it: the data of RDMA_CM_EVENT_ESTABLISHED (struct rdma_ud_param).
type UDPeer struct {
	AH   *AH
	QPN  QPN
	QKey QKey

	// PrivateData is the peer's private data: 136 bytes, padded with zeros.
	PrivateData []byte

	LocalAddr, RemoteAddr netip.AddrPort
}

// Address sets the destination of a work request to the peer.
func (p *UDPeer) Address(wr *SendWR) { wr.AH, wr.RemoteQPN, wr.RemoteQKey = p.AH, p.QPN, p.QKey }

// ResolveConfig configures [Device.ResolveUD].
type ResolveConfig struct {
	// Local is the source address of the request and of later datagrams.
	// Invalid: the device chooses.
	Local netip.Addr

	// PrivateData is for the peer's application: at most 180 bytes.
	PrivateData []byte

	// QKey is the Q_Key of the program's queue pair. If it is not zero, the peer
	// must use the same; otherwise the queue pair would drop the peer's datagrams.
	QKey QKey

	// TrafficClass is the IP TOS of datagrams to the peer.
	TrafficClass uint8
}

// ResolveUD asks a listener of the RDMA connection manager's UDP port space for its queue
// pair (rdma_getaddrinfo to rdma_connect of an identifier of RDMA_PS_UDP). addr is as in
// [Device.Dial], with services of UDP. This makes no connection: the peer does not know
// the program's queue pair, and the program need not disconnect.
//
// If the peer refuses, the error is a *[ResolveError] (ECONNREFUSED); if the
// peer has another Q_Key than ResolveConfig.QKey, it is EINVAL. If the peer does
// not answer, it is ETIMEDOUT after more than a minute, so give ctx a deadline.
func (d *Device) ResolveUD(ctx context.Context, addr string, c ResolveConfig) (*UDPeer, error) {
	addrs, err := d.lookup(ctx, "udp", addr, c.Local)
	if err != nil {
		return nil, errs.New("resolve", err, "%s", addr)
	}
	return tryEach(ctx, "resolve", addrs, func(ctx context.Context, to netip.AddrPort) (*UDPeer, error) {
		return d.resolveUD(ctx, to, c)
	})
}

func (d *Device) resolveUD(ctx context.Context, to netip.AddrPort, c ResolveConfig) (*UDPeer, error) {
	if d.nic.Closing() {
		return nil, ErrClosed
	}
	route, err := d.cm.Route(ctx, c.Local, to.Addr(), c.TrafficClass)
	if err != nil {
		return nil, err
	}
	e := newEndpoint(d)
	src := netip.AddrPortFrom(route.Local, d.cm.EphemeralPort())
	query, err := d.cm.Resolve(route, cm.ResolveParam{ServiceID: cm.Service(cm.PortSpaceUDP, to.Port()), Src: src, Dst: to,
		Private: c.PrivateData}, gsi.Handler{Event: e.push, Gone: e.finish})
	if err != nil {
		return nil, err
	}
	ev, err := e.next(ctx)
	query.Cancel()
	switch {
	case err != nil:
		return nil, err
	case ev.Kind == cm.Unreachable:
		return nil, ev.Err
	case ev.Status != cm.SIDRValid:
		return nil, &ResolveError{Status: ev.Status, PrivateData: ev.Private}
	case c.QKey != 0 && ev.QKey != c.QKey:
		return nil, fail("resolve ud", syscall.EINVAL, "the peer's Q_Key is %v, want %v", ev.QKey, c.QKey)
	}
	attr := AHAttr(route.Way)
	attr.FlowLabel = cm.FlowLabel(src.Port(), to.Port())
	ah, err := d.CreateAH(ctx, attr)
	if err != nil {
		return nil, err
	}
	return &UDPeer{AH: ah, QPN: ev.QPN, QKey: ev.QKey, PrivateData: ev.Private, LocalAddr: src, RemoteAddr: to}, nil
}

// UDListener receives requests for UD queue pairs (rdma_listen of an identifier of
// RDMA_PS_UDP).
type UDListener struct{ requests[*UDRequest] }

// ListenUD receives requests for UD queue pairs, as [Device.Listen] does for
// connections. The UDP port space is separate from the TCP port space.
func (d *Device) ListenUD(ctx context.Context, addr string, c ListenConfig) (*UDListener, error) {
	l := new(UDListener)
	l.reject = func(r *UDRequest) { r.Reject(nil) }
	if err := l.listen(ctx, d, cm.PortSpaceUDP, addr, c, gsi.ListenHandler{Inquiry: l.offer, Gone: l.gone}); err != nil {
		return nil, err
	}
	return l, nil
}

// Accept waits for the next request (rdma_get_request). Answer it with [UDRequest.Accept] or
// [UDRequest.Reject]; the connection manager drops repetitions meanwhile. Accept returns requests
// of different sources in turn. It drops a request that is not answered in time. Accept returns
// the context's error, or [ErrClosed] after Close.
func (l *UDListener) Accept(ctx context.Context) (*UDRequest, error) { return l.queue.Next(ctx) }

// offer receives a request from the connection manager. No lock is held.
func (l *UDListener) offer(q *gsi.Inquiry, ev cm.Event) {
	r := &UDRequest{cm: q, private: ev.Private}
	q.OnOver(func() { l.queue.Remove(r) })
	if !l.queue.Push(r, q.Info().PeerAddress()) {
		r.Reject(nil)
	}
}

// UDRequest is a peer's request for a UD queue pair
// (RDMA_CM_EVENT_CONNECT_REQUEST of an identifier of RDMA_PS_UDP). It has the
// peer's address, but not the peer's queue pair.
type UDRequest struct {
	cm       *gsi.Inquiry
	private  []byte
	answered atomic.Bool
}

// PrivateData returns the peer's private data: 180 bytes, padded with zeros.
func (r *UDRequest) PrivateData() []byte { return r.private }

// RemoteAddr returns the peer's address and port.
func (r *UDRequest) RemoteAddr() netip.AddrPort { return r.cm.Info().RemoteAddr() }

// LocalAddr returns the address and port to which the request was sent.
func (r *UDRequest) LocalAddr() netip.AddrPort { return r.cm.Info().LocalAddr() }

// Accept sends the peer the number and Q_Key of a UD queue pair of the device
// (rdma_accept), with up to 136 bytes for the peer's application. The queue pair must
// be in RTR or a later state, with receives posted, because the peer may send at once.
// Accept fails with EINVAL in an earlier state, and for Q_Key 0, which the answer
// cannot carry; the request then stays open. It fails with ECONNABORTED if the request
// was not answered in time, or was dropped to make room for others.
//
// The device sends the answer once. If the answer is lost, the peer repeats
// its request, which arrives as another UDRequest.
func (r *UDRequest) Accept(q *QP, private []byte) error {
	return r.answer("accept", func() error { return r.cm.Accept(q.core(), private) })
}

// Reject refuses the request (rdma_reject), with up to 136 bytes for the peer's
// application. With more bytes it fails, and the request stays open.
func (r *UDRequest) Reject(private []byte) error {
	return r.answer("reject", func() error { return r.cm.Reject(cm.SIDRReject, private) })
}

// answer sends an answer, if none was sent before.
func (r *UDRequest) answer(op string, f func() error) error {
	if !r.answered.CompareAndSwap(false, true) {
		return fail(op, syscall.EINVAL, "the request of %v is answered already", r.RemoteAddr())
	}
	err := f()
	if err != nil && !errors.Is(err, ErrClosed) {
		r.answered.Store(false)
	}
	return err
}
