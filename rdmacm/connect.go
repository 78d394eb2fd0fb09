package rdmacm

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/gsi"
	"github.com/goroce/roce/internal/inside"
)

// ConnParam is struct rdma_conn_param, for [ID.Connect] and [ID.Accept]. Private data
// has at most 56 bytes for Connect, 180 for UD; 196 for Accept, 136 for UD. Connect
// finds the route of an alternate path; for this it may wait for a neighbour even in
// asynchronous mode.
type ConnParam = roce.ConnParam

// retries limits a number of retries to 7, as Linux does.
func retries(n int) uint8 { return uint8(min(n, 7)) }

// service returns the service ID of the peer.
func (id *ID) service() cm.ServiceID { return cm.Service(id.ps, id.remote.Port()) }

// Connect requests a connection, or the peer's UD queue pair (rdma_connect).
// See [ConnParam] for its zero value.
//
// The event is Established; ConnectResponse if the ID has no queue pair and p names
// one; Rejected, Unreachable or ConnectError. Connect fails with EINVAL before
// RouteResolved, with too much private data, if the ID has no queue pair and p names
// none, and with more READs and atomics than the device supports.
func (id *ID) Connect(ctx context.Context, p ConnParam) error {
	const op = "connect"
	alternate, err := id.alternateRoute(ctx, op, p)
	if err != nil {
		return err
	}
	if err := id.connect(op, p, alternate); err != nil {
		return err
	}
	return id.complete(ctx, Established, ConnectResponse, Rejected, Unreachable, ConnectError)
}

func (id *ID) connect(op string, p ConnParam, alternate *gsi.Route) error {
	id.op.Lock()
	defer id.op.Unlock()
	id.mu.Lock()
	q, config := id.queues.qp, id.epConfig
	if q == nil && p.QPN == 0 && id.qpType != roce.UD {
		id.mu.Unlock()
		return id.fail(op, syscall.EINVAL, "the ID has no queue pair, and the parameters name none")
	}
	err := inside.CompleteParam(&p, nil)
	if err == nil {
		err = id.transitionLocked(op, routeResolved, connect)
	}
	if err != nil {
		id.mu.Unlock()
		return id.named(op, err)
	}
	if config != nil {
		p.PrivateData = slices.Concat(config.connect, p.PrivateData)
	}
	id.param = p
	route, src, dst, service, opts, typ := id.route, id.local, id.remote, id.service(), id.opts, id.qpType
	id.mu.Unlock()
	if typ == roce.UD {
		query, err := agentOf(route.dev).Resolve(route.Route, cm.ResolveParam{ServiceID: service, Src: src, Dst: dst, Private: p.PrivateData},
			gsi.Handler{Event: id.queryEvent})
		if err != nil {
			id.transition(op, connect, routeResolved)
			return id.named(op, err)
		}
		id.mu.Lock()
		id.query = query
		answered := id.answerCame
		id.mu.Unlock()
		if answered { // before Resolve returned
			query.Cancel()
		}
		return nil
	}
	cp := cm.ConnectParam{ServiceID: service, Src: src, Dst: dst, QPN: p.QPN, SRQ: p.SRQ, Transport: cm.RC,
		ResponderResources: uint8(p.ResponderResources), InitiatorDepth: uint8(p.InitiatorDepth),
		FlowControl: p.FlowControl, RetryCount: retries(p.RetryCount), RNRRetryCount: retries(p.RNRRetryCount), Private: p.PrivateData}
	switch typ {
	case roce.UC:
		cp.Transport = cm.UC
	case roce.XRCSend:
		cp.Transport = cm.Extended
	}
	if q != nil {
		cp.QPN, cp.SRQ = q.Num(), q.SRQ() != nil
	}
	if opts.ackTimeout > 1 {
		cp.PacketLifeTime = opts.ackTimeout - 1
	}
	request := func() error {
		conn := agentOf(route.dev).NewConn(gsi.Handler{Event: id.connEvent, Alternate: id.mayLoad})
		conn.SetQP(inside.QP(q))
		conn.ProposeAlternate(alternate)
		id.setConn(conn)
		return conn.Connect(route.Route, cp)
	}
	id.mu.Lock()
	id.redial = redial{request: request}
	if q == nil { // after a refusal the queue pair of an ID is in ERR
		id.redial.until = time.Now().Add(opts.redial)
	}
	id.mu.Unlock()
	if err := request(); err != nil {
		id.setConn(nil)
		id.transition(op, connect, routeResolved)
		return id.named(op, err)
	}
	return nil
}

// redial is the state of a connection request that the ID repeats while the peer has no listener.
// See [ID.SetRedial].
type redial struct {
	request func() error
	until   time.Time
}

// redialEvery is the time from a refusal to the next request.
const redialEvery = 10 * time.Millisecond

// again schedules the repetition of a connection request that the peer refused because it has no
// listener. It returns true if it does so, and false for another event or if the time of SetRedial
// has passed.
func (id *ID) again(ev cm.Event) bool {
	if ev.Kind != cm.Rejected || ev.Reason != cm.RejectInvalidServiceID {
		return false
	}
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state != connect || !time.Now().Before(id.redial.until) {
		return false
	}
	refused := id.conn
	time.AfterFunc(redialEvery, func() {
		id.op.Lock()
		defer id.op.Unlock()
		id.mu.Lock()
		gone, request := id.state != connect || id.conn != refused, id.redial.request
		id.mu.Unlock()
		if gone { // the program has given up
			return
		}
		if err := request(); err != nil {
			id.setConn(refused)
			id.translate(ev)
		}
	})
	return true
}

func (id *ID) setConn(c *gsi.Conn) {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.conn = c
}

// connEvent handles an event of the connection. The caller holds no lock. connEvent must not
// take a lock that is held during calls of the connection manager.
func (id *ID) connEvent(ev cm.Event) {
	if (ev.Kind == cm.Rejected || ev.Kind == cm.Unreachable) && id.withdraw() || id.again(ev) {
		return
	}
	if conn := id.translate(ev); conn != nil {
		conn.Disconnect(nil)
	}
}

// translate posts the event of rdma_cm for an event of the connection. If both sides disconnect
// at once, the program does not answer the peer's DREQ: translate returns the connection, and
// the caller sends the DREP. Otherwise it returns nil.
func (id *ID) translate(ev cm.Event) (confirm *gsi.Conn) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if ev.Kind == cm.DisconnectRequest && id.leaving {
		confirm = id.conn
	}
	out := &Event{ID: id, Conn: &ConnParam{PrivateData: ev.Private}}
	switch ev.Kind {
	case cm.AlternateRequest, cm.AlternateResponse: // rdma_cm has no events for them
		return nil
	case cm.ConnectResponse:
		out.Type = ConnectResponse
		out.Conn = offered(ev.Conn.Offer(), ev.Private)
	case cm.Established:
		out.Type = Established
	case cm.Rejected:
		out.Type, out.Status, out.Err = Rejected, int(ev.Reason), &roce.RejectError{Reason: ev.Reason, PrivateData: ev.Private}
	case cm.Unreachable:
		out.Type, out.Status, out.Err = Unreachable, -int(syscall.ETIMEDOUT), ev.Err
	case cm.DisconnectRequest, cm.Disconnected:
		if id.state != connect { // the program already has the event
			return confirm
		}
		id.state = disconnect
		out.Type = Disconnected
		if ev.Kind == cm.DisconnectRequest && !id.leaving && id.queues.qp == nil {
			out.unread = id.host.unreadOf(id.dev, ev.Conn.LocalQPN())
		}
		if ev.Err != nil {
			out.Status, out.Err = -int(syscall.ETIMEDOUT), ev.Err
		}
	case cm.TimewaitExit:
		if id.state == disconnect {
			id.postLocked(&Event{Type: TimewaitExit, ID: id})
		}
		return nil
	}
	if id.state == connect || out.Type == Disconnected {
		id.postLocked(out)
	}
	return confirm
}

// prepare does the work of librdmacm before it returns an event to the program. It
// reports whether the program gets the event.
func (id *ID) prepare(ctx context.Context, ev *Event) bool {
	id.mu.Lock()
	gone, failedBefore, q := id.state == destroying || id.withdrawn, id.connectErr, id.queues.qp
	if ev.Type == ConnectRequest {
		id.listenID = nil // from now on the program owns the ID
	}
	id.mu.Unlock()
	switch {
	case gone:
		return false
	case failedBefore && (ev.Type == Rejected || ev.Type == Disconnected):
		return false
	case ev.group != nil:
		ev.group.joined(ev)
	case ev.Type == ConnectResponse && q != nil:
		err := id.establish(ctx, q)
		if err == nil {
			ev.Type = Established
			break
		}
		if ctx.Err() != nil {
			return false
		}
		id.locked(func() { id.connectErr = true })
		ev.Type, ev.Status, ev.Err = ConnectError, -int(errnoOf(err)), err
	}
	return true
}

// establish connects the queue pair, if there is one, and sends the RTU.
func (id *ID) establish(ctx context.Context, q *roce.QP) error {
	s := id.snapshot()
	conn := s.conn
	if conn == nil {
		return id.fail("establish", syscall.EINVAL, "there is no connection")
	}
	if q != nil {
		attr, err := conn.QPAttr()
		if err != nil {
			return id.named("establish", err)
		}
		attr.Timeout = cmp.Or(s.opts.ackTimeout, attr.Timeout)
		if err := conn.ConnectQP(ctx, inside.QP(q), attr, lateAccess, s.param.MinRNRTimer, s.param.FlushICRCQuirk); err != nil {
			if ctx.Err() == nil {
				conn.Flush()
			}
			return id.named("establish", err)
		}
	}
	return id.named("establish", conn.ReadyToUse(nil))
}

// Establish tells the peer that the queue pair is ready (rdma_establish), after
// ConnectResponse, if the queue pair is the program's. The program has moved
// the queue pair to RTS; see [ID.InitQPAttr]. It fails with EINVAL in another
// state, or if the ID has its own queue pair.
func (id *ID) Establish(ctx context.Context) error {
	if id.QP() != nil {
		return id.fail("establish", syscall.EINVAL, "the ID has a queue pair, which Channel.Next connects")
	}
	return id.establish(ctx, nil)
}

// connection returns the connection, or EINVAL if there is none.
func (id *ID) connection(op string) (*gsi.Conn, *roce.QP, error) {
	id.op.Lock()
	defer id.op.Unlock()
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.conn == nil || id.state == destroying {
		return nil, nil, id.fail(op, syscall.EINVAL, "no connection in state %v", id.state)
	}
	return id.conn, id.queues.qp, nil
}

// Notify establishes the connection because data has arrived (rdma_notify with
// IBV_EVENT_COMM_EST). Programs rarely need it, because data on the ID's queue
// pair has the same effect. It fails with EISCONN if the connection is already
// established, and with EINVAL for other events and in other states.
func (id *ID) Notify(t roce.EventType) error {
	const op = "notify"
	conn, _, err := id.connection(op)
	if err != nil {
		return err
	}
	if t != roce.EventCommEst {
		return id.fail(op, syscall.EINVAL, "the connection manager has no use for %v", t)
	}
	if conn.State() == cm.StateEstablished {
		return id.fail(op, syscall.EISCONN, "the connection is established")
	}
	return id.named(op, conn.CommEstablished())
}

// Disconnect ends the connection, or confirms that the peer has ended it
// (rdma_disconnect): it moves the queue pair to ERR, which flushes posted work requests,
// and repeats the DREQ until the peer answers. The event is Disconnected, once.
// Disconnect does nothing if the connection has ended. It fails with EINVAL without a
// connection, and before the connection is established.
func (id *ID) Disconnect(ctx context.Context) error {
	const op = "disconnect"
	conn, _, err := id.connection(op)
	if err != nil {
		return err
	}
	switch conn.State() {
	case cm.StateReqSent, cm.StateMRAReqRcvd, cm.StateRepRcvd, cm.StateMRARepSent, cm.StateReqRcvd, cm.StateMRAReqSent:
		return id.fail(op, syscall.EINVAL, "the connection is not established; Reject or Destroy")
	}
	id.locked(func() { id.leaving = true })
	conn.Flush()
	if err := conn.Disconnect(nil); err != nil && !errors.Is(err, syscall.EINVAL) { // EINVAL: the connection has ended
		return id.named(op, err)
	}
	if s := id.snapshot(); s.state == disconnect && s.event != nil && s.event.Type == Disconnected {
		return nil
	}
	return id.complete(ctx, Disconnected, Rejected, Unreachable)
}

// queryEvent handles the answer to a UD lookup.
func (id *ID) queryEvent(ev cm.Event) {
	id.mu.Lock()
	out := &Event{ID: id, UD: &UDParam{PrivateData: ev.Private}}
	switch {
	case ev.Kind == cm.Unreachable:
		out.Type, out.Status, out.Err = Unreachable, -int(syscall.ETIMEDOUT), ev.Err
	case ev.Status != cm.SIDRValid:
		out.Type, out.Status, out.Err = Unreachable, int(ev.Status), &roce.ResolveError{Status: ev.Status, PrivateData: ev.Private}
	case id.queues.qp != nil && ev.QKey != UDPQKey:
		// The queue pair would drop the answers of the peer.
		out = failed(AddrError, id, id.fail("connect", syscall.EINVAL, "the peer's Q_Key is %v, that of the queue pair %v", ev.QKey, UDPQKey))
	default:
		out.Type = Established
		out.UD.AHAttr, out.UD.QPN, out.UD.QKey = roce.AHAttr(id.route.Way), ev.QPN, ev.QKey
		out.UD.AHAttr.FlowLabel = cm.FlowLabel(id.local.Port(), id.remote.Port())
	}
	id.postLocked(out)
	id.answerCame = true
	q := id.query
	id.mu.Unlock()
	if q != nil { // if q is nil, Resolve has not returned yet
		q.Cancel()
	}
}
