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

// NIC returns the NIC core of the device.
func (g *Agent) NIC() *nic.NIC { return g.nic }

// Handler receives the events of a connection, a lookup or a request.
type Handler struct {
	// Event is called for every event of the connection manager. If the event
	// ended the connection, the agent then moves its queue pair to ERR.
	Event func(cm.Event)

	// Alternate is called, on any goroutine, when the peer proposes an alternate
	// path, with the connection request or later; APLoaded accepts the path. Nil: no
	// path is accepted.
	Alternate func(cm.Path) cm.APStatus

	// Gone is called when there will be no more events: the device is closed
	// (ErrClosed) or its interface was removed (ErrNoDevice). It may be called
	// while Event runs.
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

// Route is the route from an address of the device to a peer.
type Route struct {
	Local, Remote netip.Addr
	route.Way     // for queue pairs; without a flow label
	MTU           bth.MTU

	local bth.GID
	path  *frame.Path // of QP 1
}

func (r *Route) key() route.Key { return route.Key{Local: r.local, Peer: r.DGID} }

// Source returns the source address for remote: local, if it is valid, otherwise
// the first suitable address. It fails with EADDRNOTAVAIL if local is not an
// address of the device, and with ENETUNREACH if none is suitable.
func (g *Agent) Source(local, remote netip.Addr) (netip.Addr, error) {
	_, src, err := g.nic.Routes().Source(local, bth.GIDFrom(remote.WithZone("")))
	return src.Addr(), err
}

// Route finds the route to a peer or multicast group (rdma_resolve_addr and
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

// sourcePort returns the address and port of a connection's own end. If p has no port, it
// chooses one.
func (g *Agent) sourcePort(r *Route, p netip.AddrPort) netip.AddrPort {
	port := p.Port()
	if port == 0 {
		port = g.EphemeralPort()
	}
	return netip.AddrPortFrom(r.Local, port)
}

// EphemeralPort chooses a source port from Linux's range. It returns every port of the device
// before it repeats one, because a listener may distinguish the requests of a host for UD
// queue pairs by the port only. The start and the step of the sequence are random.
func (g *Agent) EphemeralPort() uint16 {
	p := &g.ports
	i := (uint64(p.start) + p.drawn.Add(1)*uint64(p.step)) % uint64(p.count)
	return uint16(minPort + p.residue + p.modulus*uint32(i))
}

// HasPort reports whether EphemeralPort may return port.
func (g *Agent) HasPort(port uint16) bool {
	p, i := &g.ports, uint32(port)-minPort
	return port >= minPort && i < portRange && i%p.modulus == p.residue
}

// The range of ephemeral ports of Linux (ip_local_port_range).
const (
	minPort   = 32768
	portRange = 60999 - minPort + 1
)

// portClass are the ports of the range whose offset from the first port is residue modulo
// modulus.
type portClass struct{ residue, modulus uint32 }

// ports is a sequence of all ports of a class.
type ports struct {
	portClass
	count       uint32 // ports in the class
	start, step uint32 // step and count have no common divisor
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

// Listener receives requests for a service.
type Listener struct {
	agent    *Agent
	listener *cm.Listener
	service  cm.ServiceID
	handler  ListenHandler

	// Guarded by the first shard.
	handshakes int // connections that peers have begun and not yet confirmed
	closed     bool
}

// ListenHandler receives the requests of a listener. The agent rejects
// requests for which it has no function.
type ListenHandler struct {
	Conn    func(*Conn, cm.Event)    // a peer requests a connection; call Conn.Handle
	Inquiry func(*Inquiry, cm.Event) // a peer requests a UD queue pair
	Gone    func(error)              // there will be no more requests; see [Handler]
}

// Listen starts a listener. It fails with EADDRINUSE if another listener of the
// device could receive the same requests, or if another process listens for the
// service.
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

// Close stops the listener and rejects requests that the handler has not
// received.
func (l *Listener) Close() {
	busy := false
	l.agent.do(func(now mono.Time) { // on an error the device is closed, and has no claims
		l.listener.Close(now)
		delete(l.agent.listeners, l)
		l.closed, busy = true, l.handshakes > 0
	})
	if !busy {
		l.agent.dropClaim(l.service)
	}
}

// deliver passes a request to the handler. No lock is held.
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

// Watch registers f until stop is called. The agent calls f without a lock: with
// ErrClosed when the device is closed, with ErrNoDevice when its interface was
// removed, and with nil when its addresses have changed. f must not wait.
func (g *Agent) Watch(f func(error)) (stop func()) { return g.watchers.add(f) }

// AddrsChanged calls the functions of Watch after a change of the device's addresses.
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
