package roce

import (
	"cmp"
	"context"
	"sync"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/qp"
)

// CMConn is one end of a connection: a [cm.Conn] that any goroutine may use, and
// its queue pair. Operations that do not fit the state are EINVAL.
type CMConn struct {
	dev *Device
	way *way // where its datagrams go; guarded by the first shard
	alt alternates

	mu      sync.Mutex
	conn    *cm.Conn // nil before Connect; changes under the lock of the first shard, too
	handler CMHandler
	qp      *QP
	over    bool // the queue pair is to be in ERR
}

// NewConn makes one end of a connection, to be connected.
func (m CM) NewConn(h CMHandler) *CMConn { return &CMConn{dev: m.dev, handler: h} }

// Connect sends a REQ along a route. Addresses and MTU of p come from the
// route; without a source port one is picked. The queue pair should be set
// before. No event comes when it fails.
func (c *CMConn) Connect(r *Route, p cm.ConnectParam) error {
	d := c.dev
	p.Local, p.Remote, p.MTU, p.TrafficClass = r.local, r.DGID, r.MTU, r.TrafficClass
	p.Src = d.sourcePort(r, p.Src)
	var err error
	closed := d.gsi.do(func(now mono.Time) {
		if err = d.present(); err != nil {
			return
		}
		d.gsi.remember(r.key(), r.path)
		c.proposal(&p)
		var conn *cm.Conn
		if conn, err = d.gsi.manager.Connect(now, p); err == nil {
			d.gsi.adopt(c, conn)
		} else {
			d.gsi.release(c.alt.way)
			c.alt.way = nil
		}
	})
	return cmp.Or(closed, err)
}

// adopt gives an end its connection. Called with the shard locked, as forget is.
func (g *gsi) adopt(c *CMConn, conn *cm.Conn) {
	c.mu.Lock()
	c.conn = conn
	c.mu.Unlock()
	c.way = g.hold(pathKey{conn.LocalGID(), conn.PeerAddress()})
	conn.User = c
	g.conns[c] = struct{}{}
}

// forget drops an end whose connection is over for the manager.
func (g *gsi) forget(c *CMConn) {
	if _, ok := g.conns[c]; !ok {
		return
	}
	delete(g.conns, c)
	g.release(c.way)
	g.release(c.alt.way)
	c.alt.way = nil
}

// Handle sets the handler of a connection that a listener got.
func (c *CMConn) Handle(h CMHandler) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handler = h
}

func (c *CMConn) getHandler() *CMHandler {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.handler
	return &h
}

// SetQP names the queue pair of the connection, nil for none: it is moved to ERR
// when the connection is over. Its data confirm an accepted connection as well
// as the peer's RTU does.
func (c *CMConn) SetQP(q *QP) {
	c.mu.Lock()
	c.qp = q.core()
	over := c.over
	c.mu.Unlock()
	if over { // already
		c.Flush()
	}
}

// handle takes an event of the connection manager. No lock is held.
func (c *CMConn) handle(ev cm.Event) {
	c.getHandler().event(ev) // first, so that whoever sees what is flushed can tell why
	switch ev.Kind {
	case cm.AlternateRequest, cm.AlternateResponse:
		c.alternate(ev)
	case cm.Rejected, cm.Unreachable, cm.DisconnectRequest, cm.Disconnected:
		c.giveUp(errOverMeanwhile)
		c.mu.Lock()
		c.over = true
		c.mu.Unlock()
		c.Flush()
	}
	c.dev.gsi.do(func(mono.Time) {
		if c.conn.State() == cm.StateIdle {
			c.dev.gsi.forget(c)
		}
	})
}

// Flush moves the queue pair to ERR, so that nothing posted is left hanging.
func (c *CMConn) Flush() {
	c.mu.Lock()
	q, conn := c.qp, c.conn
	c.mu.Unlock()
	if q == nil {
		return
	}
	s := q.shard
	s.mu.Lock()
	if q.unconfirmed == conn {
		q.unconfirmed = nil
	}
	if q.follower == c {
		q.follower = nil
	}
	if !q.closed {
		q.flush()
	}
	s.finish(c.dev.now())
}

// try runs an operation of the connection.
func (c *CMConn) try(f func(now mono.Time) error) error {
	var err error
	closed := c.dev.gsi.do(func(now mono.Time) {
		if err = errNotConnected; c.conn != nil {
			err = f(now)
		}
	})
	return cmp.Or(closed, err)
}

// errNotConnected is an operation before Connect.
var errNotConnected = &Error{"connection", "not connecting yet", syscall.EINVAL}

// State returns the state; StateIdle when the connection is over and forgotten.
func (c *CMConn) State() (s cm.State) {
	c.try(func(mono.Time) error { s = c.conn.State(); return nil })
	return s
}

// Info returns the connection, whose addresses never change.
func (c *CMConn) Info() *cm.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn
}

// Offer returns what the peer proposed: [cm.Conn.Offer].
func (c *CMConn) Offer() (o cm.Offer) {
	c.try(func(mono.Time) error { o = c.conn.Offer(); return nil })
	return o
}

// QPAttr returns what the queue pair must be set to: [cm.Conn.QPAttr].
func (c *CMConn) QPAttr() (a cm.QPAttr, err error) {
	err = c.try(func(mono.Time) (err error) { a, err = c.conn.QPAttr(); return err })
	return a, err
}

// AcceptAttr is QPAttr for a request that is accepted with p:
// [cm.Conn.AcceptAttr].
func (c *CMConn) AcceptAttr(p cm.AcceptParam) (a cm.QPAttr, err error) {
	err = c.try(func(mono.Time) (err error) { a, err = c.conn.AcceptAttr(p); return err })
	return a, err
}

// Accept sends the REP (rdma_accept): [cm.Conn.Accept].
func (c *CMConn) Accept(p cm.AcceptParam) error {
	c.mu.Lock()
	q, conn := c.qp, c.conn
	c.mu.Unlock()
	if q != nil {
		q.shard.mu.Lock()
		q.unconfirmed = conn // the peer's first data confirms as well as its RTU
		q.shard.mu.Unlock()
	}
	return c.try(func(now mono.Time) error { return c.conn.Accept(now, p) })
}

// ReadyToUse sends the RTU (rdma_establish): [cm.Conn.ReadyToUse].
func (c *CMConn) ReadyToUse(private []byte) error {
	return c.try(func(now mono.Time) error { return c.conn.ReadyToUse(now, private) })
}

// CommEstablished says that data has arrived (rdma_notify):
// [cm.Conn.CommEstablished].
func (c *CMConn) CommEstablished() error {
	return c.try(func(now mono.Time) error { return c.conn.CommEstablished(now) })
}

// Reject refuses the connection while it is being set up (rdma_reject):
// [cm.Conn.Reject]. No event follows.
func (c *CMConn) Reject(reason cm.RejectReason, private []byte) error {
	return c.try(func(now mono.Time) error {
		err := c.conn.Reject(now, reason, private)
		if err == nil && c.conn.State() == cm.StateIdle {
			c.dev.gsi.forget(c)
		}
		return err
	})
}

// Disconnect sends the DREQ, or the DREP if the peer was first
// (rdma_disconnect): [cm.Conn.Disconnect].
func (c *CMConn) Disconnect(private []byte) error {
	return c.try(func(now mono.Time) error { return c.conn.Disconnect(now, private) })
}

// Destroy gives the connection up, whatever state it is in (rdma_destroy_id):
// the queue pair is moved to ERR, the peer is told, no event follows.
func (c *CMConn) Destroy() {
	c.Flush()
	c.giveUp(errOverMeanwhile)
	c.try(func(now mono.Time) error {
		c.conn.Destroy(now)
		c.dev.gsi.forget(c)
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handler, c.qp = CMHandler{}, nil // timewait need not keep the owner
}

// ConnectQP moves a queue pair in INIT to RTS with the attributes of the
// handshake. If that grants the peer READs, it may do what access says, unless that is
// 0. It may wait for the neighbour's answer.
func (c *CMConn) ConnectQP(ctx context.Context, q *QP, a cm.QPAttr, access Access, minRNRTimer uint8, quirk bool) error {
	if a.Alternate != nil {
		c.follow(q)
	}
	for _, state := range []qp.State{qp.RTR, qp.RTS} {
		attr, mask, err := c.Attr(ctx, q.engine.Type(), state, a, minRNRTimer)
		if err != nil {
			return err
		}
		if state == qp.RTR && a.RemoteRead && access != 0 {
			attr.Access = access
			mask |= qp.AttrAccess
		}
		if mask&qp.AttrFlushICRCQuirk != 0 {
			attr.FlushICRCQuirk = quirk
		}
		if err := q.Modify(&attr, mask); err != nil {
			return err
		}
	}
	return nil
}

// Attr returns what a queue pair of a type is to be modified with on its way to
// a state, one of INIT, RTR and RTS (rdma_init_qp_attr); for RTS that includes an
// alternate path. For RTR and RTS it may wait for the neighbour's answer.
func (c *CMConn) Attr(ctx context.Context, t qp.Type, state qp.State, a cm.QPAttr, minRNRTimer uint8) (Attr, AttrMask, error) {
	var attr Attr
	var mask AttrMask
	switch state {
	case qp.Init:
		attr, mask = Attr{Port: 1, Access: RemoteWrite}, qp.AttrState|qp.AttrPKeyIndex|qp.AttrPort|qp.AttrAccess
		if a.RemoteRead {
			attr.Access = DefaultQPAccess
		}
	case qp.RTR:
		index, ok := c.dev.gidIndex(a.Local)
		if !ok {
			return attr, 0, fail("connect", syscall.EADDRNOTAVAIL, "%v is not an address of the device", a.Local.Addr())
		}
		ah := AHAttr{DGID: a.Remote, SGIDIndex: index, FlowLabel: a.FlowLabel, TrafficClass: a.TrafficClass}
		path, err := c.dev.resolveAgain(ctx, ah, frame.SourcePort(a.FlowLabel))
		if err != nil {
			return attr, 0, err
		}
		attr = Attr{AV: path, PathMTU: a.PathMTU, DestQPN: a.DestQPN, RQPSN: a.RQPSN, MaxDestRdAtomic: min(a.MaxDestRdAtomic, qp.MaxRdAtomic),
			MinRNRTimer: bth.RNRTimer(minRNRTimer)}
		mask = rtrMask
	case qp.RTS:
		attr = Attr{SQPSN: a.SQPSN, Timeout: a.Timeout, RetryCnt: min(a.RetryCount, 7), RNRRetry: min(a.RNRRetry, 7),
			MaxRdAtomic: min(a.MaxRdAtomic, qp.MaxRdAtomic)}
		mask = rtsMask
		if a.Alternate != nil {
			path, err := c.resolveAlternate(ctx, a.Alternate)
			if err != nil {
				return attr, 0, err
			}
			attr.AltAV, attr.AltPort, attr.AltTimeout, attr.PathMigState = path, 1, a.Alternate.AckTimeout, qp.Rearm
			mask |= qp.AttrAltPath | qp.AttrPathMigState
		}
	default:
		return attr, 0, fail("connect", syscall.EINVAL, "no attributes for state %v, only INIT, RTR and RTS", state)
	}
	attr.State = state
	return attr, mask &^ lacks[t], nil
}
