package gsi

import (
	"context"
	"sync"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// DefaultMinRNRTimer is the default pause that a queue pair of a connection requests when
// it has no receive: 0.64 ms. The handshake does not carry it.
const DefaultMinRNRTimer = 12

// Conn is one end of a connection: a [cm.Conn] that any goroutine may use, and its queue pair.
// An operation that the state does not allow fails with EINVAL.
type Conn struct {
	agent *Agent
	path  *cachedPath // of its datagrams; guarded by the first shard
	alt   alternates

	mu      sync.Mutex
	conn    *cm.Conn // nil before Connect; a writer also holds the lock of the first shard
	handler Handler
	qp      *nic.QP
	over    bool // the connection has ended: the queue pair moves to ERR

	// Guarded by the first shard.
	noted    share.Handle
	listener *Listener // the listener of the request, until the handshake ends
}

// NewConn makes one end of a connection, for Connect.
func (g *Agent) NewConn(h Handler) *Conn { return &Conn{agent: g, handler: h} }

// Connect sends a REQ along a route. It sets addresses and MTU of p from the
// route, and chooses a source port if p has none. The caller should call
// SetQP before. If Connect fails, there is no event.
func (c *Conn) Connect(r *Route, p cm.ConnectParam) error {
	g := c.agent
	p.Local, p.Remote, p.MTU, p.TrafficClass = r.local, r.DGID, r.MTU, r.TrafficClass
	p.Src = g.sourcePort(r, p.Src)
	return g.begin(func(now mono.Time) error {
		g.remember(r.key(), r.path)
		c.proposal(&p)
		conn, err := g.manager.Connect(now, p)
		if err != nil {
			g.paths.release(c.alt.path)
			c.alt.path = nil
			return err
		}
		g.adopt(c, conn)
		return nil
	})
}

// adopt sets the connection of an end. The shard is locked, as for forget.
func (g *Agent) adopt(c *Conn, conn *cm.Conn) {
	c.mu.Lock()
	c.conn = conn
	c.mu.Unlock()
	c.path = g.retain(route.Key{Local: conn.LocalGID(), Peer: conn.PeerAddress()})
	conn.User = c
	g.conns[c] = struct{}{}
}

// forget drops an end whose connection sends no more datagrams, or is in
// timewait.
func (g *Agent) forget(c *Conn) {
	if _, ok := g.conns[c]; !ok {
		return
	}
	delete(g.conns, c)
	g.removeFromBoard(c)
	g.handshakeEnded(c)
	g.paths.release(c.path)
	g.paths.release(c.alt.path)
	c.alt.path = nil
}

// Handle sets the handler of a connection from a listener.
func (c *Conn) Handle(h Handler) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handler = h
}

func (c *Conn) getHandler() *Handler {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.handler
	return &h
}

// SetQP sets the queue pair of the connection, nil for none. The agent moves the queue
// pair to ERR when the connection ends, unless the program has reset or reconnected it.
// First data on the queue pair confirm an accepted connection, as the peer's RTU does.
func (c *Conn) SetQP(q *nic.QP) {
	if q != nil {
		q.Claim(c)
	}
	c.mu.Lock()
	c.qp = q
	over := c.over
	c.mu.Unlock()
	if over { // already
		c.Flush()
	}
}

// handle handles an event of the connection manager. No lock is held.
func (c *Conn) handle(ev cm.Event) {
	if ev.Kind == cm.DisconnectRequest {
		c.agent.nic.CatchUp() // the peer sent its last acknowledgement first, perhaps to another shard
	}
	c.getHandler().event(ev) // first, so that a program that sees flushed completions knows the reason
	switch ev.Kind {
	case cm.AlternateRequest, cm.AlternateResponse:
		c.alternate(ev)
	case cm.Rejected, cm.Unreachable, cm.DisconnectRequest, cm.Disconnected:
		c.abandonProposal(errOverMeanwhile)
		c.mu.Lock()
		c.over = true
		c.mu.Unlock()
		c.Flush()
	}
	c.agent.do(func(mono.Time) {
		switch c.conn.State() {
		case cm.StateIdle:
			c.agent.forget(c)
		case cm.StateEstablished:
			c.agent.putOnBoard(c)
			c.agent.handshakeEnded(c)
		case cm.StateTimewait:
			c.agent.removeFromBoard(c)
			c.agent.handshakeEnded(c)
		}
	})
}

// Flush moves the queue pair to ERR, which flushes its work requests.
func (c *Conn) Flush() {
	if q := c.queuePair(); q != nil {
		q.Disconnect(c)
	}
}

// acknowledge acknowledges all messages that the program has.
func (c *Conn) acknowledge() {
	if q := c.queuePair(); q != nil {
		q.Acknowledge()
	}
}

// try runs an operation of the connection.
func (c *Conn) try(f func(now mono.Time) error) error {
	return c.agent.try(func(now mono.Time) error {
		if c.conn == nil {
			return errNotConnected
		}
		return f(now)
	})
}

// errNotConnected is the error of an operation before Connect.
var errNotConnected = errs.New("connection", syscall.EINVAL, "not connecting yet")

// State returns the state; StateIdle after the connection has ended and was
// dropped.
func (c *Conn) State() (s cm.State) {
	c.try(func(mono.Time) error { s = c.conn.State(); return nil })
	return s
}

// Info returns the connection, whose addresses never change.
func (c *Conn) Info() *cm.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn
}

// Offer returns what the peer proposed: [cm.Conn.Offer].
func (c *Conn) Offer() (o cm.Offer) {
	c.try(func(mono.Time) error { o = c.conn.Offer(); return nil })
	return o
}

// QPAttr returns the attributes for the queue pair: [cm.Conn.QPAttr].
func (c *Conn) QPAttr() (a cm.QPAttr, err error) {
	err = c.try(func(mono.Time) (err error) { a, err = c.conn.QPAttr(); return err })
	return a, err
}

// AcceptAttr is QPAttr for a request that the caller will accept with p:
// [cm.Conn.AcceptAttr].
func (c *Conn) AcceptAttr(p cm.AcceptParam) (a cm.QPAttr, err error) {
	err = c.try(func(mono.Time) (err error) { a, err = c.conn.AcceptAttr(p); return err })
	return a, err
}

// Accept sends the REP (rdma_accept): [cm.Conn.Accept].
func (c *Conn) Accept(p cm.AcceptParam) error {
	c.mu.Lock()
	q, conn := c.qp, c.conn
	c.mu.Unlock()
	if q != nil {
		q.OnData(c, func() { // the peer's first data confirms the connection, as its RTU does
			c.agent.do(func(now mono.Time) { conn.CommEstablished(now) })
		})
	}
	return c.try(func(now mono.Time) error {
		err := c.conn.Accept(now, p)
		if err == nil {
			c.agent.putOnBoard(c) // the connection may be established for the peer before its RTU arrives
		}
		return err
	})
}

// ReadyToUse sends the RTU (rdma_establish): [cm.Conn.ReadyToUse].
func (c *Conn) ReadyToUse(private []byte) error {
	return c.try(func(now mono.Time) error {
		err := c.conn.ReadyToUse(now, private)
		if err == nil {
			c.agent.putOnBoard(c)
		}
		return err
	})
}

// CommEstablished reports that data has arrived (rdma_notify):
// [cm.Conn.CommEstablished].
func (c *Conn) CommEstablished() error {
	return c.try(func(now mono.Time) error { return c.conn.CommEstablished(now) })
}

// Reject refuses the connection while it is being set up (rdma_reject):
// [cm.Conn.Reject]. No event follows.
func (c *Conn) Reject(reason cm.RejectReason, private []byte) error {
	return c.try(func(now mono.Time) error {
		err := c.conn.Reject(now, reason, private)
		if err == nil {
			c.agent.handshakeEnded(c)
			if c.conn.State() == cm.StateIdle {
				c.agent.forget(c)
			}
		}
		return err
	})
}

// Disconnect sends the DREQ, or the DREP if the peer was first
// (rdma_disconnect): [cm.Conn.Disconnect].
func (c *Conn) Disconnect(private []byte) error {
	c.acknowledge()
	return c.try(func(now mono.Time) error { return c.conn.Disconnect(now, private) })
}

// DisconnectEstablished sends the DREQ if the connection is established. Otherwise it
// does nothing.
func (c *Conn) DisconnectEstablished() {
	c.acknowledge()
	c.try(func(now mono.Time) error {
		if c.conn.State() == cm.StateEstablished {
			return c.conn.Disconnect(now, nil)
		}
		return nil
	})
}

// Destroy ends the connection in any state (rdma_destroy_id): it moves the
// queue pair to ERR and sends a message to the peer. No event follows.
func (c *Conn) Destroy() {
	c.Flush()
	c.abandonProposal(errOverMeanwhile)
	c.try(func(now mono.Time) error {
		if c.conn.Destroy(now); c.conn.State() != cm.StateDreqSent || c.agent.nic.Removed() { // its DREQs still need the path
			c.agent.forget(c)
		}
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handler, c.qp = Handler{}, nil // timewait does not need the owner
}

// ConnectQP moves a queue pair in INIT to RTS with the attributes of the handshake. If
// the handshake grants the peer READs, the peer gets the rights in access, unless
// access is 0. ConnectQP may wait for the neighbour's answer.
func (c *Conn) ConnectQP(ctx context.Context, q *nic.QP, a cm.QPAttr, access mr.Access, minRNRTimer uint8, quirk bool) error {
	if a.Alternate != nil {
		c.follow(q)
	}
	for _, state := range []qp.State{qp.RTR, qp.RTS} {
		attr, mask, err := c.Attr(ctx, q.Type(), state, a, minRNRTimer)
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
		if err := q.Modify(q, &attr, mask); err != nil {
			return err
		}
	}
	return nil
}

// Path resolves the path to the peer, if it is not resolved yet.
func (c *Conn) Path(ctx context.Context, a cm.QPAttr) (*frame.Path, error) {
	index, ok := c.agent.nic.Routes().GIDs().Index(a.Local)
	if !ok {
		return nil, errs.New("connect", syscall.EADDRNOTAVAIL, "%v is not an address of the device", a.Local.Addr())
	}
	w := route.Way{DGID: a.Remote, SGIDIndex: index, FlowLabel: a.FlowLabel, TrafficClass: a.TrafficClass}
	p, err := c.agent.nic.Routes().ResolveAgain(ctx, w, frame.SourcePort(a.FlowLabel))
	if err != nil || share.MayDivide(a.DestQPN, uint32(a.RemoteID)) {
		return p, err
	}
	return c.agent.nic.Routes().Undivided(p)
}

// Attr returns the attributes with which to modify a queue pair of type t to a
// state: INIT, RTR or RTS (rdma_init_qp_attr). For RTS they include an alternate
// path. For RTR and RTS it may wait for the neighbour's answer.
func (c *Conn) Attr(ctx context.Context, t qp.Type, state qp.State, a cm.QPAttr, minRNRTimer uint8) (qp.Attr, qp.AttrMask, error) {
	var attr qp.Attr
	var mask qp.AttrMask
	switch state {
	case qp.Init:
		attr, mask = qp.Attr{Port: 1, Access: mr.RemoteWrite}, qp.AttrState|qp.AttrPKeyIndex|qp.AttrPort|qp.AttrAccess
		if a.RemoteRead {
			attr.Access = mr.AllRemote
		}
	case qp.RTR:
		path, err := c.Path(ctx, a)
		if err != nil {
			return attr, 0, err
		}
		attr = qp.Attr{AV: qp.NewAH(path), PathMTU: a.PathMTU, DestQPN: a.DestQPN, RQPSN: a.RQPSN, MaxDestRdAtomic: min(a.MaxDestRdAtomic, qp.MaxRdAtomic),
			MinRNRTimer: bth.RNRTimer(minRNRTimer)}
		mask = qp.MaskRTR(t)
	case qp.RTS:
		attr = qp.Attr{SQPSN: a.SQPSN, Timeout: a.Timeout, RetryCnt: min(a.RetryCount, 7), RNRRetry: min(a.RNRRetry, 7),
			MaxRdAtomic: min(a.MaxRdAtomic, qp.MaxRdAtomic)}
		mask = qp.MaskRTS(t)
		if a.Alternate != nil {
			path, err := c.resolveAlternate(ctx, a.Alternate)
			if err != nil {
				return attr, 0, err
			}
			attr.AltAV, attr.AltPort, attr.AltTimeout, attr.PathMigState = qp.NewAH(path), 1, a.Alternate.AckTimeout, qp.Rearm
			mask |= qp.AttrAltPath | qp.AttrPathMigState
		}
	default:
		return attr, 0, errs.New("connect", syscall.EINVAL, "no attributes for state %v, only INIT, RTR and RTS", state)
	}
	attr.State = state
	return attr, mask, nil
}
