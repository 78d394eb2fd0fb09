package roce

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/mono"
)

// CM is the connection manager of a device, one message at a time: package cm
// with a lock, addresses and queue pairs. [Device.Dial], [Device.Listen],
// [Device.ListenUD] and [Device.ResolveUD] are made of it, and so is package
// rdmacm; programs use those.
//
// Its objects tell what happens by handlers. These are called without a lock,
// one at a time and in order, on a goroutine that has other work to do: a
// handler must not wait. It may call anything here.
type CM struct{ dev *Device }

// CM returns the connection manager.
func (d *Device) CM() CM { return CM{d} }

// CMHandler takes what happens to a connection, a lookup or a request.
type CMHandler struct {
	// Event is called for every event of the connection manager. Then the queue
	// pair of a connection that is over is moved to ERR.
	Event func(cm.Event)

	// Alternate is asked, on any goroutine, when the peer proposes an alternate path,
	// with the connection request or later; APLoaded takes it, see [AnyAlternate]. Nil:
	// no path is taken.
	Alternate func(cm.Path) cm.APStatus

	// Gone says that there will be no more events: the device is closed
	// (ErrClosed) or its interface was removed (ErrNoDevice). It may be called
	// while Event is.
	Gone func(error)
}

func (h *CMHandler) event(ev cm.Event) {
	if h.Event != nil {
		h.Event(ev)
	}
}

func (h *CMHandler) gone(err error) {
	if h.Gone != nil {
		h.Gone(err)
	}
}

// Route is the way from an address of the device to a peer.
type Route struct {
	Local, Remote netip.Addr
	AHAttr        // for queue pairs; without a flow label
	MTU           MTU

	dev   *Device
	local bth.GID
	path  *frame.Path // of QP 1
}

// Device returns the device that the route begins at.
func (r *Route) Device() *Device { return r.dev }

// Source returns the address of the device to reach remote from: local, if it is
// valid, otherwise the first that fits. EADDRNOTAVAIL when local is not the
// device's, ENETUNREACH when none fits.
func (m CM) Source(local, remote netip.Addr) (netip.Addr, error) {
	_, g, err := m.dev.source(local, bth.GIDFrom(remote.WithZone("")))
	return g.Addr(), err
}

// Route finds the way to a peer or multicast group (rdma_resolve_addr and
// rdma_resolve_route). It may wait for the neighbour's answer; see
// [Resolver] for the errors, and [CM.Source].
func (m CM) Route(ctx context.Context, local, remote netip.Addr, trafficClass uint8) (*Route, error) {
	d := m.dev
	if d.closing.Load() {
		return nil, ErrClosed
	}
	to := bth.GIDFrom(remote.WithZone(""))
	index, from, err := d.source(local, to)
	if err != nil {
		return nil, err
	}
	attr := AHAttr{DGID: to, SGIDIndex: index, TrafficClass: trafficClass, Port: 1}
	path, err := d.resolve(ctx, attr, frame.HashPort(bth.QPNGSI))
	if err != nil {
		return nil, err
	}
	mtu, ok := bth.PathMTU(d.mtu())
	if !ok {
		return nil, fail("route", syscall.EINVAL, "an interface MTU of %d is too small", d.mtu())
	}
	return &Route{Local: from.Addr(), Remote: to.Addr(), AHAttr: attr, MTU: mtu, dev: d, local: from, path: path}, nil
}

func (r *Route) key() pathKey { return pathKey{r.local, r.DGID} }

func (d *Device) sourcePort(r *Route, p netip.AddrPort) netip.AddrPort {
	port := p.Port()
	if port == 0 {
		port = d.ephemeralPort()
	}
	return netip.AddrPortFrom(r.Local, port)
}

// ephemeralPort picks a source port of the range Linux uses. Two connections
// may share one: the communication IDs tell them apart.
func (d *Device) ephemeralPort() uint16 { return uint16(32768 + d.rnd()%(60999-32768+1)) }

// CMListener takes requests for a service.
type CMListener struct {
	dev      *Device
	listener *cm.Listener
	handler  CMListenHandler
}

// CMListenHandler takes the requests of a listener. Those for which it has no
// function are rejected.
type CMListenHandler struct {
	Conn    func(*CMConn, cm.Event)    // a peer wants to connect; call CMConn.Handle
	Inquiry func(*CMInquiry, cm.Event) // a peer wants a UD queue pair
	Gone    func(error)                // there will be no more; see [CMHandler]
}

// Listen begins to take requests. EADDRINUSE when another listener of the device
// could take the same.
func (m CM) Listen(p cm.ListenParam, h CMListenHandler) (*CMListener, error) {
	d := m.dev
	l := &CMListener{dev: d, handler: h}
	p.User = l
	var err error
	closed := d.gsi.do(func(mono.Time) {
		if err = d.present(); err != nil {
			return
		}
		if l.listener, err = d.gsi.manager.Listen(p); err == nil {
			d.gsi.listeners[l] = struct{}{}
		}
	})
	if err = cmp.Or(closed, err); err != nil {
		return nil, err
	}
	return l, nil
}

// Close takes no more requests and rejects those the handler has not seen.
func (l *CMListener) Close() {
	l.dev.gsi.do(func(now mono.Time) {
		l.listener.Close(now)
		delete(l.dev.gsi.listeners, l)
	})
}

// offer delivers a request. No lock is held.
func (l *CMListener) offer(ev cm.Event) {
	switch {
	case ev.Inquiry != nil && l.handler.Inquiry != nil:
		l.handler.Inquiry(ev.Inquiry.User.(*CMInquiry), ev)
	case ev.Inquiry != nil:
		ev.Inquiry.User.(*CMInquiry).Reject(cm.SIDRReject, nil)
	case ev.Conn.User.(*CMConn).Offer().MTU > bth.ActiveMTU(l.dev.mtu()):
		ev.Conn.User.(*CMConn).Reject(cm.RejectInvalidMTU, nil)
	case l.handler.Conn != nil:
		l.handler.Conn(ev.Conn.User.(*CMConn), ev)
	default:
		ev.Conn.User.(*CMConn).Destroy()
	}
}

// Await waits until ready says so; it is asked whenever signal yields a token.
// On a polled device that is when the work is done. It fails with the context's
// error, or with ErrClosed when the device is closed.
func (m CM) Await(ctx context.Context, signal <-chan struct{}, ready func() bool) error {
	return m.dev.wait(ctx, signal, nil, ready)
}

// Polled reports whether the device is driven by those who wait.
func (m CM) Polled() bool { return m.dev.polled }

// Nudge makes those look who wait in Await.
func (m CM) Nudge() { m.dev.nudge() }

// Watch calls f, without a lock, when the device is closed (ErrClosed), when its
// interface was removed (ErrNoDevice), and with nil when its addresses have
// changed, until stop is called. f must not wait.
func (m CM) Watch(f func(error)) (stop func()) { return m.dev.watchers.add(f) }

// watchers are told what becomes of the device.
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

func (w *watchers) tell(err error) {
	w.mu.Lock()
	list := slices.Clone(w.list)
	w.mu.Unlock()
	for _, f := range list {
		(*f)(err)
	}
}

// asRefusal turns an event that ends a handshake into an error, nil for others.
func asRefusal(ev cm.Event) error {
	switch ev.Kind {
	case cm.Rejected:
		return &RejectError{ev.Reason, ev.Private}
	case cm.Unreachable:
		return ev.Err
	}
	return nil
}

// isTimeout reports whether a peer did not answer.
func isTimeout(err error) bool { return errors.Is(err, syscall.ETIMEDOUT) }
