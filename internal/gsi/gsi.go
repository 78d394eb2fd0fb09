package gsi

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// Config configures an [Agent].
type Config struct {
	NIC      *nic.NIC
	Memory   *mr.Table
	Rand     func() uint64
	Manager  cm.Config      // GUID and limits; New sets the other fields
	MADRate  int            // of management datagrams per second; 0: the default
	Presence share.Presence // on the addresses
}

// Agent is QP 1 of a device. It implements [nic.QP1].
type Agent struct {
	nic     *nic.NIC
	shard   *nic.Shard // its lock guards everything here
	manager *cm.Manager
	qp      nic.QP // a queue pair of the shard like any other, but not in the table of numbers

	paths   *pathCache
	limiter madLimiter

	conns     map[*Conn]struct{}    // existing connections
	queries   map[*Query]struct{}   // lookups in progress
	inquiries map[*Inquiry]struct{} // unanswered requests for UD queue pairs
	listeners map[*Listener]struct{}

	// The manager was called and may have datagrams, or events. Without these flags every
	// entry of the shard would call the manager, which costs as much as a small packet.
	mads, events bool
	out          cm.Out
	blocked      bool // the engine's queue was full, and out waits for room
	repeating    bool // most of the next datagrams are repetitions, whose peers do not answer

	examining  int             // goroutines that answer proposed alternate paths
	background context.Context // of these goroutines
	cancel     context.CancelFunc

	ports    ports
	watchers watchers
	shared   share.Shared // nil: there are no other processes
	teller   share.Teller // nil: no program can request reports of this process
}

// sendDepth is the number of datagrams that may wait for the port.
const sendDepth = 1024

// New makes the QP 1 of a NIC.
func New(c Config) (*Agent, error) {
	g := &Agent{nic: c.NIC, shard: c.NIC.Shard(0), paths: newPathCache(), limiter: newMADLimiter(c.MADRate, c.Rand()),
		conns: map[*Conn]struct{}{}, queries: map[*Query]struct{}{}, inquiries: map[*Inquiry]struct{}{}, listeners: map[*Listener]struct{}{}}
	g.shared, g.teller = c.Presence.Shared, c.Presence.Teller
	g.ports.init(c.Rand(), portsOf(g.shared))
	g.background, g.cancel = context.WithCancel(context.Background())
	m := c.Manager
	m.IDs, m.Rand = idsOf(g.shared), func() uint32 { return uint32(c.Rand()) }
	m.Left = func(c *cm.Conn) { g.forget(c.User.(*Conn)) }
	var err error
	if g.manager, err = cm.NewManager(m); err != nil {
		return nil, err
	}
	// This queue never gets a completion: sends are unsignaled, and received
	// datagrams are handled in place.
	none, err := cq.New(1, cq.Options{})
	if err != nil {
		return nil, err
	}
	err = g.nic.CreateGSI(&g.qp, qp.Config{Type: qp.GSI, PD: mr.NewPD(), Memory: c.Memory, SendCQ: none, RecvCQ: none,
		Caps: qp.Caps{MaxSendWR: sendDepth, MaxInlineData: cm.MADLen}})
	if err != nil {
		return nil, err
	}
	for _, step := range []struct {
		attr qp.Attr
		mask qp.AttrMask
	}{
		{qp.Attr{State: qp.Init, QKey: bth.QKeyGSI}, qp.AttrState | qp.AttrPKeyIndex | qp.AttrQKey},
		{qp.Attr{State: qp.RTR}, qp.AttrState},
		{qp.Attr{State: qp.RTS}, qp.AttrState | qp.AttrSQPSN},
	} {
		if err := g.qp.Engine().Modify(&step.attr, step.mask); err != nil {
			return nil, err
		}
	}
	g.startSharing()
	return g, nil
}

// Admit implements [nic.QP1].
func (g *Agent) Admit(now, dataAt mono.Time, source *bth.GID) bool {
	return g.limiter.admit(now, dataAt, source)
}

// MADLimit implements [nic.QP1].
func (g *Agent) MADLimit() link.MADLimit { return g.limiter.limit() }

// Receive implements [nic.QP1].
func (g *Agent) Receive(now mono.Time, p *frame.Packet) {
	drops := g.shard.Drops()
	if p.Op != bth.UDSendOnly || p.QKey() != bth.QKeyGSI || len(p.Payload()) != cm.MADLen {
		drops.NoMAD++
		return
	}
	if g.shard.CallsFull() {
		drops.Overrun++
		return
	}
	g.shard.CountReceived()
	g.learn(p)
	g.manage().HandleMAD(now, p.Src, p.Dst, p.Payload())
}

// NextTimeout implements [nic.QP1].
func (g *Agent) NextTimeout() mono.Time { return g.manager.NextTimeout() }

// HandleTimeout implements [nic.QP1].
func (g *Agent) HandleTimeout(now mono.Time) {
	g.manage().HandleTimeout(now)
	g.repeating = true
}

// manage returns the connection manager for a call after which it may have datagrams and
// events.
func (g *Agent) manage() *cm.Manager {
	g.mads, g.events = true, true
	g.shard.QP1Called()
	return g.manager
}

// learn records the path back to the source of a datagram. It does not replace a path
// that a connection uses: a forged packet must not redirect the connection.
func (g *Agent) learn(p *frame.Packet) {
	key := route.Key{Local: p.Dst, Peer: p.Src}
	var old *frame.Path
	if c := g.paths.byKey[key]; c != nil {
		if c.users > 0 {
			return
		}
		old = c.path
	}
	path, err := g.nic.Routes().Learn(p.Dst, p.Src, p.SrcMAC, old)
	if err == nil && path != old {
		g.remember(key, path)
	}
}

// remember stores a path of QP 1. The shard is locked.
func (g *Agent) remember(key route.Key, p *frame.Path) {
	if evicted := g.paths.put(key, p); evicted != nil {
		g.nic.Routes().Unlearn(evicted)
	}
}

// retain adds a user to a path until release, and returns nil if there is no path. If the
// path's next hop was only learned from a packet, retain has it looked up. The shard is
// locked.
func (g *Agent) retain(key route.Key) *cachedPath {
	p := g.paths.retain(key)
	if p != nil {
		g.nic.Routes().LookUp(p.path)
	}
	return p
}

// Post implements [nic.QP1]. Post drops a datagram without a path, as a network may;
// the manager repeats it. It also drops an answer to an address without a route, if the
// answer would burden the host: strangers can forge the addresses.
func (g *Agent) Post(now mono.Time) (blocked bool) {
	for g.mads {
		if !g.blocked {
			if g.out, g.mads = g.manager.NextMAD(); !g.mads {
				g.repeating = false
				return false
			}
		}
		g.blocked = false
		p := g.paths.byKey[route.Key{Local: g.out.From, Peer: g.out.To}]
		if p == nil || !g.nic.Routes().MayAnswer(p.key, p.path) {
			continue
		}
		if g.repeating {
			g.nic.Routes().Doubt(now, p.path)
		}
		err := g.qp.Engine().PostSend(&qp.SendWR{Opcode: qp.Send, Inline: g.out.MAD[:], AH: qp.NewAH(p.path), RemoteQPN: bth.QPNGSI, RemoteQKey: bth.QKeyGSI})
		g.shard.Touch(&g.qp)
		if errors.Is(err, syscall.ENOMEM) {
			g.blocked = true
			return true
		}
	}
	return false
}

// Collect implements [nic.QP1].
func (g *Agent) Collect() {
	for g.events {
		var e cm.Event
		if e, g.events = g.manager.NextEvent(); !g.events {
			break
		}
		switch e.Kind {
		case cm.ConnectRequest:
			c := &Conn{agent: g}
			g.adopt(c, e.Conn)
			g.handshakeBegun(c, e.Listener.User.(*Listener))
		case cm.ServiceRequest:
			e.Inquiry.User = g.newInquiry(e.Inquiry)
		case cm.ServiceRequestOver:
			g.forgetInquiry(e.Inquiry.User.(*Inquiry))
		}
		g.shard.Call(func() { g.deliver(e) })
	}
}

// deliver passes an event to its handler. No lock is held.
func (g *Agent) deliver(e cm.Event) {
	switch {
	case e.Kind == cm.ConnectRequest, e.Kind == cm.ServiceRequest:
		e.Listener.User.(*Listener).deliver(e)
	case e.Kind == cm.ServiceRequestOver:
		e.Inquiry.User.(*Inquiry).withdrawn()
	case e.Conn != nil:
		e.Conn.User.(*Conn).handle(e)
	case e.Query != nil:
		e.Query.User.(*Query).handler.event(e)
	}
}

// do runs an operation on the connection manager and sends the resulting datagrams. It
// fails once the device is closed.
func (g *Agent) do(f func(now mono.Time)) error {
	g.shard.Lock()
	if g.nic.Closed() {
		g.shard.Unlock()
		return errs.ErrClosed
	}
	g.manage()
	f(g.nic.Now())
	g.shard.Finish()
	return nil
}

// begin is do for new connections, lookups and listeners: it also fails once the
// network interface was removed.
func (g *Agent) begin(f func(now mono.Time) error) error {
	return g.try(func(now mono.Time) error {
		if err := g.nic.Check(); err != nil {
			return err
		}
		return f(now)
	})
}

// try is do for an operation that may fail.
func (g *Agent) try(f func(now mono.Time) error) error {
	var err error
	closed := g.do(func(now mono.Time) { err = f(now) })
	return cmp.Or(closed, err)
}

// Leaving implements [nic.QP1].
func (g *Agent) Leaving() int { return g.manager.Leaving() }

// Shutdown implements [nic.QP1].
func (g *Agent) Shutdown(now mono.Time) (tell func(error)) {
	handlers := g.handlers()
	g.cancel()
	g.manage().Close(now)
	clear(g.conns)
	clear(g.queries)
	clear(g.inquiries)
	return func(why error) {
		for _, gone := range handlers {
			gone(why)
		}
		g.watchers.notify(why)
	}
}

// Removed implements [nic.QP1].
func (g *Agent) Removed(why error) {
	g.shard.Lock()
	conns := slices.Collect(maps.Keys(g.conns))
	handlers := g.handlers()
	g.shard.Unlock()
	for _, gone := range handlers {
		gone(why)
	}
	for _, c := range conns {
		c.Destroy()
	}
	g.watchers.notify(why)
}

// handlers returns the functions to call when there will be no more events. The shard
// is locked.
func (g *Agent) handlers() (gone []func(error)) {
	for l := range g.listeners {
		if l.handler.Gone != nil {
			gone = append(gone, l.handler.Gone)
		}
	}
	for c := range g.conns {
		gone = append(gone, c.abandonProposal, c.getHandler().gone)
	}
	for q := range g.queries {
		gone = append(gone, q.handler.gone)
	}
	return gone
}

// Counters returns the counters of the connection manager. The caller has locked the
// first shard.
func (g *Agent) Counters() cm.Counters { return g.manager.Counters() }
