package gsi

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/mono"
)

// NIC returns the machine room of the device.
func (g *Agent) NIC() *nic.NIC { return g.nic }

// Handler takes what happens to a connection, a lookup or a request.
type Handler struct {
	// Event is called for every event of the connection manager. Then the queue
	// pair of a connection that is over is moved to ERR.
	Event func(cm.Event)

	// Alternate is asked, on any goroutine, when the peer proposes an alternate path,
	// with the connection request or later; APLoaded takes it. Nil: no path is taken.
	Alternate func(cm.Path) cm.APStatus

	// Gone says that there will be no more events: the device is closed
	// (ErrClosed) or its interface was removed (ErrNoDevice). It may be called
	// while Event is.
	Gone func(error)
}

func (h *Handler) event(ev cm.Event) {
	if h.Event != nil {
		h.Event(ev)
	}
}

func (h *Handler) gone(err error) {
	if h.Gone != nil {
		h.Gone(err)
	}
}

// Route is the way from an address of the device to a peer.
type Route struct {
	Local, Remote netip.Addr
	route.Way     // for queue pairs; without a flow label
	MTU           bth.MTU

	local bth.GID
	path  *frame.Path // of QP 1
}

func (r *Route) key() route.Key { return route.Key{Local: r.local, Peer: r.DGID} }

// Source returns the address of the device to reach remote from: local, if it is
// valid, otherwise the first that fits. EADDRNOTAVAIL when local is not the
// device's, ENETUNREACH when none fits.
func (g *Agent) Source(local, remote netip.Addr) (netip.Addr, error) {
	_, src, err := g.nic.Routes().Source(local, bth.GIDFrom(remote.WithZone("")))
	return src.Addr(), err
}

// Route finds the way to a peer or multicast group (rdma_resolve_addr and
// rdma_resolve_route). It may wait for the neighbour's answer; see
// [route.Resolver] for the errors, and [Agent.Source].
func (g *Agent) Route(ctx context.Context, local, remote netip.Addr, trafficClass uint8) (*Route, error) {
	if g.nic.Closing() {
		return nil, errs.ErrClosed
	}
	to := bth.GIDFrom(remote.WithZone(""))
	index, from, err := g.nic.Routes().Source(local, to)
	if err != nil {
		return nil, err
	}
	way := route.Way{DGID: to, SGIDIndex: index, TrafficClass: trafficClass, Port: 1}
	path, err := g.nic.Routes().Resolve(ctx, way, frame.HashPort(bth.QPNGSI))
	if err != nil {
		return nil, err
	}
	mtu, ok := bth.PathMTU(g.nic.MTU())
	if !ok {
		return nil, errs.New("route", syscall.EINVAL, "an interface MTU of %d is too small", g.nic.MTU())
	}
	return &Route{Local: from.Addr(), Remote: to.Addr(), Way: way, MTU: mtu, local: from, path: path}, nil
}

// sourcePort returns the address of a connection's own end; without a port one is picked.
func (g *Agent) sourcePort(r *Route, p netip.AddrPort) netip.AddrPort {
	port := p.Port()
	if port == 0 {
		port = g.EphemeralPort()
	}
	return netip.AddrPortFrom(r.Local, port)
}

// EphemeralPort picks a source port of the range that Linux uses. All ports of the device come
// before one comes again: a listener may tell the requests of a host for UD queue pairs apart
// by nothing else. Where the sequence begins, and its step, are random.
func (g *Agent) EphemeralPort() uint16 {
	p := &g.ports
	i := (uint64(p.start) + p.drawn.Add(1)*uint64(p.step)) % uint64(p.count)
	return uint16(minPort + p.residue + p.modulus*uint32(i))
}

// HasPort reports whether EphemeralPort may pick a port.
func (g *Agent) HasPort(port uint16) bool {
	p, i := &g.ports, uint32(port)-minPort
	return port >= minPort && i < portRange && i%p.modulus == p.residue
}

// The range of ephemeral ports of Linux (ip_local_port_range).
const (
	minPort   = 32768
	portRange = 60999 - minPort + 1
)

// portClass are the ports of the range that are residue modulo modulus, from its first port on.
type portClass struct{ residue, modulus uint32 }

// ports is a sequence of all ports of a class.
type ports struct {
	portClass
	count       uint32 // ports in the class
	start, step uint32 // step has no divisor in common with count
	drawn       atomic.Uint64
}

func (p *ports) init(rnd uint64, c portClass) {
	p.portClass, p.count = c, portRange/c.modulus
	p.start, p.step = uint32(rnd)%p.count, uint32(rnd>>32)%p.count
	for gcd(p.step, p.count) != 1 {
		p.step++
	}
}

func gcd(a, b uint32) uint32 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Listener takes requests for a service.
type Listener struct {
	agent    *Agent
	listener *cm.Listener
	service  cm.ServiceID
	handler  ListenHandler

	// Guarded by the first shard.
	handshakes int // connections that peers have begun and not confirmed yet
	closed     bool
}

// ListenHandler takes the requests of a listener. Those for which it has no
// function are rejected.
type ListenHandler struct {
	Conn    func(*Conn, cm.Event)    // a peer wants to connect; call Conn.Handle
	Inquiry func(*Inquiry, cm.Event) // a peer wants a UD queue pair
	Gone    func(error)              // there will be no more; see [Handler]
}

// Listen begins to take requests. EADDRINUSE when another listener of the device
// could take the same, or another process listens for the service.
func (g *Agent) Listen(p cm.ListenParam, h ListenHandler) (*Listener, error) {
	if err := g.claim(p.ServiceID); err != nil {
		return nil, err
	}
	l := &Listener{agent: g, handler: h, service: p.ServiceID}
	p.User = l
	err := g.begin(func(mono.Time) (err error) {
		if l.listener, err = g.manager.Listen(p); err == nil {
			g.listeners[l] = struct{}{}
		}
		return err
	})
	if err != nil {
		g.dropClaim(p.ServiceID)
		return nil, err
	}
	return l, nil
}

// Close takes no more requests and rejects those the handler has not seen.
func (l *Listener) Close() {
	busy := false
	l.agent.do(func(now mono.Time) { // an error: the device is closed, and has no claims
		l.listener.Close(now)
		delete(l.agent.listeners, l)
		l.closed, busy = true, l.handshakes > 0
	})
	if !busy {
		l.agent.dropClaim(l.service)
	}
}

// deliver hands a request to the handler. No lock is held.
func (l *Listener) deliver(ev cm.Event) {
	switch {
	case ev.Inquiry != nil && l.handler.Inquiry != nil:
		l.handler.Inquiry(ev.Inquiry.User.(*Inquiry), ev)
	case ev.Inquiry != nil:
		ev.Inquiry.User.(*Inquiry).Reject(cm.SIDRReject, nil)
	case ev.Conn.User.(*Conn).Offer().MTU > bth.ActiveMTU(l.agent.nic.MTU()):
		ev.Conn.User.(*Conn).Reject(cm.RejectInvalidMTU, nil)
	case l.handler.Conn != nil:
		l.handler.Conn(ev.Conn.User.(*Conn), ev)
	default:
		ev.Conn.User.(*Conn).Destroy()
	}
}

// Watch calls f, without a lock, when the device is closed (ErrClosed), when its
// interface was removed (ErrNoDevice), and with nil when its addresses have
// changed, until stop is called. f must not wait.
func (g *Agent) Watch(f func(error)) (stop func()) { return g.watchers.add(f) }

// AddrsChanged calls the functions of Watch: the addresses of the device have changed.
func (g *Agent) AddrsChanged() { g.watchers.notify(nil) }

// watchers are the functions of Watch.
type watchers struct {
	mu   sync.Mutex
	list []*func(error)
}

func (w *watchers) add(f func(error)) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &f
	w.list = append(w.list, p)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.list = slices.DeleteFunc(w.list, func(o *func(error)) bool { return o == p })
	}
}

func (w *watchers) notify(err error) {
	w.mu.Lock()
	list := slices.Clone(w.list)
	w.mu.Unlock()
	for _, f := range list {
		(*f)(err)
	}
}
