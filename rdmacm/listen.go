package rdmacm

import (
	"cmp"
	"context"
	"net/netip"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/gsi"
	"github.com/goroce/roce/internal/inside"
)

// DefaultBacklog is the backlog if Listen gets 0, as in ucma.
const DefaultBacklog = cm.DefaultBacklog

// Listen receives requests at the address of the ID, on every device if the
// address is a wildcard (rdma_listen); an ID without an address gets "0.0.0.0" and
// a port. Each request is a ConnectRequest with a new ID, for the program to
// accept or reject. At most backlog requests wait for this, 0: DefaultBacklog;
// peers repeat further ones.
//
// It fails with EINVAL if the ID already listens, and with EADDRINUSE or
// EADDRNOTAVAIL, as Bind does, if another listener has the port.
func (id *ID) Listen(backlog int) error {
	const op = "listen"
	id.op.Lock()
	defer id.op.Unlock()
	if id.snapshot().state == idle {
		if err := id.Bind(netip.AddrPortFrom(netip.IPv4Unspecified(), 0)); err != nil {
			return err
		}
	}
	if err := id.transition(op, addrBound, listening); err != nil {
		return err
	}
	s := id.snapshot()
	err := id.host.listen(s.binding)
	if err == nil {
		devices := id.host.devices
		if s.dev != nil {
			devices = []*roce.Device{s.dev}
		}
		err = id.listenOn(devices, s.local, s.opts.afOnly, backlog)
	}
	if err != nil {
		id.host.update(func() { s.binding.listening = false })
		id.transition(op, listening, addrBound)
		return id.named(op, err)
	}
	id.listens.Store(uint32(s.local.Port()))
	return nil
}

func (id *ID) listenOn(devices []*roce.Device, at netip.AddrPort, only bool, backlog int) error {
	var made []*gsi.Listener
	xrc := id.QPType() == roce.XRCRecv
	for _, d := range devices {
		l, err := agentOf(d).Listen(cm.ListenParam{ServiceID: cm.Service(id.ps, at.Port()), Addr: at.Addr(), V6Only: only, XRC: xrc,
			Backlog: cmp.Or(max(backlog, 0), DefaultBacklog)}, gsi.ListenHandler{
			Conn:    func(c *gsi.Conn, ev cm.Event) { id.connRequest(d, c, ev) },
			Inquiry: func(q *gsi.Inquiry, ev cm.Event) { id.udRequest(d, q, ev) },
		})
		if err != nil {
			for _, l := range made {
				l.Close()
			}
			return err
		}
		made = append(made, l)
	}
	id.locked(func() { id.listeners = made })
	return nil
}

// child makes the ID of a request. The ID uses the channel of the listener, or
// its own if the listener is synchronous.
func (id *ID) child(d *roce.Device, t roce.QPType, local, remote netip.AddrPort) (*ID, error) {
	c := id.host.newID(id.Channel(), id.ps, t, id.Context)
	c.opts.onAlternate = id.snapshot().opts.onAlternate
	c.state, c.dev, c.local, c.remote, c.listenID = connect, d, local, remote, id
	return c, id.host.enter(c)
}

// offerRequest delivers a request. It returns false if the listener is closed.
func (id *ID) offerRequest(ev *Event) bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state != listening {
		return false
	}
	id.channel.push(ev)
	return true
}

// withdraw is called for a request that has ended. If the program has not taken the request,
// withdraw destroys its ID and returns true. Otherwise it returns false. Without withdraw,
// peers could make any number of IDs while the program takes no events. The caller holds no
// lock.
func (id *ID) withdraw() bool {
	id.mu.Lock()
	l := id.listenID
	if l != nil {
		id.listenID, id.withdrawn = nil, true
	}
	id.mu.Unlock()
	if l == nil {
		return false
	}
	l.snapshot().channel.take(func(ev *Event) bool { return ev.ID == id })
	id.Destroy()
	return true
}

// connRequest handles a connection request of a peer.
func (id *ID) connRequest(d *roce.Device, conn *gsi.Conn, ev cm.Event) {
	o := conn.Offer()
	t := roce.RC
	switch o.Transport {
	case cm.UC:
		t = roce.UC
	case cm.Extended:
		t = roce.XRCRecv
	}
	c, err := id.child(d, t, conn.Info().LocalAddr(), conn.Info().RemoteAddr())
	if err != nil {
		conn.Destroy()
		return
	}
	c.conn, c.offer = conn, offered(o, ev.Private)
	conn.Handle(gsi.Handler{Event: c.connEvent, Alternate: c.mayLoad})
	if !id.offerRequest(&Event{Type: ConnectRequest, ID: c, ListenID: id, Conn: c.offer}) {
		c.Destroy()
	}
}

// udRequest handles a peer's request for a UD queue pair.
func (id *ID) udRequest(d *roce.Device, q *gsi.Inquiry, ev cm.Event) {
	c, err := id.child(d, roce.UD, q.Info().LocalAddr(), q.Info().RemoteAddr())
	if err != nil {
		q.Reject(cm.SIDRReject, nil)
		return
	}
	c.inquiry = q
	q.OnOver(func() { c.withdraw() })
	if !id.offerRequest(&Event{Type: ConnectRequest, ID: c, ListenID: id, UD: &UDParam{PrivateData: ev.Private}}) {
		c.Destroy()
	}
}

// GetRequest waits for a request at a synchronous listener (rdma_get_request) and
// returns its ID, whose [ID.Event] is the request. If [Host.CreateEP] made the
// listener with a queue pair configuration, the ID has a queue pair. It fails
// with EINVAL if the listener is not synchronous.
func (id *ID) GetRequest(ctx context.Context) (*ID, error) {
	const op = "get request"
	s := id.snapshot()
	if !s.sync || s.state != listening {
		return nil, id.fail(op, syscall.EINVAL, "the ID does not listen synchronously, state %v", s.state)
	}
	for {
		ev, err := id.next(ctx, s.channel)
		switch {
		case err != nil:
			return nil, err
		case ev.Err != nil:
			return nil, ev.Err
		case ev.Type != ConnectRequest:
			continue
		}
		c := ev.ID
		c.locked(func() { c.event = ev })
		if config := s.epConfig; config != nil && config.qp != nil {
			if err := c.CreateQP(config.pd, *config.qp); err != nil {
				c.Destroy()
				return nil, err
			}
		}
		return c, nil
	}
}

// Accept accepts a connection request, or answers with a UD queue pair (rdma_accept). It
// moves the queue pair of a connection to RTS before it sends the REP. The zero ConnParam
// grants the peer's proposal as far as the device can. It fails with EINVAL for more than
// the device supports.
//
// The event of a connection is Established; Rejected, Unreachable or Disconnected
// if the peer has given up or disconnected. A UD ID gets no event.
//
// Accept fails with EINVAL for an ID without a request or with an answered one,
// and with too much private data; then the request stays open.
func (id *ID) Accept(ctx context.Context, p ConnParam) error {
	const op = "accept"
	s := id.snapshot()
	conn, inquiry, offer, q := s.conn, s.inquiry, s.offer, s.queues.qp
	if s.state != connect || offer == nil && inquiry == nil {
		return id.fail(op, syscall.EINVAL, "the ID is not an open request, state %v", s.state)
	}
	if q == nil && p.QPN == 0 {
		return id.fail(op, syscall.EINVAL, "the ID has no queue pair, and the parameters name none")
	}
	if inquiry != nil {
		if q != nil {
			return id.named(op, inquiry.Accept(inside.QP(q), p.PrivateData))
		}
		return id.named(op, inquiry.AcceptQPN(p.QPN, UDPQKey, p.PrivateData))
	}
	proposed := conn.Offer()
	if err := inside.CompleteParam(&p, &proposed); err != nil {
		return id.named(op, err)
	}
	if len(p.PrivateData) > cm.REPPrivateLen {
		return id.fail(op, syscall.EINVAL, "%d bytes of private data, at most %d", len(p.PrivateData), cm.REPPrivateLen)
	}
	ap := cm.AcceptParam{QPN: p.QPN, SRQ: p.SRQ, FlowControl: p.FlowControl, RNRRetryCount: retries(p.RNRRetryCount), Private: p.PrivateData,
		ResponderResources: uint8(p.ResponderResources), InitiatorDepth: uint8(p.InitiatorDepth)}
	if q != nil {
		conn.SetQP(inside.QP(q))
	}
	ap.Failover = conn.AlternateOffer(ctx)
	if q != nil {
		ap.QPN, ap.SRQ = q.Num(), q.SRQ() != nil
		attr, err := conn.AcceptAttr(ap)
		if err != nil {
			return id.named(op, err)
		}
		attr.Timeout = cmp.Or(s.opts.ackTimeout, attr.Timeout)
		if err := conn.ConnectQP(ctx, inside.QP(q), attr, lateAccess, p.MinRNRTimer, p.FlushICRCQuirk); err != nil {
			conn.Flush()
			return id.named(op, err)
		}
	}
	if err := conn.Accept(ap); err != nil {
		conn.Flush()
		return id.named(op, err)
	}
	return id.complete(ctx, Established, Rejected, Unreachable, Disconnected)
}

// Reject refuses a request (rdma_reject), or on the active side the peer's answer,
// with up to 148 bytes for the peer's application, 136 for UD. With more bytes it
// fails with EINVAL, and the request stays open. No event follows: destroy the ID.
func (id *ID) Reject(private []byte) error { return id.RejectFor(cm.RejectConsumer, private) }

// RejectFor is Reject with a reason for the peer. A peer that requests a UD queue pair does not get
// the reason.
func (id *ID) RejectFor(reason cm.RejectReason, private []byte) error {
	if inquiry := id.snapshot().inquiry; inquiry != nil {
		return id.named("reject", inquiry.Reject(cm.SIDRReject, private))
	}
	conn, _, err := id.connection("reject")
	if err != nil {
		return err
	}
	return id.named("reject", conn.Reject(reason, private))
}
