package cm

import (
	"net/netip"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mono"
)

// ConnectParam has the parameters of a connection: struct rdma_conn_param, the
// resolved route, and the QP. Where a default is given, zero means the default.
type ConnectParam struct {
	// ServiceID is the service of the peer, see [Service]. Required.
	ServiceID ServiceID
	// Local and Remote are the addresses of both the MADs and the QPs. Required.
	Local, Remote bth.GID
	// Src and Dst go into the RDMA-IP header: Src with the source port, Dst without
	// the port. Leave Dst invalid for a connection without the header (AF_IB).
	Src, Dst netip.AddrPort

	QPN       bth.QPN   // of this side's QP
	Transport Transport // RC, UC, or Extended for XRC: QPN is that of an initiator
	SRQ       bool      // the QP uses an SRQ

	ResponderResources uint8 // incoming RDMA READs and atomics at a time: max_dest_rd_atomic
	InitiatorDepth     uint8 // outgoing ones: max_rd_atomic
	FlowControl        bool
	RetryCount         uint8 // at most 7; more means 7
	RNRRetryCount      uint8 // at most 7; more means 7; 7 is for ever

	MTU          bth.MTU  // path MTU. Required
	PKey         bth.PKey // 0: bth.DefaultPKey
	TrafficClass uint8
	HopLimit     uint8  // 0: DefaultHopLimit
	FlowLabel    uint32 // 0: computed from the ports as Linux does, see [FlowLabel]
	SL           uint8

	// Alternate, if set, is a second path for the peer to load with the
	// connection; [Conn.Alternate] tells whether it did. Linux does not load it on
	// RoCE: set it only for peers of this module.
	Alternate *AlternatePath

	// PacketLifeTime is half of a round trip, a code of 4.096 µs·2^n. It
	// determines the ACK timeout of both QPs. 0: DefaultPacketLifeTime.
	// RDMA_OPTION_ID_ACK_TIMEOUT t is PacketLifeTime t−1.
	PacketLifeTime uint8
	// ResponseTimeout is the time limit for answers of both sides, as a CM
	// timeout code. 0: DefaultResponseTimeout.
	ResponseTimeout uint8
	// MaxCMRetries is the number of times that each side repeats a message; at most
	// 15. 0: DefaultMaxCMRetries.
	MaxCMRetries uint8

	// Private data for the peer's application: REQUserLen bytes, or REQPrivateLen
	// without the RDMA-IP header.
	Private []byte
	// User becomes [Conn.User].
	User any
}

// FlowLabel computes the flow label of a connection as Linux's rdma_cm does.
func FlowLabel(srcPort, dstPort uint16) uint32 {
	return (uint32(srcPort)*31 + uint32(dstPort)) & 0xFFFFF
}

// Connect sends a REQ: rdma_connect after address and route are resolved. The
// outcome is one of the events ConnectResponse, Rejected and Unreachable.
func (m *Manager) Connect(now mono.Time, p ConnectParam) (*Conn, error) {
	const op = "connect"
	switch {
	case p.Local.IsZero() || p.Remote.IsZero():
		return nil, opError(op, nil, syscall.EINVAL, "Local and Remote must be set, have %v and %v", p.Local, p.Remote)
	case !p.MTU.Valid():
		return nil, opError(op, nil, syscall.EINVAL, "MTU %d is not a path MTU, set 1 (256) … 5 (4096)", uint8(p.MTU))
	case p.Transport != RC && p.Transport != UC && p.Transport != Extended:
		return nil, opError(op, nil, syscall.EINVAL, "transport %v cannot be connected, use RC, UC or Extended", p.Transport)
	case p.ResponseTimeout > MaxTimeoutCode || p.PacketLifeTime >= MaxTimeoutCode || p.MaxCMRetries > 15:
		return nil, opError(op, nil, syscall.EINVAL, "timeout %d, life time %d or retries %d too large",
			p.ResponseTimeout, p.PacketLifeTime, p.MaxCMRetries)
	}
	setDefault(&p.PKey, bth.DefaultPKey)
	setDefault(&p.HopLimit, DefaultHopLimit)
	setDefault(&p.PacketLifeTime, DefaultPacketLifeTime)
	setDefault(&p.ResponseTimeout, DefaultResponseTimeout)
	setDefault(&p.MaxCMRetries, DefaultMaxCMRetries)

	req := REQ{
		ServiceID:             p.ServiceID,
		LocalGUID:             m.cfg.GUID,
		QPN:                   p.QPN,
		ResponderResources:    p.ResponderResources,
		InitiatorDepth:        p.InitiatorDepth,
		RemoteResponseTimeout: p.ResponseTimeout,
		LocalResponseTimeout:  p.ResponseTimeout,
		MaxCMRetries:          p.MaxCMRetries,
		Transport:             p.Transport,
		FlowControl:           p.FlowControl,
		RetryCount:            min(p.RetryCount, 7),
		RNRRetryCount:         min(p.RNRRetryCount, 7),
		SRQ:                   p.SRQ,
		PKey:                  p.PKey,
		MTU:                   p.MTU,
	}
	if p.Transport == Extended {
		req.initiator()
		p.ResponderResources = 0
	}
	err := m.fillRequest(op, req.Private[:], p.Src, p.Dst, p.Private)
	if err != nil {
		return nil, err
	}
	if p.FlowLabel == 0 && p.Dst.IsValid() {
		p.FlowLabel = FlowLabel(p.Src.Port(), p.ServiceID.Port())
	}
	req.Primary = Path{
		LocalGID: p.Local, RemoteGID: p.Remote,
		FlowLabel: p.FlowLabel & 0xFFFFF, TrafficClass: p.TrafficClass, HopLimit: p.HopLimit,
		SL: p.SL & 0xF, AckTimeout: AckTimeout(m.cfg.AckDelay, p.PacketLifeTime),
	}
	req.Primary.route()
	if p.Alternate != nil {
		if req.Alternate, err = p.Alternate.path(op, &req.Primary, req.Primary.AckTimeout); err != nil {
			return nil, err
		}
	}

	c := &Conn{
		User: p.User, m: m, ends: ends{service: p.ServiceID, active: true},
		localID: m.newID(), from: p.Local, to: p.Remote, peer: p.Remote,
		transport: p.Transport,
		path:      req.Primary, pkey: p.PKey, mtu: p.MTU,
		localQPN: p.QPN, rqPSN: m.newPSN(),
		resources: p.ResponderResources, depth: p.InitiatorDepth,
		retryCount: min(p.RetryCount, 7), rnrRetry: min(p.RNRRetryCount, 7), flowControl: p.FlowControl,
		ackTimeout: p.PacketLifeTime + 1, maxRetries: p.MaxCMRetries,
		// The peer may use its whole response time, and messages cross the path twice.
		interval: 2*ResponseTimeout(p.PacketLifeTime) + ResponseTimeout(p.ResponseTimeout),
	}
	if p.Alternate != nil {
		c.alt = &alternate{path: req.Alternate}
	}
	if p.Dst.IsValid() {
		c.ip.Decode(req.Private[:])
	}
	c.tid = m.newTID(c.localID)
	req.TID, req.LocalID, req.StartingPSN = c.tid, c.localID, c.rqPSN
	m.byLocal[c.localID] = c
	c.setState(StateReqSent)
	c.sendRetried(now, &req)
	return c, nil
}

// fillRequest writes the private data of a request: the RDMA-IP header for src and dst, if dst is
// valid, and then the user's data. It fails if the Manager has reached its limit of requests.
func (m *Manager) fillRequest(op string, room []byte, src, dst netip.AddrPort, user []byte) error {
	if dst.IsValid() {
		h := IPHeader{SrcPort: src.Port(), Src: plain(src.Addr()), Dst: plain(dst.Addr())}
		if err := h.Put(room); err != nil {
			return opError(op, err, syscall.EINVAL, "Src and Dst")
		}
		room = room[IPHeaderLen:]
	}
	if err := checkPrivate(op, user, len(room)); err != nil {
		return err
	}
	copy(room, user)
	if m.full() {
		return opError(op, ErrLimit, syscall.ENOMEM, "%d of %d", m.Len(), m.cfg.MaxConns)
	}
	return nil
}

// plain removes the parts of an address that are not on the wire.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// ReadyToUse sends the RTU: rdma_establish. Call it on the active side after
// ConnectResponse and when the QP is in RTS. Private data up to RTUPrivateLen
// bytes. No event follows; the state is StateEstablished.
func (c *Conn) ReadyToUse(now mono.Time, private []byte) error {
	if c.state != StateRepRcvd && c.state != StateMRARepSent {
		return stateError("ready to use", c.state)
	}
	if err := checkPrivate("ready to use", private, RTUPrivateLen); err != nil {
		return err
	}
	c.answer = clone(private)
	c.setState(StateEstablished)
	c.m.send(c.from, c.to, c.rtu())
	return nil
}

func (c *Conn) rtu() *RTU {
	m := &RTU{Header: Header{TID: c.tid}, LocalID: c.localID, RemoteID: c.remoteID}
	copy(m.Private[:], c.answer)
	return m
}

// handleREP: the peer accepts. Linux: cm_rep_handler.
func (m *Manager) handleREP(r *rx, rep *REP) {
	c := m.lookup(r, rep.RemoteID, 0)
	if c == nil || c.state != StateReqSent && c.state != StateMRAReqRcvd {
		m.duplicateREP(r, rep)
		return
	}
	if rep.LocalID == 0 {
		m.counters.Unmatched++
		return
	}
	c.remoteID, c.remoteGUID, c.remoteQPN = rep.LocalID, rep.LocalGUID, rep.QPN
	if c.transport == Extended {
		c.remoteQPN = bth.QPN(rep.LocalEECN)
	}
	if enter(m.byRemote, c.remoteKey(), c) != nil {
		c.forgetPeer()
		m.counters.Duplicates[AttrREP-AttrREQ]++
		return
	}
	if old := enter(m.byQPN, c.qpnKey(), c); old != nil {
		leave(m.byRemote, c.remoteKey(), c)
		c.forgetPeer()
		m.rejectStale(r, old, OfREP, rep.Header, rep.LocalID, rep.RemoteID)
		return
	}
	m.timers.Set(&c.timer, c, mono.Never)
	if c.resources > 0 { // otherwise the peer has no right to READ, even if its REP claims one
		c.resources = rep.InitiatorDepth
	}
	c.depth = min(c.depth, rep.ResponderResources)
	c.sqPSN = rep.StartingPSN
	c.rnrRetry = rep.RNRRetryCount
	c.flowControl, c.srq = rep.FlowControl, rep.SRQ
	c.ackTimeout = min(AckTimeout(rep.TargetAckDelay, c.ackTimeout-1), max(c.ackTimeout, maxAckTimeout))
	if c.alt != nil {
		if rep.Failover == FailoverAccepted {
			c.alt.path.AckTimeout = c.ackTimeout
			c.alt.agree()
		} else {
			c.alt = nil
		}
	}
	c.setState(StateRepRcvd)
	c.event(Event{Kind: ConnectResponse, Private: clone(rep.Private[:])})
}

// forgetPeer clears the fields that were set from an unusable REP.
func (c *Conn) forgetPeer() { c.remoteID, c.remoteGUID, c.remoteQPN = 0, 0, 0 }

// duplicateREP answers a REP that was handled before: our RTU was lost, or the owner has not
// answered the event yet. Linux: cm_dup_rep_handler.
func (m *Manager) duplicateREP(r *rx, rep *REP) {
	c := m.lookup(r, rep.RemoteID, rep.LocalID)
	if c == nil {
		m.counters.Unmatched++
		return
	}
	m.counters.Duplicates[AttrREP-AttrREQ]++
	switch c.state {
	case StateEstablished:
		if c.active {
			m.reply(c.from, c.to, c.rtu())
		}
	case StateMRARepSent:
		m.reply(c.from, c.to, c.mra(OfREP))
	}
}

// mra returns an MRA that asks the peer to wait for the owner.
func (c *Conn) mra(of Subject) *MRA {
	return &MRA{Header: Header{TID: c.tid}, LocalID: c.localID, RemoteID: c.remoteID,
		Of: of, ServiceTimeout: mraTimeout}
}

// handleMRA: the peer asks for time. The next interval of the repetitions becomes as long as
// the peer asks for. Later intervals do not change. In Linux (cm_mra_handler) all further
// intervals have the new length.
func (m *Manager) handleMRA(r *rx, mra *MRA) {
	remote := mra.LocalID
	if mra.Of == OfREQ {
		remote = 0 // the peer's ID is not known before its REP
	}
	c := m.lookup(r, mra.RemoteID, remote)
	if c == nil {
		m.counters.Unmatched++
		return
	}
	switch {
	case c.state == StateReqSent && mra.Of == OfREQ:
		c.setState(StateMRAReqRcvd)
	case c.state == StateRepSent && mra.Of == OfREP:
		c.setState(StateMRARepRcvd)
	case c.alt != nil && c.alt.lap == lapSent && mra.Of == OfOther:
		c.alt.lap = lapMRARcvd
	default:
		m.counters.Duplicates[AttrMRA-AttrREQ]++
		return
	}
	wait := m.mraWait(mra, c)
	if c.state == StateMRARepRcvd {
		c.until = r.now.Add(wait + maxREPPause)
	}
	m.timers.Set(&c.timer, c, r.now.Add(wait))
}
