package roce

import (
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
	engine  *qp.QP
	sink    frame.Sink

	// paths are the ways to the peers that datagrams go to: those we resolved,
	// and those that wrote to us, which are answered where they came from.
	paths map[pathKey]*frame.Path

	ends map[*endpoint]struct{} // connections that exist
}

type pathKey struct{ local, peer bth.GID }

// Limits of QP 1: datagrams waiting for the port, and remembered paths.
const (
	gsiDepth = 1024
	gsiPaths = 4096
)

func newGSI(d *Device, guid cm.GUID) (*gsi, error) {
	g := &gsi{dev: d, paths: map[pathKey]*frame.Path{}, ends: map[*endpoint]struct{}{}}
	var err error
	if g.manager, err = cm.NewManager(cm.Config{GUID: guid, Rand: func() uint32 { return uint32(d.rnd()) }}); err != nil {
		return nil, err
	}
	// Nothing is ever completed into this queue: sends are unsignaled and
	// received datagrams are handed over in place.
	none, err := cq.New(1, cq.Options{})
	if err != nil {
		return nil, err
	}
	s := d.shards[0]
	g.engine, err = qp.New(qp.Config{Type: qp.GSI, Num: bth.QPNGSI, PD: mr.NewPD(), Memory: d.mem, SendCQ: none, RecvCQ: none,
		Caps: qp.Caps{MaxSendWR: gsiDepth, MaxInlineData: cm.MADLen}, Counters: &s.counters})
	if err != nil {
		return nil, err
	}
	g.sink = &datagramSink{shard: s}
	for _, step := range []struct {
		attr qp.Attr
		mask qp.AttrMask
	}{
		{qp.Attr{State: qp.Init, QKey: bth.QKeyGSI}, qp.AttrState | qp.AttrPKeyIndex | qp.AttrQKey},
		{qp.Attr{State: qp.RTR}, qp.AttrState},
		{qp.Attr{State: qp.RTS}, qp.AttrState | qp.AttrSQPSN},
	} {
		if err := g.engine.Modify(&step.attr, step.mask); err != nil {
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
	s.counters.RcvdPkts++
	g.learn(p)
	g.manager.HandleMAD(now, p.Src, p.Dst, p.Payload())
}

// learn remembers where a peer's datagrams come from. It does not replace a
// way that was resolved: a forged packet must not redirect a connection.
func (g *gsi) learn(p *frame.Packet) {
	key := pathKey{p.Dst, p.Src}
	if g.paths[key] != nil {
		return
	}
	path, err := frame.NewPath(frame.PathConfig{Src: p.Dst, Dst: p.Src, SrcMAC: g.dev.info.MAC, DstMAC: p.SrcMAC, VLAN: p.VLAN,
		SrcPort: frame.HashPort(bth.QPNGSI), HopLimit: defaultHopLimit})
	if err == nil {
		g.remember(key, path)
	}
}

// remember keeps a path; when there are too many, some other one goes.
func (g *gsi) remember(key pathKey, p *frame.Path) {
	if len(g.paths) >= gsiPaths {
		for k := range g.paths {
			delete(g.paths, k)
			break
		}
	}
	g.paths[key] = p
}

// send posts the manager's datagrams and lets the engine build what the port
// has room for. A datagram that has no way or no room is lost, as on a
// network: the manager repeats it.
func (g *gsi) send(s *shard, now mono.Time) {
	for {
		out, ok := g.manager.NextMAD()
		if !ok {
			break
		}
		if path := g.paths[pathKey{out.From, out.To}]; path != nil {
			g.engine.PostSend(&qp.SendWR{Opcode: qp.Send, Inline: out.MAD[:], AH: path, RemoteQPN: bth.QPNGSI, RemoteQKey: bth.QKeyGSI})
		}
	}
	for g.engine.Emit(now, g.sink) && !s.refused {
	}
}

// collect turns the manager's events into notices.
func (g *gsi) collect(s *shard) {
	for {
		e, ok := g.manager.NextEvent()
		if !ok {
			return
		}
		if e.Kind == cm.ConnectRequest {
			e.Conn.User = newEndpoint(g.dev, e.Conn)
		}
		s.notices = append(s.notices, notice{event: e})
	}
}

// dispatch delivers a notice. No lock is held.
func (g *gsi) dispatch(n notice) {
	switch {
	case n.data != nil:
		g.do(func(now mono.Time) { n.data.CommEstablished(now) })
	case n.event.Kind == cm.ConnectRequest:
		n.event.Listener.User.(*Listener).offer(n.event)
	case n.event.Conn != nil:
		n.event.Conn.User.(*endpoint).handle(n.event)
	}
}

// do runs an operation on the connection manager and sends what comes of it.
func (g *gsi) do(f func(now mono.Time)) {
	s := g.dev.shards[0]
	s.mu.Lock()
	now := g.dev.now()
	f(now)
	s.finish(now)
}

// shutdown tells every peer that its connection is over.
func (g *gsi) shutdown() {
	g.do(func(now mono.Time) {
		for e := range g.ends {
			e.conn.Destroy(now)
			e.finish(ErrClosed)
		}
		clear(g.ends)
	})
}
