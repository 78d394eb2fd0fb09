package cm

import (
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mono"
)

// AlternatePath is a second path of a connection, seen from this side. It has
// the P_Key, the MTU and the life time of the first path.
type AlternatePath struct {
	// Local and Remote are the addresses of the path, of one IP version. Required.
	Local, Remote bth.GID

	TrafficClass uint8
	HopLimit     uint8  // 0: DefaultHopLimit
	FlowLabel    uint32 // 0: that of the primary path
	SL           uint8
}

// alternate is the state of a connection's second path.
type alternate struct {
	path   Path // seen from here
	agreed bool // path is loaded at both ends, or will be at the end of the handshake
	lap    lapState
	offer  Path // of the LAP in progress

	// other is an address besides Conn.to that the peer may send MADs from: the other end of
	// the agreed path or, after a migration, the address that the peer has left.
	other bth.GID

	tid     uint64 // of our LAP in progress
	began   uint32 // number of our LAPs so far
	peerTID uint64 // of the LAP that the owner must answer, or has answered last
	peerLAP Path   // contents of that LAP
	answer  *APR   // to that LAP; nil before the answer
}

// lapState is the state of the exchange of LAP and APR. Linux: enum
// ib_cm_lap_state.
type lapState uint8

const (
	lapIdle    lapState = iota
	lapSent             // LAP is out
	lapMRARcvd          // the peer asked for more time
	lapRcvd             // AlternateRequest is queued for the owner
	lapMRASent          // the owner has the event and must answer by an APR
)

// waits reports whether we wait for the peer's APR.
func (s lapState) waits() bool { return s == lapSent || s == lapMRARcvd }

// path converts p to the Path in REQ and LAP, with the fields of the primary
// path.
func (p *AlternatePath) path(op string, primary *Path, ackTimeout uint8) (Path, error) {
	a := Path{LocalGID: p.Local, RemoteGID: p.Remote, TrafficClass: p.TrafficClass, HopLimit: p.HopLimit,
		FlowLabel: p.FlowLabel & 0xFFFFF, SL: p.SL & 0xF, AckTimeout: ackTimeout}
	setDefault(&a.HopLimit, DefaultHopLimit)
	setDefault(&a.FlowLabel, primary.FlowLabel)
	switch a.fault(primary) {
	case APInvalidGID:
		return a, opError(op, nil, syscall.EINVAL, "alternate path from %v to %v: set two addresses of one IP version",
			p.Local.Addr(), p.Remote.Addr())
	case APIsCurrent:
		return a, opError(op, nil, syscall.EINVAL, "the alternate path from %v to %v is the primary path",
			p.Local.Addr(), p.Remote.Addr())
	}
	a.route()
	return a, nil
}

// route sets the fields by which Linux recognizes a routed path without LIDs.
func (p *Path) route() {
	if p.HopLimit > 1 {
		p.LocalLID, p.RemoteLID = PermissiveLID, PermissiveLID
	} else {
		p.SubnetLocal = true
	}
}

// fault returns the reason why p cannot be the alternate of another path, or APLoaded
// if it can.
func (p *Path) fault(primary *Path) APStatus {
	switch {
	case p.LocalGID.IsZero() || p.RemoteGID.IsZero() || p.LocalGID.Is4() != p.RemoteGID.Is4():
		return APInvalidGID
	case p.LocalGID == primary.LocalGID && p.RemoteGID == primary.RemoteGID &&
		p.FlowLabel == primary.FlowLabel && p.TrafficClass == primary.TrafficClass:
		return APIsCurrent
	}
	return APLoaded
}

// present reports whether a REQ has this alternate path. Linux:
// cm_req_has_alt_path.
func (p *Path) present() bool { return p.LocalLID != 0 || !p.LocalGID.IsZero() }

// fromPeer returns a path of the peer's message as seen from this side.
func (p *Path) fromPeer() Path {
	own := Path{LocalGID: p.RemoteGID, RemoteGID: p.LocalGID, FlowLabel: p.FlowLabel,
		TrafficClass: p.TrafficClass, HopLimit: p.HopLimit, SL: p.SL, AckTimeout: clampAckTimeout(p.AckTimeout)}
	setDefault(&own.HopLimit, DefaultHopLimit)
	return own
}

// Alternate returns the alternate path of the connection, seen from this side:
// the agreed one, by the handshake or a later LAP and APR. Before Accept it is
// the path that the peer proposes. There is none after a migration.
func (c *Conn) Alternate() (Path, bool) {
	if a := c.alt; a != nil && (a.agreed || c.state.pendingRequest()) {
		return a.path, true
	}
	return Path{}, false
}

// takeAlternate accepts the alternate path of a REQ, or records the reason
// against it.
func (c *Conn) takeAlternate(r *rx, req *REQ) {
	if !req.Alternate.present() {
		return
	}
	path := req.Alternate.fromPeer()
	switch {
	case path.LocalGID.IsZero() || path.RemoteGID.IsZero():
		c.failover = FailoverUnsupported // a path with LIDs only
	case path.fault(&c.path) != APLoaded || !c.m.reachable(path.LocalGID, path.RemoteGID):
		c.failover = FailoverRejected
	default:
		c.alt = &alternate{path: path}
	}
}

// agree makes a.path the alternate path of the connection.
func (a *alternate) agree() { a.agreed, a.other = true, a.path.RemoteGID }

// LoadAlternate proposes an alternate path for an established connection, by a LAP:
// ib_send_cm_lap, which Linux had until 5.6. It replaces an existing path. The
// outcome is the event AlternateResponse, unless the connection ends before. Once
// the peer has accepted, load the path into the QP and re-arm the QP. Private data
// up to LAPPrivateLen bytes.
//
// Only one exchange may be in progress at a time. If both ends begin one at
// once, that of the active side wins and the other is rejected.
func (c *Conn) LoadAlternate(now mono.Time, p AlternatePath, private []byte) error {
	const op = "load alternate path"
	switch {
	case c.state != StateEstablished:
		return stateError(op, c.state)
	case c.alt != nil && c.alt.lap != lapIdle:
		return opError(op, nil, syscall.EINVAL, "an exchange about one is under way")
	}
	if err := checkPrivate(op, private, LAPPrivateLen); err != nil {
		return err
	}
	path, err := p.path(op, &c.path, c.ackTimeout)
	if err != nil {
		return err
	}
	a := c.negotiate()
	a.began++
	// A new TID, because a late APR to an earlier LAP must not answer this one.
	a.tid, a.offer, a.lap = c.m.newTID(c.localID)+uint64(a.began)<<32, path, lapSent
	lap := LAP{Header: Header{TID: a.tid}, LocalID: c.localID, RemoteID: c.remoteID, RemoteQPN: c.remoteQPN,
		RemoteResponseTimeout: DefaultResponseTimeout, Alternate: path}
	copy(lap.Private[:], private)
	c.sendRetried(now, &lap)
	return nil
}

func (c *Conn) negotiate() *alternate {
	if c.alt == nil {
		c.alt = &alternate{}
	}
	return c.alt
}

// AlternateAnswer is the answer to a proposed alternate path.
type AlternateAnswer struct {
	// Status is APLoaded to accept, otherwise the reason: APReject unless there is a
	// better one.
	Status  APStatus
	Info    []byte // a better proposal: up to InfoLen bytes
	Private []byte // up to APRPrivateLen bytes
}

// AnswerAlternate answers an AlternateRequest by an APR: ib_send_cm_apr, which
// Linux had until 5.6. To accept, load the path into the QP and re-arm it before.
func (c *Conn) AnswerAlternate(_ mono.Time, p AlternateAnswer) error {
	const op = "answer alternate path"
	a := c.alt
	if c.state != StateEstablished || a == nil || a.lap != lapRcvd && a.lap != lapMRASent {
		return stateError(op, c.state)
	}
	if err := checkPrivate(op, p.Private, APRPrivateLen); err != nil {
		return err
	}
	if len(p.Info) > InfoLen {
		return opError(op, nil, syscall.EINVAL, "%d bytes of information, room for %d", len(p.Info), InfoLen)
	}
	a.lap = lapIdle
	if p.Status == APLoaded {
		a.path = a.offer
		a.agree()
	}
	a.answer = c.apr(a.peerTID, p.Status)
	a.answer.InfoLen = uint8(copy(a.answer.Info[:], p.Info))
	copy(a.answer.Private[:], p.Private)
	c.m.send(c.from, c.to, a.answer)
	return nil
}

func (c *Conn) apr(tid uint64, status APStatus) *APR {
	return &APR{Header: Header{TID: tid}, LocalID: c.localID, RemoteID: c.remoteID, Status: status}
}

// Migrated reports that the QP has migrated to the alternate path: ib_cm_notify
// with IB_EVENT_PATH_MIG. From now on MADs use that path, too, and there is no
// alternate path until one is loaded. It fails with EINVAL without an alternate
// path.
func (c *Conn) Migrated(now mono.Time) error {
	a := c.alt
	if c.state != StateEstablished || a == nil || !a.agreed {
		return stateError("migrated", c.state)
	}
	a.agreed, a.other = false, c.to
	c.path = a.path
	c.from, c.to = a.path.LocalGID, a.path.RemoteGID
	if a.lap.waits() {
		// The LAP in flight may have been sent to an address at which nothing arrives any more.
		c.m.resend(c.from, c.to, &c.msg)
	}
	return nil
}

// isPeer reports whether the peer sends MADs from an address.
func (c *Conn) isPeer(from bth.GID) bool { return from == c.to || c.alt != nil && from == c.alt.other }

// handleLAP: the peer proposes an alternate path. Linux: cm_lap_handler, which
// drops a LAP that it does not expect. This side answers it with a status of IBTA 12.8.2.
func (m *Manager) handleLAP(r *rx, lap *LAP) {
	c := m.byLocal[lap.RemoteID]
	switch {
	case c == nil || c.remoteID != lap.LocalID || c.state == StateTimewait:
		m.counters.Unmatched++
		m.replyStranger(r, &APR{Header: Header{TID: lap.TID}, LocalID: lap.RemoteID, RemoteID: lap.LocalID,
			Status: APInvalidCommID})
	case !c.isPeer(r.from):
		m.foreign()
	case c.state != StateEstablished: // too early or too late
		m.counters.Duplicates[AttrLAP-AttrREQ]++
	case lap.RemoteQPN != c.localQPN:
		m.counters.Unmatched++
		m.reply(c.from, c.to, c.apr(lap.TID, APInvalidQPN))
	default:
		c.proposed(r, lap)
	}
}

// proposed handles a LAP about an established connection.
func (c *Conn) proposed(r *rx, lap *LAP) {
	m, a := c.m, c.negotiate()
	again := lap.TID == a.peerTID && lap.Alternate == a.peerLAP
	switch {
	case a.lap == lapRcvd:
		m.counters.Duplicates[AttrLAP-AttrREQ]++
		return
	case a.lap == lapMRASent:
		m.counters.Duplicates[AttrLAP-AttrREQ]++
		mra := c.mra(OfOther)
		mra.TID = lap.TID
		m.reply(c.from, c.to, mra)
		return
	case again && a.answer != nil: // the peer repeats the LAP because our APR was lost
		m.counters.Duplicates[AttrLAP-AttrREQ]++
		m.reply(c.from, c.to, a.answer)
		return
	case a.lap.waits() && c.active: // our LAP has precedence
		m.reply(c.from, c.to, c.apr(lap.TID, APReject))
		return
	}
	path := lap.Alternate.fromPeer()
	status := path.fault(&c.path)
	if status == APLoaded && !m.reachable(path.LocalGID, path.RemoteGID) {
		status = APInvalidGID
	}
	if status != APLoaded {
		m.reply(c.from, c.to, c.apr(lap.TID, status))
		return
	}
	if a.lap.waits() {
		m.timers.Set(&c.timer, c, mono.Never)
		c.event(Event{Kind: AlternateResponse, AP: APReject, Alternate: a.offered()})
	}
	a.lap, a.offer = lapRcvd, path
	a.peerTID, a.peerLAP, a.answer = lap.TID, lap.Alternate, nil
	c.event(Event{Kind: AlternateRequest, Alternate: a.offered(), Private: clone(lap.Private[:])})
}

// offered copies the offer for an event.
func (a *alternate) offered() *Path { p := a.offer; return &p }

// handleAPR: the peer answers. Linux: cm_apr_handler.
func (m *Manager) handleAPR(r *rx, apr *APR) {
	c := m.lookup(r, apr.RemoteID, apr.LocalID)
	if c == nil {
		m.counters.Unmatched++
		return
	}
	a := c.alt
	if a == nil || !a.lap.waits() || apr.TID != a.tid {
		m.counters.Duplicates[AttrAPR-AttrREQ]++
		return
	}
	m.timers.Set(&c.timer, c, mono.Never)
	a.lap = lapIdle
	if apr.Status == APLoaded {
		a.path = a.offer
		a.agree()
	}
	c.event(Event{Kind: AlternateResponse, AP: apr.Status, Alternate: a.offered(), Private: clone(apr.Private[:]),
		Info: clone(apr.Info[:min(apr.InfoLen, InfoLen)])})
}

// reachable asks the owner whether it can reach a peer. Without Config.Reachable it is true.
func (m *Manager) reachable(local, peer bth.GID) bool {
	return m.cfg.Reachable == nil || m.cfg.Reachable(local, peer)
}
