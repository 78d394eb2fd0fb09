// Package node is an LNet node on one o2ib interface: the driver of the state machines of package
// lnd on rdmacm, and a small LNet above it. A [Node] accepts and makes connections on demand,
// answers pings, and moves data by [Node.Put] and [Node.Get] to and from a [Target] of a peer.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/examples/o2iblnd/lnd"
	"github.com/goroce/roce/examples/o2iblnd/wire"
	"github.com/goroce/roce/rdmacm"
)

// Config has the parameters of a node.
type Config struct {
	Addr netip.Addr // address of the device
	Net  uint16     // number of the o2ib network
	Port uint16     // port on which this node and its peers listen; 0: 987

	LND          lnd.Config
	Pool         PoolConfig
	Privileged   bool // refuse peers that do not connect from a port below 1024
	FragmentSize int  // size in bytes of the fragments that describe memory; 0: one fragment

	// Trace, if set, gets a line for each message. It is called with the node locked.
	Trace func(line string)
}

// Node is an LNet node.
type Node struct {
	cfg     Config
	dev     *roce.Device
	host    *rdmacm.Host
	pd      *roce.PD
	channel *rdmacm.Channel
	listen  *rdmacm.ID

	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex // guards the fields below, the links and the state machines
	ni      *lnd.NI
	pool    *Pool
	peers   map[wire.NID]*peer
	links   map[*link]struct{}
	targets []*Target
	pending map[uint64]*pending // GETs and PUTs that wait for a REPLY or an ACK
	nextMD  uint64
	closed  bool
}

// peer has the connections to a node and the operations that wait for one.
type peer struct {
	lnd   *lnd.Peer
	links []*link // established
	next  int
	queue []*lnd.Op

	responses int // ACKs and REPLYs that are not sent yet
}

// Open starts a node on a device. The caller closes the device after the node.
func Open(dev *roce.Device, cfg Config) (*Node, error) {
	cfg.Port = cmp.Or(cfg.Port, wire.Port)
	host, err := rdmacm.NewHost(dev)
	if err != nil {
		return nil, err
	}
	pd := dev.AllocPD()
	n := &Node{cfg: cfg, dev: dev, host: host, pd: pd, channel: host.NewChannel(), pool: NewPool(pd, cfg.Pool),
		ni:    lnd.NewNI(cfg.LND, wire.O2IB(cfg.Addr, cfg.Net), wire.Stamp(time.Now().UnixMicro())),
		peers: map[wire.NID]*peer{}, links: map[*link]struct{}{}, pending: map[uint64]*pending{}}
	n.ni.Privileged = cfg.Privileged
	n.ctx, n.stop = context.WithCancel(context.Background())
	n.listen, err = host.CreateID(n.channel, rdmacm.TCP, nil)
	if err == nil {
		err = n.listen.Bind(netip.AddrPortFrom(cfg.Addr, cfg.Port))
	}
	if err == nil {
		err = n.listen.Listen(0)
	}
	if err != nil {
		n.Close()
		return nil, err
	}
	n.running.Go(n.events)
	n.running.Go(n.timers)
	return n, nil
}

// NID returns the address of the node.
func (n *Node) NID() wire.NID { return n.ni.NID() }

// Close ends all connections and operations.
func (n *Node) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return net.ErrClosed
	}
	n.closed = true
	for l := range n.links {
		n.closeConn(l)
	}
	for _, p := range n.peers {
		n.failQueue(p, net.ErrClosed)
	}
	n.mu.Unlock()
	n.drain()
	n.stop()
	n.channel.Close()
	n.mu.Lock()
	for l := range n.links {
		l.tearDown()
	}
	n.mu.Unlock()
	n.running.Wait()
	n.pool.Close()
	if n.listen != nil {
		n.listen.Destroy()
	}
	return errors.Join(n.pd.Close(), n.host.Close())
}

// drain waits up to one second until the peers have confirmed the end of the connections.
func (n *Node) drain() {
	deadline := time.NewTimer(time.Second)
	defer deadline.Stop()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		n.mu.Lock()
		left := len(n.links)
		n.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-deadline.C:
			return
		case <-poll.C:
		}
	}
}

// events acts on the events of the connection manager.
func (n *Node) events() {
	for {
		ev, err := n.channel.Next(n.ctx)
		if err != nil {
			return
		}
		n.mu.Lock()
		n.event(ev)
		n.mu.Unlock()
	}
}

func (n *Node) event(ev *rdmacm.Event) {
	if ev.Type == rdmacm.ConnectRequest {
		n.request(ev)
		return
	}
	l, _ := ev.ID.Context.(*link)
	if l == nil || l.gone {
		return
	}
	switch ev.Type {
	case rdmacm.AddrResolved:
		n.step(l, l.id.ResolveRoute(n.ctx, connectTimeout))
	case rdmacm.RouteResolved:
		n.step(l, n.connect(l))
	case rdmacm.Established:
		n.accepted(l, ev)
	case rdmacm.Rejected:
		var private []byte
		if ev.Conn != nil {
			private = ev.Conn.PrivateData
		}
		n.failed(l, ev.Status, private)
	case rdmacm.Unreachable:
		n.failed(l, noAnswer, nil)
	case rdmacm.AddrError, rdmacm.RouteError, rdmacm.ConnectError:
		n.failed(l, 0, nil)
	case rdmacm.Disconnected, rdmacm.DeviceRemoval:
		n.drop(l)
	}
}

// dial begins to connect to a peer, if no attempt is under way.
func (n *Node) dial(p *peer) {
	if ok, _ := p.lnd.MayDial(time.Now()); !ok || n.closed {
		return
	}
	id, err := n.host.CreateID(n.channel, rdmacm.TCP, nil)
	if err != nil {
		n.failQueue(p, err)
		return
	}
	l := &link{node: n, id: id, peer: p.lnd, active: true, deadline: time.Now().Add(n.ni.Config().ConnectTimeout())}
	id.Context = l
	n.links[l] = struct{}{}
	n.ni.Dial(p.lnd)
	err = bindReserved(id, n.cfg.Addr)
	if err == nil {
		err = id.SetAckTimeout(ackTimeout)
	}
	if err == nil {
		err = id.ResolveAddr(n.ctx, netip.AddrPort{}, netip.AddrPortFrom(p.lnd.NID.Addr(), n.cfg.Port), connectTimeout)
	}
	n.step(l, err)
}

// bindReserved binds to the highest free port below 1024: a peer may require such a port.
func bindReserved(id *rdmacm.ID, addr netip.Addr) (err error) {
	for port := uint16(1023); port > 512; port-- {
		err = id.Bind(netip.AddrPortFrom(addr, port))
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EADDRNOTAVAIL) {
			return err
		}
	}
	return err
}

// step ends an attempt if one of its steps has failed.
func (n *Node) step(l *link, err error) {
	if err != nil {
		n.failed(l, 0, nil)
	}
}

// connect sends the request of an attempt whose route is known.
func (n *Node) connect(l *link) error {
	if err := l.setUp(n.ni.Config().PeerCredits); err != nil {
		return err
	}
	return l.id.Connect(n.ctx, param(n.ni.Hello(l.peer)))
}

// maxLinks is the number of connections and attempts at which the node refuses requests of peers.
// Each connection has a queue pair and its receives.
const maxLinks = 1024

// request decides on the request of a peer.
func (n *Node) request(ev *rdmacm.Event) {
	a := n.ni.Request(ev.Conn.PrivateData, ev.ID.PeerAddr().Port(), n.closed || len(n.links) >= maxLinks)
	if a.CloseOld {
		for l := range n.links {
			if l.peer == a.Peer {
				n.closeConn(l)
			}
		}
	}
	if a.Reject {
		n.tracef("REJ to %v", ev.ID.PeerAddr())
		ev.ID.Reject(a.Private)
		ev.ID.Destroy()
		return
	}
	l := &link{node: n, id: ev.ID, peer: a.Peer}
	ev.ID.Context = l
	n.links[l] = struct{}{}
	l.conn = lnd.NewConn(time.Now(), n.ni.Config(), a.Identity, a.Params)
	if err := l.setUp(int(a.Params.QueueDepth)); err != nil {
		r := wire.Reject{Version: a.Identity.Version, Why: wire.NoResources, Params: n.ni.Config().Params()}
		ev.ID.Reject(r.Append(nil))
		n.drop(l)
		return
	}
	l.accept(a.Private)
}

// accepted completes the establishment of a connection that either side requested.
func (n *Node) accepted(l *link, ev *rdmacm.Event) {
	if l.active && l.conn == nil {
		var private []byte
		if ev.Conn != nil {
			private = ev.Conn.PrivateData
		}
		id, params, err := n.ni.Accepted(l.peer, private)
		if l.reported = true; err != nil {
			n.tracef("%v: %v", l.peer.NID, err)
			n.failQueue(n.peer(l.peer.NID), err)
			if l.id.Disconnect(n.ctx) != nil {
				n.drop(l)
			}
			return
		}
		l.conn = lnd.NewConn(time.Now(), n.ni.Config(), id, params)
	}
	n.establish(l)
	n.act(l)
	early := l.early
	l.early = nil
	for i := range early {
		l.completed(&early[i])
	}
}

// establish marks a link as established and submits the waiting operations on it.
func (n *Node) establish(l *link) {
	if l.established || l.gone || l.conn.Err() != nil {
		return
	}
	l.established = true
	if !l.active {
		n.ni.Settled(l.peer)
	}
	p := n.peer(l.peer.NID)
	p.links = append(p.links, l)
	queue := p.queue
	p.queue = nil
	for _, op := range queue {
		l.conn.Submit(time.Now(), op)
	}
}

// failed ends an attempt. If another attempt can succeed, it begins one.
func (n *Node) failed(l *link, reason int, private []byte) {
	active := l.active && !l.reported
	if l.reported = true; active {
		err := n.ni.Refused(time.Now(), l.peer, reason, private, rand.Float64())
		n.tracef("%v refused or failed: reason %d: %v", l.peer.NID, reason, cmp.Or(err, errors.New("again")))
		if err != nil {
			n.failQueue(n.peer(l.peer.NID), err)
		}
	}
	n.drop(l)
}

// closeConn ends the connection of a link, if it has one.
func (n *Node) closeConn(l *link) {
	if l.conn != nil {
		l.conn.Close(lnd.ErrClosed)
		n.act(l)
	}
}

// drop frees a link and connects again if operations wait.
func (n *Node) drop(l *link) {
	if l.gone {
		return
	}
	n.closeConn(l)
	if !l.active && !l.established {
		n.ni.Settled(l.peer)
		l.established = true
	}
	if l.active && !l.reported {
		l.reported = true
		n.ni.Refused(time.Now(), l.peer, 0, nil, 0)
	}
	l.tearDown()
	delete(n.links, l)
	if p := n.peer(l.peer.NID); len(p.queue) > 0 {
		n.dial(p)
	}
	n.forget(l.peer.NID)
}

// forget deletes a peer without connections, operations and responses: any node can claim any NID.
func (n *Node) forget(nid wire.NID) {
	p := n.peers[nid]
	if p == nil || len(p.links)+len(p.queue)+p.responses > 0 {
		return
	}
	for l := range n.links {
		if l.peer == p.lnd {
			return
		}
	}
	if n.ni.Forget(p.lnd) {
		delete(n.peers, nid)
	}
}

func (n *Node) peer(nid wire.NID) *peer {
	p := n.peers[nid]
	if p == nil {
		p = &peer{lnd: n.ni.Peer(nid)}
		n.peers[nid] = p
	}
	return p
}

// failQueue ends the operations that wait for a connection.
func (n *Node) failQueue(p *peer, err error) {
	queue := p.queue
	p.queue = nil
	for _, op := range queue {
		n.finished(&lnd.Finished{Op: op, Err: err})
	}
}

// submit begins an operation on one of the connections to a peer, in turn. If there is none, it connects.
func (n *Node) submit(nid wire.NID, op *lnd.Op) {
	p := n.peer(nid)
	switch {
	case n.closed:
		n.finished(&lnd.Finished{Op: op, Err: net.ErrClosed})
	case len(p.links) > 0:
		p.next++
		l := p.links[p.next%len(p.links)]
		l.conn.Submit(time.Now(), op)
		n.act(l)
	default:
		p.queue = append(p.queue, op)
		n.dial(p)
	}
}

// act acts on the outputs of a connection's state machine.
func (n *Node) act(l *link) {
	for l.conn != nil {
		switch o := l.conn.Poll().(type) {
		case nil:
			return
		case *lnd.Transmit:
			if l.gone || l.conn.Err() != nil {
				continue
			}
			if err := l.transmit(o); err != nil {
				l.conn.Close(err)
			}
		case *lnd.Arrival:
			n.arrived(l, o)
		case *lnd.Finished:
			n.finished(o)
		case *lnd.Closed:
			n.tracef("%v: closed: %v", l.peer.NID, o.Err)
			p := n.peer(l.peer.NID)
			p.links = slices.DeleteFunc(p.links, func(x *link) bool { return x == l })
			if len(p.links) == 0 && l.established {
				n.ni.Alone(l.peer)
			}
			if !l.gone && l.id.Disconnect(n.ctx) != nil { // moves the queue pair to the error state
				n.drop(l)
			}
		}
	}
}

// timers checks all deadlines every 50 ms.
func (n *Node) timers() {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-tick.C:
		}
		n.mu.Lock()
		now := time.Now()
		for l := range n.links {
			if l.conn == nil {
				if !now.Before(l.deadline) { // only an attempt of this side has no conn
					n.failed(l, noAnswer, nil) // the connection manager informs the peer
				}
				continue
			}
			if next := l.conn.NextTimeout(); !next.IsZero() && !now.Before(next) {
				l.conn.Timeout(now)
				n.act(l)
			}
		}
		n.expire(now)
		for _, p := range n.peers {
			if len(p.queue) > 0 {
				n.dial(p)
			}
		}
		n.mu.Unlock()
	}
}

func (n *Node) tracef(format string, args ...any) {
	if n.cfg.Trace != nil {
		n.cfg.Trace(fmt.Sprintf(format, args...))
	}
}

// traced traces a message. The arrow is "<" for one of the peer and ">" for one of this side.
func (n *Node) traced(l *link, arrow string, b []byte) {
	if n.cfg.Trace == nil {
		return
	}
	m, err := wire.Decode(b)
	if err != nil {
		n.tracef("%s %v %v", arrow, l.peer.NID, err)
		return
	}
	n.tracef("%s %v %v", arrow, l.peer.NID, m)
}
