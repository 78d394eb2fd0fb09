package cm

import (
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/goroce/roce/mono"
)

// ListenParam selects the requests of a [Listener].
type ListenParam struct {
	// ServiceID is the service, see [Service]. Required.
	ServiceID ServiceID
	// Addr is the destination address that the RDMA-IP header must have. Invalid or
	// "::" means any address, "0.0.0.0" any IPv4 address.
	Addr netip.Addr
	// V6Only makes "::" mean IPv6 only: RDMA_OPTION_ID_AFONLY.
	V6Only bool
	// NoIPHeader is for services outside of rdma_cm and for AF_IB: requests have no
	// RDMA-IP header, all private data belongs to the user, and Addr is ignored.
	// Service IDs outside of rdma_cm imply it.
	NoIPHeader bool
	// XRC accepts requests of XRC initiators, for targets, instead of those of RC and
	// UC.
	XRC bool
	// Backlog bounds the requests that the owner has not answered. Further requests
	// evict others by the rule of Config.MaxHalfOpen, or are dropped; peers repeat
	// both. 0: DefaultBacklog.
	Backlog int
	// RequestTimeout bounds the time that a request waits for the owner. 0:
	// Config.RequestTimeout.
	RequestTimeout time.Duration
	// User becomes [Listener.User], and [Conn.User] of its connections.
	User any
}

// Listener receives the requests for a service: for connections
// (ConnectRequest) and for UD QPs (ServiceRequest).
type Listener struct {
	// User belongs to the owner; the Manager ignores it.
	User any

	m        *Manager
	service  ServiceID
	addr     netip.Addr // valid: one address
	v4, v6   bool       // accepted families if addr is not valid
	noHeader bool
	xrc      bool
	backlog  int
	timeout  time.Duration
	requests fairQueue // connections in ReqRcvd or MRAReqSent, inquiries
	closed   bool
}

// Listen makes a listener: rdma_listen. It fails with [ErrInUse] if a request
// could be for both this listener and an existing one.
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
	if slices.ContainsFunc(m.listeners[p.ServiceID], l.overlaps) {
		return nil, opError("listen", ErrInUse, syscall.EADDRINUSE, "%v on %v", p.ServiceID, p.Addr)
	}
	m.listeners[p.ServiceID] = append(m.listeners[p.ServiceID], l)
	return l, nil
}

// ServiceID returns the service of the listener.
func (l *Listener) ServiceID() ServiceID { return l.service }

// Pending returns the number of unanswered requests.
func (l *Listener) Pending() int { return l.requests.n }

// Close ends the listener. It rejects requests whose event the owner has not taken. The
// owner still answers the others.
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

// takes reports whether l accepts a request with this RDMA-IP header, nil if it has none. l is
// a listener that requires such headers.
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

// overlaps reports whether a request could be for both listeners.
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

// match finds the listener for a request to a service with listeners, and the
// RDMA-IP header of the request if the listener requires one. It makes the checks
// of rdma_cm that need no routing table: header and IP version, addresses, bound
// address. The owner may check the route at the event, and reject.
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
