package roce

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/mono"
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

	// Setup is called with the queue pair in INIT, before the peer hears of
	// it: the place to post receives.
	Setup func(*QP) error

	// Param is the rest of rdma_connect's parameters. Nil: DefaultConnParam.
	Param *ConnParam

	// TrafficClass is the IP TOS of the connection.
	TrafficClass uint8
}

// DefaultQPAccess is what the peer of a connection may do: write, read, use
// atomics and flush, on memory that was registered for it.
const DefaultQPAccess = RemoteWrite | RemoteRead | RemoteAtomic | FlushGlobal | FlushPersistent

// defaultCQ is how many completions a queue made by a connection holds.
const defaultCQ = 1023

// Dial connects to a listener of the RDMA connection manager (rdma_resolve_addr
// to rdma_connect). addr is "host:port" with an IP address, like
// "10.0.0.1:7174" or "[fd00::1]:7174".
//
// A refusal is a *[RejectError] (ECONNREFUSED); a peer that does not answer is
// ETIMEDOUT after more than a minute, so give ctx a deadline. When ctx ends
// first the peer is told to forget the request.
func (d *Device) Dial(ctx context.Context, addr string, c *DialConfig) (*Conn, error) {
	if c == nil {
		c = &DialConfig{}
	}
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, fail("dial", syscall.EINVAL, "%v", err)
	}
	conn, err := d.dial(ctx, to, c)
	if err != nil {
		return nil, fmt.Errorf("dial %v: %w", to, err)
	}
	return conn, nil
}

func (d *Device) dial(ctx context.Context, to netip.AddrPort, c *DialConfig) (*Conn, error) {
	if d.closing.Load() {
		return nil, ErrClosed
	}
	remote := bth.GIDFrom(to.Addr())
	index, local, err := d.source(c.Local, remote)
	if err != nil {
		return nil, err
	}
	path, err := d.resolve(ctx, AHAttr{DGID: remote, SGIDIndex: index, TrafficClass: c.TrafficClass}, frame.HashPort(bth.QPNGSI))
	if err != nil {
		return nil, err
	}
	q, owned, err := d.prepareQP(c.QP, c.PD, c.QPConfig, c.Setup)
	if err != nil {
		return nil, err
	}
	p := c.Param.orDefault()
	mtu, ok := bth.PathMTU(d.info.MTU)
	if !ok {
		closeAll(owned)
		return nil, fail("dial", syscall.EINVAL, "an interface MTU of %d is too small", d.info.MTU)
	}
	var e *endpoint
	closed := d.gsi.do(func(now mono.Time) {
		if err = d.present(); err != nil {
			return
		}
		d.gsi.remember(pathKey{local, remote}, path)
		src := netip.AddrPortFrom(local.Addr(), d.ephemeralPort())
		var conn *cm.Conn
		conn, err = d.gsi.manager.Connect(now, cm.ConnectParam{
			ServiceID: cm.Service(cm.PortSpaceTCP, to.Port()), Local: local, Remote: remote, Src: src, Dst: to,
			QPN: q.num, SRQ: q.srq != nil, Transport: cm.RC, ResponderResources: min(p.ResponderResources, qp.MaxRdAtomic),
			InitiatorDepth: min(p.InitiatorDepth, qp.MaxRdAtomic), FlowControl: p.FlowControl, RetryCount: p.RetryCount,
			RNRRetryCount: p.RNRRetryCount, MTU: mtu, TrafficClass: c.TrafficClass, Private: p.PrivateData})
		if err == nil {
			e = d.gsi.newEndpoint(conn)
			conn.User = e
		}
	})
	if err = cmp.Or(closed, err); err != nil {
		closeAll(owned)
		return nil, err
	}
	e.setQP(q)
	private, err := e.connect(ctx, q, p)
	if err != nil {
		e.destroy()
		closeAll(owned)
		return nil, err
	}
	return &Conn{end: e, qp: q, owned: owned, private: private, local: e.conn.LocalAddr(), remote: to}, nil
}

// connect waits for the peer's answer and finishes the handshake.
func (e *endpoint) connect(ctx context.Context, q *QP, p ConnParam) (private []byte, err error) {
	ev, err := e.next(ctx)
	if err != nil {
		return nil, err
	}
	switch ev.Kind {
	case cm.Rejected:
		return nil, &RejectError{ev.Reason, ev.Private}
	case cm.Unreachable:
		return nil, ev.Err
	case cm.ConnectResponse:
	default:
		return nil, fail("connect", syscall.EPROTO, "unexpected %v", ev)
	}
	var attr cm.QPAttr
	closed := e.dev.gsi.do(func(mono.Time) { attr, err = e.conn.QPAttr() })
	if err = cmp.Or(closed, err); err != nil {
		return nil, err
	}
	if err := e.connectQP(ctx, q, attr, p); err != nil {
		return nil, err
	}
	closed = e.dev.gsi.do(func(now mono.Time) { err = e.conn.ReadyToUse(now, nil) })
	return ev.Private, cmp.Or(closed, err)
}

func (e *endpoint) setQP(q *QP) {
	e.mu.Lock()
	e.qp = q
	e.mu.Unlock()
}

// ephemeralPort picks a source port of the range Linux uses. Two connections
// may share one: the communication IDs tell them apart.
func (d *Device) ephemeralPort() uint16 { return uint16(32768 + d.rnd()%(60999-32768+1)) }

// prepareQP makes what a connection needs and was not given, brings the queue
// pair to INIT and lets the caller set it up. owned is what was made, in the
// order to close it.
func (d *Device) prepareQP(q *QP, pd *PD, c QPConfig, setup func(*QP) error) (_ *QP, owned []interface{ Close() error }, err error) {
	defer func() {
		if err != nil {
			closeAll(owned)
		}
	}()
	own := func(o interface{ Close() error }) { owned = append([]interface{ Close() error }{o}, owned...) }
	if q == nil {
		if pd == nil {
			pd = d.AllocPD()
			own(pd)
		}
		if c.SendCQ != nil && c.RecvCQ == nil {
			c.RecvCQ = c.SendCQ // as QPConfig says
		}
		shard := int(d.vector.Add(1)-1) % len(d.shards)
		for _, given := range []*CQ{c.SendCQ, c.RecvCQ} {
			if given != nil {
				shard = given.shard.index
			}
		}
		if c.SRQ != nil {
			shard = c.SRQ.shard.index
		}
		for _, p := range []**CQ{&c.SendCQ, &c.RecvCQ} {
			if *p == nil {
				if *p, err = d.CreateCQOn(shard, defaultCQ); err != nil {
					return nil, owned, err
				}
				own(*p)
			}
		}
		if q, err = pd.CreateQP(c); err != nil {
			return nil, owned, err
		}
		own(q)
	}
	if q.dev != d {
		return nil, owned, fail("connect", syscall.EINVAL, "queue pair %v is of another device", q.num)
	}
	if t := q.engine.Type(); t != qp.RC {
		return nil, owned, fail("connect", syscall.EINVAL, "queue pair %v is a %v one, connections are RC", q.num, t)
	}
	switch state := q.State(); state {
	case qp.Init:
	case qp.Reset:
		if err = q.Init(DefaultQPAccess, 0); err != nil {
			return nil, owned, err
		}
	default:
		return nil, owned, fail("connect", syscall.EINVAL, "queue pair %v is in state %v, must be in RESET or INIT", q.num, state)
	}
	if setup != nil {
		err = setup(q)
	}
	return q, owned, err
}
