package cm

import (
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/goroce/roce/mono"
)

// ListenParam says which requests a [Listener] takes.
type ListenParam struct {
	// ServiceID is the service, see [Service]. Required.
	ServiceID ServiceID
	// Addr is the address that the RDMA-IP header must name as destination. Invalid
	// or "::" takes any address, "0.0.0.0" any IPv4 address.
	Addr netip.Addr
	// V6Only makes "::" take IPv6 only: RDMA_OPTION_ID_AFONLY.
	V6Only bool
	// NoIPHeader is for services outside of rdma_cm and for AF_IB: no RDMA-IP header
	// is looked for, all private data is the user's, Addr is ignored. It is implied
	// for service IDs that are not rdma_cm's.
	NoIPHeader bool
	// XRC takes requests of XRC initiators, for targets, instead of those of RC and UC.
	XRC bool
	// Backlog bounds the requests that the owner has not answered. More take the place
	// of others as those beyond Config.MaxHalfOpen do, or are dropped; the peers of
	// both repeat theirs. 0: DefaultBacklog.
	Backlog int
	// RequestTimeout bounds how long a request waits for the owner. 0: as
	// Config.RequestTimeout says.
	RequestTimeout time.Duration
	// User becomes [Listener.User], and [Conn.User] of its connections.
	User any
}

// Listener takes the requests for a service, of connections (ConnectRequest) as
// well as of UD QPs (ServiceRequest).
type Listener struct {
	// User is the owner's; the Manager does not look at it.
	User any

	m        *Manager
	service  ServiceID
	addr     netip.Addr // valid: one address
	v4, v6   bool       // families taken when addr is not valid
	noHeader bool
	xrc      bool
	backlog  int
	timeout  time.Duration
	requests fairQueue // connections in ReqRcvd or MRAReqSent, inquiries
	closed   bool
}

// Listen begins to take requests: rdma_listen. Two listeners may share a service
// ID if no request could be for both; else it fails with [ErrInUse].
func (m *Manager) Listen(p ListenParam) (*Listener, error) {
	l := &Listener{User: p.User, m: m, service: p.ServiceID, backlog: p.Backlog, xrc: p.XRC,
		noHeader: p.NoIPHeader || !p.ServiceID.IsIP()}
	l.timeout = p.RequestTimeout
	setDefault(&l.backlog, DefaultBacklog)
	setDefault(&l.timeout, m.cfg.RequestTimeout)
	switch a := plain(p.Addr); {
	case l.noHeader:
	case !a.IsValid():
		l.v4, l.v6 = !p.V6Only, true
	case !a.IsUnspecified():
		l.addr = a
	case a.Is4():
		l.v4 = true
	default:
		l.v4, l.v6 = !p.V6Only, true
	}
	if p.ServiceID == 0 || l.backlog < 0 || l.timeout < 0 {
		return nil, opError("listen", nil, syscall.EINVAL, "service ID %v, backlog %d, request timeout %v", p.ServiceID, p.Backlog, p.RequestTimeout)
	}
	for _, other := range m.listeners[p.ServiceID] {
		if l.overlaps(other) {
			return nil, opError("listen", ErrInUse, syscall.EADDRINUSE, "%v on %v", p.ServiceID, p.Addr)
		}
	}
	m.listeners[p.ServiceID] = append(m.listeners[p.ServiceID], l)
	return l, nil
}

// ServiceID returns the service of the listener.
func (l *Listener) ServiceID() ServiceID { return l.service }

// Pending returns how many requests wait for their answer.
func (l *Listener) Pending() int { return l.requests.n }

// Close ends the listener. Requests whose event the owner has not taken are rejected. The
// owner answers the others.
func (l *Listener) Close(now mono.Time) {
	if l.closed {
		return
	}
	l.closed = true
	m := l.m
	rest := slices.DeleteFunc(m.listeners[l.service], func(o *Listener) bool { return o == l })
	m.listeners[l.service] = rest
	if len(rest) == 0 {
		delete(m.listeners, l.service)
	}
	for _, c := range m.byLocal {
		if c.listener == l && !c.delivered {
			c.Destroy(now)
		}
	}
	for _, q := range m.inquiries {
		if q.listener == l && !q.delivered {
			q.finish(SIDRREP{Status: SIDRReject})
		}
	}
}

// takes reports whether l takes a request with this RDMA-IP header, nil if it has none. l is a
// listener that wants such headers.
func (l *Listener) takes(ip *IPHeader) bool {
	switch {
	case ip == nil:
		return false
	case l.addr.IsValid():
		return l.addr == ip.Dst
	case ip.Dst.Is4():
		return l.v4
	}
	return l.v6
}

// overlaps reports whether a request could be for both.
func (l *Listener) overlaps(o *Listener) bool {
	if l.noHeader || o.noHeader {
		return l.noHeader && o.noHeader
	}
	if !l.addr.IsValid() {
		l, o = o, l
	}
	if l.addr.IsValid() {
		return o.takes(&IPHeader{Dst: l.addr})
	}
	return l.v4 && o.v4 || l.v6 && o.v6
}

// match finds the listener for a request to a service that has listeners, and the
// RDMA-IP header of the request if the listener wants one. These are the checks of
// rdma_cm that need no routing table: header and IP version, addresses, bound
// address. The owner may check the route when the event comes and reject.
func (m *Manager) match(r *rx, id ServiceID, private []byte) (*Listener, *IPHeader) {
	var ip *IPHeader
	if id.IsIP() {
		var h IPHeader
		if h.Decode(private) == nil && h.belongs(r.from, r.to) {
			ip = &h
		}
	}
	var raw *Listener
	for _, l := range m.listeners[id] {
		switch {
		case l.noHeader:
			raw = l
		case l.takes(ip):
			return l, ip
		}
	}
	return raw, nil
}
