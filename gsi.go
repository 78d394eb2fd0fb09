package roce

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// gsi is QP 1: it carries the connection manager's datagrams. It belongs to
// the first shard, whose lock guards everything in it.
type gsi struct {
	dev     *Device
	manager *cm.Manager
	qp      *QP // a queue pair of the shard like any other, but not in its tables

	*ways
	limiter madLimiter

	conns     map[*CMConn]struct{}    // connections that exist
	queries   map[*CMQuery]struct{}   // lookups under way
	asked     map[*CMInquiry]struct{} // requests for UD queue pairs that are not answered
	listeners map[*CMListener]struct{}

	// The manager may have something to send, or to say: it was called. Asking
	// it every turn costs as much as a small packet.
	mads, news bool
	out        cm.Out
	held       bool // out found QP 1 full and waits for room
	repeats    bool // the next datagrams are repetitions, mostly: their peers do not answer

	answering  int             // goroutines that answer proposed paths
	background context.Context // of these
	cancel     context.CancelFunc
	closing    bool          // the device is being closed
	drained    chan struct{} // holds a token when every peer knows that it is
}

// gsiDepth is how many datagrams wait for the port.
const gsiDepth = 1024

func newGSI(d *Device, guid cm.GUID, limits *ConnLimits) (*gsi, error) {
	g := &gsi{dev: d, ways: newWays(), limiter: newMADLimiter(limits.MADRate, d.rnd()), drained: make(chan struct{}, 1), conns: map[*CMConn]struct{}{}, queries: map[*CMQuery]struct{}{},
		asked: map[*CMInquiry]struct{}{}, listeners: map[*CMListener]struct{}{}}
	g.background, g.cancel = context.WithCancel(context.Background())
	var err error
	if g.manager, err = cm.NewManager(limits.config(cm.Config{GUID: guid, Rand: func() uint32 { return uint32(d.rnd()) }})); err != nil {
		return nil, err
	}
	// Nothing is ever completed into this queue: sends are unsignaled and
	// received datagrams are handed over in place.
	none, err := cq.New(1, cq.Options{})
	if err != nil {
		return nil, err
	}
	s := d.shards[0]
	g.qp = &QP{dev: d, shard: s, num: bth.QPNGSI, sink: &datagramSink{shard: s}, deadline: mono.Never}
	g.qp.engine, err = qp.New(qp.Config{Type: qp.GSI, Num: bth.QPNGSI, PD: mr.NewPD(), Memory: d.mem, SendCQ: none, RecvCQ: none,
		Caps: qp.Caps{MaxSendWR: gsiDepth, MaxInlineData: cm.MADLen}, Counters: &s.counters})
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
		if err := g.qp.engine.Modify(&step.attr, step.mask); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// receive takes a packet for QP 1 that has passed all checks.
func (g *gsi) receive(s *shard, now mono.Time, p *frame.Packet) {
	if p.Op != bth.UDSendOnly || p.QKey() != bth.QKeyGSI || len(p.Payload()) != cm.MADLen {
		s.drops.NoMAD++
		return
	}
	if len(s.notices) >= maxNotices {
		s.drops.Overrun++
		return
	}
	s.counters.RcvdPkts++
	g.learn(p)
	g.called().HandleMAD(now, p.Src, p.Dst, p.Payload())
}

// called returns the manager, which is about to be called.
func (g *gsi) called() *cm.Manager {
	g.mads, g.news = true, true
	return g.manager
}

// learn remembers where a peer's datagrams come from. It does not replace a
// way that a connection relies on: a forged packet must not redirect it.
func (g *gsi) learn(p *frame.Packet) {
	key := pathKey{p.Dst, p.Src}
	w := g.byKey[key]
	if w != nil && w.users > 0 {
		return
	}
	hop := g.dev.hops.learned(key, p.SrcMAC)
	if w != nil && w.path.Hop() == hop {
		return
	}
	path, err := frame.NewPath(frame.PathConfig{Src: p.Dst, Dst: p.Src, Hop: hop, VLAN: g.dev.vlan,
		SrcPort: g.dev.srcPort(frame.HashPort(bth.QPNGSI)), HopLimit: defaultHopLimit})
	if err == nil {
		g.remember(key, path)
	}
}

// remember keeps a path of QP 1. Called with the shard locked.
func (g *gsi) remember(key pathKey, p *frame.Path) {
	if gone := g.ways.remember(key, p); gone != nil {
		g.dev.hops.unlearn(gone)
	}
}

// hold relies on a way, nil if it is not known, until release, and has the next hop looked
// up that was only learned from a packet. Called with the shard locked.
func (g *gsi) hold(key pathKey) *way {
	w := g.ways.hold(key)
	if w != nil {
		g.dev.hops.chase(w.path)
	}
	return w
}

// post hands the manager's datagrams to QP 1. One that has no way is lost, as on a
// network: the manager repeats it. One that finds the queue full waits for the next
// turn.
func (g *gsi) post(s *shard) {
	for g.mads {
		if !g.held {
			if g.out, g.mads = g.manager.NextMAD(); !g.mads {
				g.repeats = false
				return
			}
		}
		g.held = false
		w := g.byKey[pathKey{g.out.From, g.out.To}]
		if w == nil {
			continue
		}
		if g.repeats {
			g.dev.hops.doubt(g.dev.now(), w.path)
		}
		err := g.qp.engine.PostSend(&qp.SendWR{Opcode: qp.Send, Inline: g.out.MAD[:], AH: w.path, RemoteQPN: bth.QPNGSI, RemoteQKey: bth.QKeyGSI})
		s.touch(g.qp)
		if errors.Is(err, syscall.ENOMEM) {
			g.held = true
			return
		}
	}
}

// collect turns the manager's events into notices.
func (g *gsi) collect(s *shard) {
	for g.news {
		var e cm.Event
		if e, g.news = g.manager.NextEvent(); !g.news {
			break
		}
		switch e.Kind {
		case cm.ConnectRequest:
			g.adopt(&CMConn{dev: g.dev}, e.Conn)
		case cm.ServiceRequest:
			e.Inquiry.User = g.newInquiry(e.Inquiry)
		case cm.ServiceRequestOver:
			g.forgetInquiry(e.Inquiry.User.(*CMInquiry))
		}
		s.notices = append(s.notices, notice{event: e})
	}
	if g.closing && g.manager.Leaving() == 0 {
		token(g.drained)
	}
}

// dispatch delivers a notice. No lock is held.
func (g *gsi) dispatch(n notice) {
	switch {
	case n.gone:
		g.dev.vanish()
	case n.data != nil:
		g.do(func(now mono.Time) { n.data.CommEstablished(now) })
	case n.moved != nil:
		n.moved.migrated()
	case n.event.Kind == cm.ConnectRequest, n.event.Kind == cm.ServiceRequest:
		n.event.Listener.User.(*CMListener).offer(n.event)
	case n.event.Kind == cm.ServiceRequestOver:
		n.event.Inquiry.User.(*CMInquiry).withdrawn()
	case n.event.Conn != nil:
		n.event.Conn.User.(*CMConn).handle(n.event)
	case n.event.Query != nil:
		n.event.Query.User.(*CMQuery).handler.event(n.event)
	}
	g.dev.nudge()
}

// do runs an operation on the connection manager and sends what comes of it.
// It fails once the device is closed.
func (g *gsi) do(f func(now mono.Time)) error {
	s := g.dev.shards[0]
	s.mu.Lock()
	if g.dev.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	now := g.dev.now()
	g.called()
	f(now)
	s.finish(now)
	return nil
}

// shutdown tells every peer that its connection is over. Called with the
// device locked; what it returns is to be told without.
func (g *gsi) shutdown(now mono.Time) (told []func(error)) {
	told = g.everybody()
	g.closing = true
	g.cancel()
	g.called().Close(now)
	clear(g.conns)
	clear(g.queries)
	clear(g.asked)
	return told
}

// linger waits until the peers have confirmed that their connections are over, or
// the time is up: what the manager sent may be lost, and it repeats it.
func (g *gsi) linger(limit time.Duration) {
	s := g.dev.shards[0]
	s.mu.Lock()
	over := g.manager.Leaving() == 0 || g.dev.gone.Load()
	s.mu.Unlock()
	if over || limit <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var driver chan<- struct{} // nil blocks: the background goroutine does the work
	if g.dev.polled {
		driver = g.dev.driver
		g.dev.nudge()
	}
	select {
	case <-g.drained:
	case <-ctx.Done():
	case driver <- struct{}{}:
		for len(g.drained) == 0 && ctx.Err() == nil {
			g.dev.drive(ctx, nil, func() bool { return len(g.drained) > 0 })
		}
		<-g.dev.driver
	}
}

// everybody returns those who must be told when there will be no more events.
// Called with the device locked.
func (g *gsi) everybody() (told []func(error)) {
	for l := range g.listeners {
		if l.handler.Gone != nil {
			told = append(told, l.handler.Gone)
		}
	}
	for c := range g.conns {
		told = append(told, c.giveUp, c.getHandler().gone)
	}
	for q := range g.queries {
		told = append(told, q.handler.gone)
	}
	return told
}
