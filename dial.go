package roce

import (
	"context"
	"net/netip"
	"syscall"

	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/qp"
)

// DialConfig says how [Device.Dial] connects. The zero value makes its own
// protection domain, completion queues and queue pair.
type DialConfig struct {
	// Local is the address to connect from. Invalid: one that fits.
	Local netip.Addr

	// QP is connected, if given: in state RESET or INIT. It is in ERR when the
	// connection is over, and when there was none. Otherwise one is made and
	// closed with the connection: in PD (nil: a new one) with the rest of
	// QPConfig (without queues: new ones of 1023 completions).
	QP       *QP
	PD       *PD
	QPConfig QPConfig

	// Access is what the peer may do with memory that is registered for it, of
	// RemoteWrite, RemoteRead, RemoteAtomic, FlushGlobal and FlushPersistent;
	// LocalWrite grants nothing. 0: as librdmacm has it, RemoteWrite, and all of it if the
	// handshake grants the peer READs (ConnParam.ResponderResources). A QP in INIT has
	// its own.
	Access Access

	// Setup is called with the queue pair in INIT, before the peer hears of
	// it: the place to post receives. What it makes is the caller's, who closes it if
	// no connection comes of it, too: regions first.
	Setup func(*QP) error

	// Param is the rest of rdma_connect's parameters.
	Param ConnParam

	// TrafficClass is the IP TOS of the connection.
	TrafficClass uint8

	// OnAlternate is asked when the peer proposes an alternate path; it must not
	// wait. [AnyAlternate] takes any that the device can use. Nil: none is taken, since
	// the peer chooses where the queue pair will send.
	OnAlternate func(cm.Path) cm.APStatus
}

// DefaultQPAccess is all that a peer may do: write, read, use atomics and flush, on
// memory that was registered for it. It is for queue pairs that a program
// initializes itself; those of Dial and Accept get what DialConfig.Access says.
const DefaultQPAccess = RemoteWrite | RemoteRead | RemoteAtomic | FlushGlobal | FlushPersistent

// defaultCQ is how many completions a queue made by a connection holds.
const defaultCQ = 1023

// Dial connects to a listener of the RDMA connection manager (rdma_resolve_addr
// to rdma_connect). addr is "host:port" with an IP address, like
// "10.0.0.1:7174" or "[fd00::1]:7174".
//
// A refusal is a *[RejectError] (ECONNREFUSED); a peer that does not answer is
// ETIMEDOUT after more than a minute, or more than two if it asks for time, so give
// ctx a deadline. When ctx ends
// first the peer is told to forget the request.
func (d *Device) Dial(ctx context.Context, addr string, c DialConfig) (*Conn, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fail("dial", syscall.EINVAL, "%v", err)
	}
	conn, err := d.dial(ctx, to, c)
	if err != nil {
		return nil, errs.New("dial", err, "%v", to)
	}
	return conn, nil
}

func (d *Device) dial(ctx context.Context, to netip.AddrPort, c DialConfig) (*Conn, error) {
	if d.nic.Closing() {
		return nil, ErrClosed
	}
	p, err := c.Param.Complete()
	if err == nil {
		err = p.ofDevice()
	}
	if err != nil {
		return nil, err
	}
	route, err := d.cm.Route(ctx, c.Local, to.Addr(), c.TrafficClass)
	if err != nil {
		return nil, err
	}
	alternate, err := d.alternateRoute(ctx, p.Alternate)
	if err != nil {
		return nil, err
	}
	q, owned, late, err := d.prepareQP(c.QP, c.PD, c.QPConfig, c.Access, c.Setup)
	if err != nil {
		return nil, err
	}
	e := newEndpoint(d)
	e.lateAccess = late
	e.onAlternate = c.OnAlternate
	e.cm = d.cm.NewConn(e.handler())
	e.cm.SetQP(q.core())
	e.cm.ProposeAlternate(alternate)
	err = e.cm.Connect(route, cm.ConnectParam{
		ServiceID: cm.Service(cm.PortSpaceTCP, to.Port()), Dst: to,
		QPN: q.Num(), SRQ: q.srq != nil, Transport: cm.RC, ResponderResources: qp.OfferedRdAtomic(p.ResponderResources),
		InitiatorDepth: qp.OfferedRdAtomic(p.InitiatorDepth), FlowControl: p.FlowControl, RetryCount: p.RetryCount,
		RNRRetryCount: p.RNRRetryCount, Private: p.PrivateData})
	if err != nil {
		closeAll(owned)
		return nil, err
	}
	private, err := e.connect(ctx, q, p)
	if err != nil {
		e.destroy()
		closeAll(owned)
		return nil, err
	}
	return &Conn{end: e, qp: q, owned: owned, private: private, param: e.agreed, local: e.cm.Info().LocalAddr(), remote: to}, nil
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
	attr, err := e.cm.QPAttr()
	if err != nil {
		return nil, e.why(ctx, err)
	}
	if err := e.connectQP(ctx, q, attr, p); err != nil {
		return nil, err
	}
	return ev.Private, e.why(ctx, e.cm.ReadyToUse(nil))
}

// prepareQP makes what a connection needs and was not given, brings the queue
// pair to INIT and lets the caller set it up. owned is what was made, in the
// order to close it; late is what the peer may do in addition if it is granted READs.
func (d *Device) prepareQP(q *QP, pd *PD, c QPConfig, access Access, setup func(*QP) error) (_ *QP, owned []interface{ Close() error }, late Access, err error) {
	defer func() {
		if err != nil {
			closeAll(owned)
		}
	}()
	own := func(o interface{ Close() error }) { owned = append([]interface{ Close() error }{o}, owned...) }
	if q == nil {
		if pd == nil {
			pd = d.AllocPD()
			own(autoPD{pd})
		}
		if c.SendCQ != nil && c.RecvCQ == nil {
			c.RecvCQ = c.SendCQ // as QPConfig says
		}
		shard := int(d.vector.Add(1)-1) % d.nic.Shards()
		for _, given := range []*CQ{c.SendCQ, c.RecvCQ} {
			if given != nil {
				shard = given.shard.Index()
			}
		}
		if c.SRQ != nil {
			shard = c.SRQ.shard.Index()
		}
		for _, p := range []**CQ{&c.SendCQ, &c.RecvCQ} {
			if *p == nil {
				if *p, err = d.CreateCQOn(shard, defaultCQ); err != nil {
					return nil, owned, 0, err
				}
				own(*p)
			}
		}
		if q, err = pd.CreateQP(c); err != nil {
			return nil, owned, 0, err
		}
		own(q)
	}
	if q.dev != d {
		return nil, owned, 0, errs.On("connect", q.Num().Object(), syscall.EINVAL, "it is of another device")
	}
	if t := q.nic.Type(); t != qp.RC {
		return nil, owned, 0, errs.On("connect", q.Num().Object(), syscall.EINVAL, "it is a %v one, connections are RC", t)
	}
	switch state := q.State(); state {
	case qp.Init:
	case qp.Reset:
		if access == 0 {
			access, late = RemoteWrite, DefaultQPAccess
		}
		if err = q.Init(access, 0); err != nil {
			return nil, owned, 0, err
		}
	default:
		return nil, owned, 0, errs.On("connect", q.Num().Object(), syscall.EINVAL, "it is in state %v, must be in RESET or INIT", state)
	}
	if setup != nil {
		err = setup(q)
	}
	return q, owned, late, err
}
