package cm

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/deadline"
	"github.com/goroce/roce/mono"
)

// Conn is one end of an RC (or UC) connection, an identifier of rdma_cm. It
// belongs to the Manager that made it and follows the same rules.
//
// An operation that does not fit the state fails with [ErrState], changes nothing
// and sends nothing. A queued event may explain the state.
type Conn struct {
	// User belongs to the owner; the Manager ignores it. A passive Conn starts
	// with that of its Listener.
	User any

	ends
	m        *Manager
	state    State
	listener *Listener // passive: its backlog includes this connection

	localID, remoteID CommID
	remoteGUID        GUID
	tid               uint64 // of the exchange that this side answers

	// from is the local address of the MADs, to the peer's. The MADs of the peer must come from
	// to, or from alternate.other. The address of the peer's QP is in path.
	from, to bth.GID
	peer     bth.GID // the value of to during the handshake; part of the keys in byRemote and byQPN

	transport   Transport
	path        Path // seen from here
	pkey        bth.PKey
	mtu         bth.MTU
	localQPN    bth.QPN
	remoteQPN   bth.QPN
	sqPSN       bth.PSN // chosen by the peer
	rqPSN       bth.PSN // chosen here
	resources   uint8   // responder resources of this side
	depth       uint8   // initiator depth of this side
	retryCount  uint8
	rnrRetry    uint8
	flowControl bool
	srq         bool       // of the peer
	ackTimeout  uint8      // of the QP; it also determines the length of timewait
	failover    Failover   // passive: why the alternate path of the REQ is refused
	alt         *alternate // nil: neither side has proposed one
	answer      []byte
	delivered   bool  // passive: the owner has taken the ConnectRequest
	destroyed   bool  // the owner wants no more events
	askedToWait bool  // passive: an MRA was sent for the REQ
	confirmed   bool  // a DREP was sent
	halfOpen    place // in Manager.halfOpen
	request     place // in Listener.requests

	timer      deadline.Timer
	interval   time.Duration // of retransmission
	pause      time.Duration // passive: to the next repetition of the REP
	began      mono.Time     // passive: when the REP was sent
	until      mono.Time     // passive: end of the wait for the RTU
	early      time.Duration // next early repetition of a DREQ; 0: none
	retries    uint8         // remaining
	maxRetries uint8
	msg        [MADLen]byte // the message being retransmitted
}

// State returns the state; StateIdle also after the end.
func (c *Conn) State() State { return c.state }

// Active reports whether this side sent the REQ.
func (c *Conn) Active() bool { return c.active }

// LocalID returns the communication ID of this side.
func (c *Conn) LocalID() CommID { return c.localID }

// RemoteID returns the communication ID of the peer, 0 until it has answered.
func (c *Conn) RemoteID() CommID { return c.remoteID }

// LocalQPN returns the number of our queue pair.
func (c *Conn) LocalQPN() bth.QPN { return c.localQPN }

// RemoteQPN returns the peer's queue pair number; 0 before REQ or REP were received.
func (c *Conn) RemoteQPN() bth.QPN { return c.remoteQPN }

// RemoteGUID returns the node GUID of the peer, 0 until it has answered.
func (c *Conn) RemoteGUID() GUID { return c.remoteGUID }

// LocalGID returns the address of this end.
func (c *Conn) LocalGID() bth.GID { return c.path.LocalGID }

// RemoteGID returns the address of the peer's QP; on the passive side it is the
// one in the REQ. It may differ from [Conn.PeerAddress].
func (c *Conn) RemoteGID() bth.GID { return c.path.RemoteGID }

// PeerAddress returns the source address of the peer's MADs. Linux peers use the
// address of their QP.
func (c *Conn) PeerAddress() bth.GID { return c.to }

// Reject refuses the connection while it is being set up, on either side:
// rdma_reject. Reason is RejectConsumer unless there is a better one; private data
// up to REJPrivateLen bytes.
func (c *Conn) Reject(now mono.Time, reason RejectReason, private []byte) error {
	switch c.state {
	case StateReqSent, StateMRAReqRcvd, StateReqRcvd, StateMRAReqSent, StateRepRcvd, StateMRARepSent,
		StateRepSent, StateMRARepRcvd:
	default:
		return stateError("reject", c.state)
	}
	if err := checkPrivate("reject", private, REJPrivateLen); err != nil {
		return err
	}
	c.reject(now, reason, private)
	return nil
}

// Disconnect ends an established connection: rdma_disconnect. It sends a DREQ and
// repeats it until the event Disconnected; or, if the peer has disconnected first,
// it sends the DREP. The owner moves its QP to ERR before, as librdmacm does, or
// keeps the QP working until the event Disconnected. Private data up to
// DREQPrivateLen or DREPPrivateLen bytes.
//
// If both sides disconnect at once and the peer's DREP arrives first, the state
// is StateTimewait: Disconnect fails, and the owner need not do anything.
func (c *Conn) Disconnect(now mono.Time, private []byte) error {
	switch c.state {
	case StateEstablished:
		if err := checkPrivate("disconnect", private, DREQPrivateLen); err != nil {
			return err
		}
		c.sendDREQ(now, private)
	case StateDreqRcvd:
		if err := checkPrivate("disconnect", private, DREPPrivateLen); err != nil {
			return err
		}
		c.sendDREP(now, private)
	default:
		return stateError("disconnect", c.state)
	}
	return nil
}

// Destroy ends the connection in any state: rdma_destroy_id. No event follows, and queued
// events are dropped. The peer gets one message: REJ 4 (timeout) for an unanswered REQ, REJ 28
// during the rest of the handshake, DREP for its DREQ. The peer of an established connection
// gets a DREQ, which is repeated. Linux sends one DREQ and forgets the connection; the peer
// stays connected if that DREQ is lost.
func (c *Conn) Destroy(now mono.Time) {
	if c.destroyed {
		return
	}
	c.destroyed = true
	switch c.state {
	case StateReqSent, StateMRAReqRcvd:
		c.sendTimeoutREJ()
		c.toIdle()
	case StateReqRcvd, StateMRAReqSent, StateRepRcvd, StateMRARepSent, StateRepSent, StateMRARepRcvd:
		c.reject(now, RejectConsumer, nil)
	case StateEstablished:
		c.sendDREQ(now, nil)
	case StateDreqRcvd:
		c.sendDREP(now, nil)
	}
}

// setState moves to s and keeps the counts that depend on it.
func (c *Conn) setState(s State) {
	if !s.pendingRequest() && c.listener != nil {
		c.listener.requests.remove(&c.request)
	}
	if !s.halfOpen() {
		c.m.halfOpen.remove(&c.halfOpen)
	}
	if by := one(s.confirmed()) - one(c.state.confirmed()); by != 0 {
		c.m.countConfirmed(c.peer, by)
	}
	c.m.leaving += one(s == StateDreqSent) - one(c.state == StateDreqSent)
	if left := c.m.cfg.Left; left != nil && c.destroyed && c.state == StateDreqSent && s != StateDreqSent {
		left(c)
	}
	if c.alt != nil {
		c.alt.lap = lapIdle // only an established connection has an exchange in progress
	}
	c.state = s
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (c *Conn) remoteKey() remoteKey { return remoteKey{c.remoteID, c.remoteGUID, c.peer} }
func (c *Conn) qpnKey() qpnKey       { return qpnKey{c.remoteQPN, c.remoteGUID, c.peer} }

// enter adds c to a table. If another Conn already has the key, enter returns that
// one instead.
func enter[K comparable](table map[K]*Conn, k K, c *Conn) *Conn {
	if old := table[k]; old != nil {
		return old
	}
	table[k] = c
	return nil
}

// leave removes c from a table, if c is in it.
func leave[K comparable](table map[K]*Conn, k K, c *Conn) {
	if table[k] == c {
		delete(table, k)
	}
}

// toIdle ends c, and removes it from the Manager.
func (c *Conn) toIdle() {
	c.m.timers.Set(&c.timer, c, mono.Never)
	leave(c.m.byRemote, c.remoteKey(), c)
	leave(c.m.byQPN, c.qpnKey(), c)
	delete(c.m.byLocal, c.localID)
	c.setState(StateIdle)
	if c.active {
		return
	}
	source := SourceOf(c.peer)
	if c.m.passive[source]--; c.m.passive[source] == 0 {
		delete(c.m.passive, source)
	}
	if !c.delivered {
		c.destroyed = true // the owner has not seen it
	}
}

// toTimewait keeps c as long as packets of its QP may be in flight. The ID of c stays in the
// tables, so that a late duplicate of the REQ gets REJ 10. The QPN does not stay: the peer
// decides when to use its QPN again, and Linux peers do so at once.
func (c *Conn) toTimewait(now mono.Time) {
	leave(c.m.byQPN, c.qpnKey(), c)
	c.answer = nil
	c.setState(StateTimewait)
	c.m.timers.Set(&c.timer, c, now.Add(ResponseTimeout(c.ackTimeout)))
	if !c.active && !c.delivered {
		c.destroyed = true
	}
}

// sendRetried sends msg and repeats it each interval until the timer is stopped
// or the retries are used up.
func (c *Conn) sendRetried(now mono.Time, msg Message) {
	c.m.send(c.from, c.to, msg)
	c.msg = c.m.out.Last().MAD
	c.retries = c.maxRetries
	c.m.timers.Set(&c.timer, c, now.Add(c.interval))
}

// timeout is called when the timer of c expires.
func (c *Conn) timeout(now mono.Time) {
	if c.repeatEarly(now) {
		return
	}
	switch c.state {
	case StateReqRcvd, StateMRAReqSent:
		c.expire(now)
	case StateRepSent, StateMRARepRcvd:
		c.repeatREP(now)
	case StateReqSent, StateMRAReqRcvd, StateEstablished, StateDreqSent:
		if c.retries > 0 {
			c.retries--
			c.m.resend(c.from, c.to, &c.msg)
			c.m.timers.Set(&c.timer, c, now.Add(c.interval))
			return
		}
		c.giveUp(now)
	case StateTimewait:
		c.toIdle()
		c.event(Event{Kind: TimewaitExit})
	}
}

// giveUp ends the wait for an answer. During the handshake it sends REJ 4 (IBTA 12.9.7): if
// the peer has answered and its messages were lost, the peer would otherwise believe that it
// is connected. Linux sends no REJ here.
func (c *Conn) giveUp(now mono.Time) {
	switch c.state {
	case StateEstablished: // a LAP; the connection stays
		c.alt.lap = lapIdle
		c.event(Event{Kind: AlternateResponse, Err: ErrTimeout, Alternate: c.alt.offered()})
		return
	case StateDreqSent:
		c.toTimewait(now)
		c.event(Event{Kind: Disconnected, Err: ErrTimeout})
		return
	}
	if c.active || c.m.mayReply(now, c.to, costUnprovoked) {
		c.sendTimeoutREJ()
	}
	c.toIdle()
	c.event(Event{Kind: Unreachable, Err: ErrTimeout})
}

// event queues e about c.
func (c *Conn) event(e Event) {
	e.Conn = c
	c.m.event(e)
}

// lookup finds the connection of a message by the two IDs, seen from this side.
// The message must come from the peer's address. The caller counts a message
// without a connection as unmatched.
func (m *Manager) lookup(r *rx, local, remote CommID) *Conn {
	c := m.byLocal[local]
	if c == nil || c.remoteID != remote {
		return nil
	}
	if !c.isPeer(r.from) {
		m.counters.Foreign++
		return nil
	}
	return c
}

// foreign counts a MAD with the IDs of a known exchange that comes from another address.
func (m *Manager) foreign() {
	m.counters.Unmatched++
	m.counters.Foreign++
}

// resend queues a message once more.
func (m *Manager) resend(from, to bth.GID, mad *[MADLen]byte) {
	o := m.out.Push()
	o.From, o.To, o.MAD, o.reply = from, to, *mad, false
	a := be16(mad[16:]) - uint16(AttrREQ)
	m.counters.Sent[a]++
	m.counters.Retries[a]++
}

// clone copies private data from a MAD, or from the caller's memory.
func clone(b []byte) []byte { return append([]byte(nil), b...) }
