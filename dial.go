package roce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/hostnet"
	"github.com/goroce/roce/qp"
)

// DialConfig configures [Device.Dial]. With the zero value Dial makes a
// protection domain, completion queues and a queue pair.
type DialConfig struct {
	// Local is the source address. Invalid: the one of the route to the peer.
	Local netip.Addr

	// QP, if set, is the queue pair to connect, in state RESET or INIT. It is in ERR
	// after the end of the connection, and after a failed Dial. Otherwise Dial makes
	// a queue pair, which closes with the connection: in PD (nil: a new one), by
	// QPConfig (without queues: new ones for 1024 completions, or for the number of
	// work requests). QP together with PD or QPConfig is EINVAL.
	QP       *QP
	PD       *PD
	QPConfig QPConfig

	// Access has the rights of the peer on memory that is registered for it: RemoteWrite,
	// RemoteRead, RemoteAtomic, FlushGlobal and FlushPersistent, for instance
	// new(roce.RemoteRead). Nil: as in librdmacm, RemoteWrite, and all of these if the
	// handshake grants the peer READs (ConnParam.ResponderResources). A QP in INIT already
	// has its rights; Access is then EINVAL.
	Access *Access

	// Dial calls Setup with the queue pair in INIT, before it sends a request to the
	// peer: the place to post receives. The caller owns the objects that Setup makes,
	// and closes them, also if Dial fails; it closes regions first.
	Setup func(*QP) error

	// Param has the other parameters of rdma_connect.
	Param ConnParam

	// TrafficClass is the IP TOS of the connection.
	TrafficClass uint8

	// OnAlternate decides on an alternate path that the peer proposes; it must not wait.
	// [AnyAlternate] accepts any path that the device can use. Nil: none is accepted,
	// because with the path the peer chooses the address to which the queue pair sends.
	OnAlternate func(PathRecord) APStatus
}

// DefaultQPAccess has all rights of a peer: to write, read, use atomics and flush,
// on memory that is registered for it. It is for queue pairs that a program
// initializes itself; those of Dial and Accept get DialConfig.Access.
const DefaultQPAccess = RemoteWrite | RemoteRead | RemoteAtomic | FlushGlobal | FlushPersistent

// defaultCQ is the least capacity of a completion queue that Dial or Accept
// makes.
const defaultCQ = 1024

// Dial connects to a listener of the RDMA connection manager (rdma_getaddrinfo to
// rdma_connect). addr is "host:port", like "10.0.0.1:7174", "[fd00::1]:7174" or "server:7174";
// host may be a name, and port the name of a TCP service. If a name has several addresses,
// Dial tries those for which the device has a source address, one by one, and divides the time
// until the deadline of ctx among them. If all fail, it returns the errors of all, in order.
//
// If the peer refuses, the error is a *[RejectError] (ECONNREFUSED). A name without an address
// is EADDRNOTAVAIL. If the peer does not answer, the error is ETIMEDOUT after more than a
// minute, or more than two if the peer asks for time, so give ctx a deadline. When ctx ends
// first, Dial tells the peer to drop the request.
func (d *Device) Dial(ctx context.Context, addr string, c DialConfig) (*Conn, error) {
	addrs, err := d.lookup(ctx, "tcp", addr, c.Local)
	if err != nil {
		return nil, errs.New("dial", err, "%s", addr)
	}
	return d.dialEach(ctx, addrs, c)
}

// dialEach connects to the first address at which a peer accepts.
func (d *Device) dialEach(ctx context.Context, addrs []netip.AddrPort, c DialConfig) (*Conn, error) {
	a := &dialing{DialConfig: c, dev: d}
	conn, err := tryEach(ctx, "dial", addrs, a.dial)
	if err != nil {
		a.discard()
	}
	return conn, err
}

// lookup returns the addresses of "host:port". It leaves out addresses for which the device
// has no source address, unless none would remain.
func (d *Device) lookup(ctx context.Context, network, addr string, local netip.Addr) ([]netip.AddrPort, error) {
	all, err := hostnet.LookupAddr(ctx, network, addr)
	if len(all) == 1 && all[0].Addr().IsUnspecified() {
		return nil, fmt.Errorf("%v stands for any address: give one of the listener's device, as Listener.Addr does: %w", all[0].Addr(), syscall.EINVAL)
	}
	if len(all) < 2 {
		return all, err
	}
	reachable := slices.DeleteFunc(slices.Clone(all), func(a netip.AddrPort) bool {
		_, from, err := d.nic.Routes().Source(local, bth.GIDFrom(a.Addr().WithZone("")))
		return err != nil || from.Is4() != a.Addr().Is4()
	})
	if len(reachable) > 0 {
		return reachable, nil
	}
	return all[:1], nil
}

// tryEach calls try for one address after the other until it succeeds, the context ends, or an
// argument is wrong for any address. It does not call try if the context has ended.
func tryEach[T any](ctx context.Context, op string, addrs []netip.AddrPort, try func(context.Context, netip.AddrPort) (T, error)) (t T, all error) {
	if err := ctx.Err(); err != nil {
		return t, errs.New(op, err, "%v", addrs[0])
	}
	for i, to := range addrs {
		part, cancel := ctx, context.CancelFunc(func() {})
		if end, ok := ctx.Deadline(); ok && i < len(addrs)-1 {
			part, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(len(addrs)-i))
		}
		t, err := try(part, to)
		cancel()
		if err == nil {
			return t, nil
		}
		if err = errs.New(op, err, "%v", to); all == nil {
			all = err
		} else {
			all = fmt.Errorf("%w; %w", all, err)
		}
		if ctx.Err() != nil || errors.Is(err, syscall.EINVAL) || errors.Is(err, ErrClosed) {
			break
		}
	}
	return t, all
}

// dialing is a call of Dial: the attempts at the addresses of a name share the queue pair.
type dialing struct {
	DialConfig
	dev *Device
	use *prepared // nil: not made yet
}

// discard abandons the queue pair. It closes one that Dial made, and moves
// one of the program to ERR.
func (a *dialing) discard() {
	if a.use == nil {
		return
	}
	if a.QP != nil {
		a.QP.Modify(&Attr{State: qp.Err}, qp.AttrState)
	}
	closeAll(a.use.owned)
}

// dial connects to one address. If it fails with the queue pair in INIT, another address may be
// tried.
func (a *dialing) dial(ctx context.Context, to netip.AddrPort) (*Conn, error) {
	d := a.dev
	if d.nic.Closing() {
		return nil, ErrClosed
	}
	p := a.Param
	if err := p.completeForDevice(nil); err != nil {
		return nil, err
	}
	route, err := d.cm.Route(ctx, a.Local, to.Addr(), a.TrafficClass)
	if err != nil {
		return nil, err
	}
	alternate, err := d.alternateRoute(ctx, p.Alternate)
	if err != nil {
		return nil, err
	}
	u := a.use
	if u == nil {
		if u, err = d.prepareQP(a.QP, a.PD, a.QPConfig, a.Access, a.Setup); err != nil {
			return nil, err
		}
		a.use = u
	} else if err = u.qp.initialized(); err != nil {
		return nil, err
	}
	e := newEndpoint(d)
	e.lateAccess = u.late
	e.onAlternate = a.OnAlternate
	e.cm = d.cm.NewConn(e.handler())
	e.cm.ProposeAlternate(alternate)
	err = e.cm.Connect(route, cm.ConnectParam{
		ServiceID: cm.Service(cm.PortSpaceTCP, to.Port()), Dst: to,
		QPN: u.qp.Num(), SRQ: u.qp.srq != nil, Transport: cm.RC, ResponderResources: uint8(p.ResponderResources),
		InitiatorDepth: uint8(p.InitiatorDepth), FlowControl: p.FlowControl, RetryCount: uint8(p.RetryCount),
		RNRRetryCount: uint8(p.RNRRetryCount), Private: p.PrivateData})
	if err != nil {
		return nil, err
	}
	private, err := e.connect(ctx, u.qp, p)
	if err != nil {
		e.destroy()
		return nil, err
	}
	return &Conn{end: e, qp: u.qp, owned: u.owned, private: private, param: e.agreed, local: e.cm.Info().LocalAddr(), remote: to}, nil
}

// connect waits for the peer's answer and finishes the handshake.
func (e *endpoint) connect(ctx context.Context, q *QP, p ConnParam) (private []byte, err error) {
	ev, err := e.next(ctx)
	if err != nil {
		return nil, err
	}
	if err := asRefusal(ev); err != nil {
		return nil, err
	}
	if ev.Kind != cm.ConnectResponse {
		return nil, fail("connect", syscall.EPROTO, "unexpected %v", ev)
	}
	e.cm.SetQP(q.core()) // only now: after a refusal the queue pair must still be in INIT, for the attempt at the next address
	attr, err := e.cm.QPAttr()
	if err != nil {
		return nil, e.why(ctx, err)
	}
	if err := e.connectQP(ctx, q, attr, p); err != nil {
		return nil, err
	}
	return ev.Private, e.why(ctx, e.cm.ReadyToUse(nil))
}

// prepared has the objects for a connection.
type prepared struct {
	qp    *QP
	owned []io.Closer // objects that were made for the connection, in the order of closing
	late  Access      // additional rights of the peer if it is granted READs
}

// prepareQP makes the missing objects for a connection, moves the queue pair to INIT and calls
// setup.
func (d *Device) prepareQP(q *QP, pd *PD, c QPConfig, access *Access, setup func(*QP) error) (_ *prepared, err error) {
	switch {
	case q != nil && pd != nil:
		return nil, fail("connect", syscall.EINVAL, "QP %v and PD exclude one another: the queue pair has a domain", q.Num())
	case q != nil && c != (QPConfig{}):
		return nil, fail("connect", syscall.EINVAL, "QP %v and QPConfig exclude one another: the queue pair exists already", q.Num())
	}
	p := &prepared{qp: q}
	defer func() {
		if err != nil {
			closeAll(p.owned)
		}
	}()
	if q == nil {
		if err = p.makeQP(d, pd, c); err != nil {
			return nil, err
		}
		q = p.qp
	}
	if q.dev != d {
		return nil, errs.On("connect", q.Num().Object(), syscall.EINVAL, "it is of another device")
	}
	if t := q.nic.Type(); t != qp.RC {
		return nil, errs.On("connect", q.Num().Object(), syscall.EINVAL, "it is a %v queue pair, a connection needs an RC queue pair", t)
	}
	switch state := q.State(); {
	case state == qp.Reset:
		if access == nil {
			access, p.late = new(RemoteWrite), DefaultQPAccess
		}
		if err = q.Init(*access, 0); err != nil {
			return nil, err
		}
	case access != nil:
		return nil, errs.On("connect", q.Num().Object(), syscall.EINVAL, "Access is for a queue pair in RESET, this one is in state %v and has its own", state)
	}
	if err = q.initialized(); err == nil && setup != nil {
		err = setup(q)
	}
	return p, err
}

// initialized refuses a queue pair that is not in INIT.
func (q *QP) initialized() error {
	if state := q.State(); state != qp.Init {
		return errs.On("connect", q.Num().Object(), syscall.EINVAL, "it is in state %v, must be in RESET or INIT", state)
	}
	return nil
}

// makeQP makes the queue pair, and its domain and completion queues unless they are given. It
// uses the shard of the given queues. If none are given, it uses the shards in turn.
func (p *prepared) makeQP(d *Device, pd *PD, c QPConfig) (err error) {
	own := func(o io.Closer) { p.owned = slices.Insert(p.owned, 0, o) }
	if pd == nil {
		pd = d.AllocPD()
		own(autoPD{pd})
	}
	c.RecvCQ = cmp.Or(c.RecvCQ, c.SendCQ) // the default of QPConfig
	shard := int(d.vector.Add(1)-1) % d.nic.Shards()
	for _, given := range []*CQ{c.SendCQ, c.RecvCQ} {
		if given != nil {
			shard = given.shard.Index()
		}
	}
	if c.SRQ != nil {
		shard = c.SRQ.shard.Index()
	}
	receives := c.Caps.MaxRecvWR
	if c.SRQ != nil {
		receives = c.SRQ.Query().MaxWR
	}
	for _, q := range []struct {
		cq  **CQ
		wrs int
	}{{&c.SendCQ, c.Caps.MaxSendWR}, {&c.RecvCQ, receives}} {
		if *q.cq == nil {
			if *q.cq, err = d.CreateCQWith(CQConfig{Entries: min(max(q.wrs, defaultCQ), MaxCQE), Shard: shard}); err != nil {
				return err
			}
			own(*q.cq)
		}
	}
	if p.qp, err = pd.CreateQP(c); err == nil {
		own(p.qp)
	}
	return err
}
