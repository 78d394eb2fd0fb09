package cm

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mono"
)

// AcceptParam has the parameters for accepting a connection: struct
// rdma_conn_param and the QP.
type AcceptParam struct {
	QPN bth.QPN // of this side's QP
	SRQ bool    // the QP uses an SRQ

	// ResponderResources and InitiatorDepth are those of this side; see
	// [Conn.Offer] for those of the peer. The Manager limits InitiatorDepth to
	// the peer's offer.
	ResponderResources uint8
	InitiatorDepth     uint8
	FlowControl        bool
	RNRRetryCount      uint8 // for the peer; at most 7; more means 7

	// Failover is the answer to the alternate path that the peer proposes, if any,
	// see [Conn.Alternate]. FailoverAccepted: the QP has loaded the path.
	Failover Failover

	// Private data for the peer's application, up to REPPrivateLen bytes.
	Private []byte
}

// Accept sends the REP: rdma_accept. Call it on the passive side after
// ConnectRequest, when the QP is in RTS, because the first data may arrive
// before the RTU. The outcome is one of the events Established, Rejected,
// Unreachable and DisconnectRequest.
func (c *Conn) Accept(now mono.Time, p AcceptParam) error {
	if !c.state.pendingRequest() {
		return stateError("accept", c.state)
	}
	if err := checkPrivate("accept", p.Private, REPPrivateLen); err != nil {
		return err
	}
	c.localQPN = p.QPN
	c.resources, c.depth = p.ResponderResources, min(p.InitiatorDepth, c.depth)
	rep := REP{
		Header: Header{TID: c.tid}, LocalID: c.localID, RemoteID: c.remoteID,
		QPN: p.QPN, StartingPSN: c.rqPSN,
		ResponderResources: c.resources, InitiatorDepth: c.depth,
		TargetAckDelay: c.m.cfg.AckDelay, FlowControl: p.FlowControl,
		RNRRetryCount: min(p.RNRRetryCount, 7), SRQ: p.SRQ, LocalGUID: c.m.cfg.GUID,
	}
	if rep.Failover = c.failover; c.alt != nil {
		if rep.Failover = p.Failover; p.Failover == FailoverAccepted {
			c.alt.agree()
		}
	}
	if c.transport == Extended {
		c.depth = 0
		rep.target()
	}
	copy(rep.Private[:], p.Private)
	c.setState(StateRepSent)
	c.sendREP(now, &rep)
	return nil
}

// CommEstablished reports that the first packet has arrived on the QP of an
// accepted connection: rdma_notify with IBV_EVENT_COMM_EST. It replaces a lost or
// late RTU, and leads to the event Established. On an established connection it
// does nothing.
func (c *Conn) CommEstablished(now mono.Time) error {
	switch c.state {
	case StateRepSent, StateMRARepRcvd:
		c.established(nil)
	case StateEstablished:
	default:
		return stateError("communication established", c.state)
	}
	return nil
}

func (c *Conn) established(private []byte) {
	c.m.timers.Set(&c.timer, c, mono.Never)
	c.setState(StateEstablished)
	c.event(Event{Kind: Established, Private: private})
}

// handleREQ: a peer requests a connection. The order of the checks is Linux's:
// first whether the exchange is known, then the service, then the path, then
// the checks of rdma_cm. Linux: cm_req_handler, cm_match_req.
func (m *Manager) handleREQ(r *rx, req *REQ) {
	if req.LocalID == 0 {
		// An answer needs the ID of the peer.
		m.counters.Unmatched++
		return
	}
	if old := m.byRemote[remoteKey{req.LocalID, req.LocalGUID, r.from}]; old != nil {
		m.duplicateREQ(r, old)
		return
	}
	if old := m.byQPN[qpnKey{req.QPN, req.LocalGUID, r.from}]; old != nil {
		m.rejectStale(r, old, OfREQ, req.Header, req.LocalID, 0)
		return
	}
	if m.listeners[req.ServiceID] == nil {
		m.rejectREQ(r, req, RejectInvalidServiceID)
		return
	}
	// The queue pair will send to the GID in the REQ. It must be the source of the
	// REQ: otherwise a stranger could direct our packets to a third party.
	if !m.pkeyKnown(req.PKey) || req.Primary.LocalGID != r.from || !m.reachable(r.to, r.from) {
		m.rejectREQ(r, req, RejectInvalidGID)
		return
	}
	l, ip := m.match(r, req.ServiceID, req.Private[:])
	if l == nil || !req.connectable(l.xrc) {
		m.rejectREQ(r, req, RejectConsumer)
		return
	}
	if !req.MTU.Valid() {
		m.rejectREQ(r, req, RejectInvalidMTU)
		return
	}
	if m.admit(r, l) {
		m.newPassive(r, req, l, ip)
	}
}

// newPassive makes the connection for a valid REQ.
func (m *Manager) newPassive(r *rx, req *REQ, l *Listener, ip *IPHeader) {
	p := req.Primary
	c := &Conn{
		User: l.User, m: m, ends: ends{service: req.ServiceID}, listener: l,
		localID: m.newID(), remoteID: req.LocalID, remoteGUID: req.LocalGUID, tid: req.TID,
		from: r.to, to: r.from, peer: r.from,
		transport: req.Transport,
		path: Path{
			LocalGID: r.to, RemoteGID: p.LocalGID,
			FlowLabel: p.FlowLabel, TrafficClass: p.TrafficClass, HopLimit: p.HopLimit, SL: p.SL,
		},
		pkey: req.PKey, mtu: req.MTU,
		remoteQPN: req.QPN, sqPSN: req.StartingPSN, rqPSN: m.newPSN(),
		// Each side's initiator depth limits the responder resources of the other side.
		resources: req.InitiatorDepth, depth: req.ResponderResources,
		retryCount: req.RetryCount, rnrRetry: req.RNRRetryCount,
		flowControl: req.FlowControl, srq: req.SRQ,
		ackTimeout: clampAckTimeout(p.AckTimeout),
		interval:   peerInterval(req.LocalResponseTimeout),
		maxRetries: req.MaxCMRetries,
	}
	setDefault(&c.path.HopLimit, DefaultHopLimit)
	c.takeAlternate(r, req)
	private := req.Private[:]
	if ip != nil {
		c.ip = *ip
		private = private[IPHeaderLen:]
	}
	m.byLocal[c.localID] = c
	m.passive[SourceOf(c.peer)]++
	enter(m.byRemote, c.remoteKey(), c)
	enter(m.byQPN, c.qpnKey(), c)
	c.setState(StateReqRcvd)
	m.hold(c, &c.halfOpen, &c.request, l, r.from)
	m.timers.Set(&c.timer, c, r.now.Add(l.timeout))
	c.event(Event{Kind: ConnectRequest, Listener: l, Private: clone(private)})
}

// connectable reports whether rdma_cm makes connections of this transport in the port space of
// the service. xrc tells whether the listener accepts XRC.
func (m *REQ) connectable(xrc bool) bool {
	id := m.ServiceID
	switch {
	case xrc:
		return m.Transport == Extended && m.ExtTransport == ExtXRC && (!id.IsIP() || id.PortSpace() == PortSpaceIB)
	case m.Transport == RC:
		return !id.IsIP() || id.PortSpace() != PortSpaceUDP
	}
	return m.Transport == UC && (!id.IsIP() || id.PortSpace() == PortSpaceIB)
}

// duplicateREQ answers a REQ that was received before. It does not repeat a REP: the timer of
// the REP does. Linux: cm_dup_req_handler.
func (m *Manager) duplicateREQ(r *rx, c *Conn) {
	m.counters.Duplicates[0]++
	switch c.state {
	case StateMRAReqSent:
		c.askedToWait = true
		m.replyStranger(r, c.mra(OfREQ))
	case StateTimewait:
		m.replyStranger(r, c.rej(RejectStaleConn, nil))
	}
}

// rejectREQ refuses a REQ for which there is no connection.
func (m *Manager) rejectREQ(r *rx, req *REQ, reason RejectReason) {
	rej := REJ{Header: Header{TID: req.TID}, RemoteID: req.LocalID, Of: OfREQ, Reason: reason}
	if reason == RejectInvalidGID {
		// Tell the peer the right GID.
		rej.InfoLen = uint8(copy(rej.Info[:], r.to[:]))
	}
	m.replyStranger(r, &rej)
}

// rejectStale refuses a REQ or REP with the QPN of an existing connection, from the
// address of that connection: the peer must have lost the connection. It also ends
// the old connection. IBTA 12.9.8.3.1.
func (m *Manager) rejectStale(r *rx, old *Conn, of Subject, h Header, peer, own CommID) {
	m.replyStranger(r, &REJ{Header: Header{TID: h.TID}, LocalID: own, RemoteID: peer,
		Of: of, Reason: RejectStaleConn})
	if old.state == StateEstablished {
		old.sendDREQ(r.now, nil)
	}
}

// handleRTU: the active side is ready. Linux: cm_rtu_handler.
func (m *Manager) handleRTU(r *rx, rtu *RTU) {
	c := m.lookup(r, rtu.RemoteID, rtu.LocalID)
	switch {
	case c == nil:
		m.counters.Unmatched++
	case c.state == StateRepSent || c.state == StateMRARepRcvd:
		c.established(clone(rtu.Private[:]))
	default:
		m.counters.Duplicates[AttrRTU-AttrREQ]++
	}
}
