package cm

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/goroce/roce/mono"
)

// rej makes the REJ of a connection in its current state. Linux: cm_format_rej.
func (c *Conn) rej(reason RejectReason, private []byte) *REJ {
	m := &REJ{Header: Header{TID: c.tid}, LocalID: c.localID, RemoteID: c.remoteID, Reason: reason}
	switch c.state {
	case StateReqRcvd:
		m.LocalID, m.Of = 0, OfREQ
	case StateMRAReqSent:
		m.Of = OfREQ
	case StateRepRcvd, StateMRARepSent:
		m.Of = OfREP
	default:
		m.Of = OfOther
	}
	copy(m.Private[:], private)
	return m
}

// reject sends a REJ. If the peer may have the REP, the QPN enters timewait.
func (c *Conn) reject(now mono.Time, reason RejectReason, private []byte) {
	c.m.send(c.from, c.to, c.rej(reason, private))
	if c.state == StateRepSent || c.state == StateMRARepRcvd {
		c.toTimewait(now)
	} else {
		c.toIdle()
	}
}

// sendTimeoutREJ tells the peer that this side has given up. The peer finds its
// connection by our ID and by our GUID in the additional information, because we
// may not know its ID.
func (c *Conn) sendTimeoutREJ() {
	rej := c.rej(RejectTimeout, nil)
	binary.BigEndian.PutUint64(rej.Info[:], uint64(c.m.cfg.GUID))
	rej.InfoLen = 8
	c.m.send(c.from, c.to, rej)
}

func (c *Conn) sendDREQ(now mono.Time, private []byte) {
	dreq := DREQ{Header: Header{TID: c.m.newTID(c.localID)}, LocalID: c.localID, RemoteID: c.remoteID,
		RemoteQPN: c.remoteQPN}
	copy(dreq.Private[:], private)
	c.setState(StateDreqSent)
	c.sendRetried(now, &dreq)
	if earlyDREQ < c.interval {
		c.early = earlyDREQ
		c.m.timers.Set(&c.timer, c, now.Add(c.early))
	}
}

// earlyDREQ is the first pause between repetitions of a DREQ. The pause doubles up to the usual
// interval of the CM. An end in Linux answers a DREQ only during timewait, which takes half a
// second, and ignores it afterwards as long as the application keeps the identifier. So with
// the usual interval one lost DREP would cost all retries.
const earlyDREQ = 100 * time.Millisecond

// repeatEarly repeats a DREQ before the end of its interval and reports whether
// it did. These repetitions do not count as retries.
func (c *Conn) repeatEarly(now mono.Time) bool {
	if c.state != StateDreqSent || c.early == 0 {
		return false
	}
	c.m.resend(c.from, c.to, &c.msg)
	if c.early *= 2; c.early >= c.interval {
		c.early = 0
		c.m.timers.Set(&c.timer, c, now.Add(c.interval))
	} else {
		c.m.timers.Set(&c.timer, c, now.Add(c.early))
	}
	return true
}

func (c *Conn) sendDREP(now mono.Time, private []byte) {
	c.toTimewait(now)
	c.answer = clone(private)
	c.confirmed = true
	c.m.send(c.from, c.to, c.drep())
}

func (c *Conn) drep() *DREP {
	m := &DREP{Header: Header{TID: c.tid}, LocalID: c.localID, RemoteID: c.remoteID}
	copy(m.Private[:], c.answer)
	return m
}

// rejected finds the connection of a REJ. Linux: cm_acquire_rejected_id.
func (m *Manager) rejected(r *rx, rej *REJ) *Conn {
	switch {
	case rej.Reason == RejectTimeout:
		guid := GUID(be64(rej.Info[:]))
		c := m.byRemote[remoteKey{rej.LocalID, guid, r.from}]
		if c == nil {
			return nil
		}
		return m.lookup(r, c.localID, rej.LocalID)
	case rej.Of == OfREQ:
		return m.lookup(r, rej.RemoteID, 0)
	}
	return m.lookup(r, rej.RemoteID, rej.LocalID)
}

// handleREJ: the peer refuses, or has given up. Linux: cm_rej_handler.
func (m *Manager) handleREJ(r *rx, rej *REJ) {
	c := m.rejected(r, rej)
	if c == nil {
		m.counters.Unmatched++
		return
	}
	switch c.state {
	case StateReqSent, StateMRAReqRcvd, StateRepSent, StateMRARepRcvd, StateReqRcvd, StateMRAReqSent:
		if rej.Reason == RejectStaleConn {
			c.toTimewait(r.now)
		} else {
			c.toIdle()
		}
	case StateDreqSent, StateRepRcvd, StateMRARepSent, StateEstablished:
		c.toTimewait(r.now)
	default:
		m.counters.Duplicates[AttrREJ-AttrREQ]++
		return
	}
	c.event(Event{Kind: Rejected, Reason: rej.Reason, Private: clone(rej.Private[:]),
		Info: clone(rej.Info[:min(rej.InfoLen, InfoLen)])})
}

// handleDREQ: the peer disconnects. This side always sends the DREP; even if it has dropped
// the connection, it answers a repetition of the DREQ. Linux: cm_dreq_handler.
func (m *Manager) handleDREQ(r *rx, dreq *DREQ) {
	c := m.byLocal[dreq.RemoteID]
	if c == nil || c.remoteID != dreq.LocalID {
		m.counters.Duplicates[AttrDREQ-AttrREQ]++
		m.replyStranger(r, &DREP{Header: Header{TID: dreq.TID},
			LocalID: dreq.RemoteID, RemoteID: dreq.LocalID})
		return
	}
	if !c.isPeer(r.from) {
		m.foreign()
		return
	}
	if dreq.RemoteQPN != c.localQPN {
		m.counters.Unmatched++
		return
	}
	switch c.state {
	case StateRepSent, StateMRARepRcvd, StateEstablished, StateDreqSent:
		m.timers.Set(&c.timer, c, mono.Never)
		c.tid = dreq.TID
		c.setState(StateDreqRcvd)
		if c.destroyed {
			c.sendDREP(r.now, nil)
			return
		}
		c.event(Event{Kind: DisconnectRequest, Private: clone(dreq.Private[:])})
	case StateTimewait:
		m.counters.Duplicates[AttrDREQ-AttrREQ]++
		drep := c.drep()
		drep.TID = dreq.TID
		m.reply(c.from, c.to, drep)
	default:
		m.counters.Duplicates[AttrDREQ-AttrREQ]++
	}
}

// handleDREP: the peer has disconnected. Linux: cm_drep_handler.
func (m *Manager) handleDREP(r *rx, drep *DREP) {
	c := m.lookup(r, drep.RemoteID, drep.LocalID)
	if c == nil || c.state != StateDreqSent && c.state != StateDreqRcvd {
		m.counters.Unmatched++
		return
	}
	c.toTimewait(r.now)
	c.event(Event{Kind: Disconnected, Private: clone(drep.Private[:])})
}

// closeDREQ is the first pause between repetitions of a DREQ while the Manager is being closed.
// The pause doubles. The usual intervals of the CM are too long then.
const closeDREQ = 10 * time.Millisecond

// closeDREPs is how often Close sends a DREP again during the timewait of its connection. The
// first one may be lost, and after Close nobody answers the next DREQ.
const closeDREPs = 2

// Close ends all listeners, queries, inquiries and connections. It disconnects
// established connections, with DREQs at short intervals, and repeats the DREPs of
// connections in timewait; the caller continues to drive the Manager until
// [Manager.Leaving] is 0 or time is up. No events follow.
func (m *Manager) Close(now mono.Time) {
	for _, ls := range m.listeners {
		for _, l := range slices.Clone(ls) {
			l.Close(now)
		}
	}
	for _, q := range m.inquiries {
		q.finish(SIDRREP{Status: SIDRReject})
	}
	for _, q := range m.queries {
		q.Cancel()
	}
	for _, c := range m.byLocal {
		c.Destroy(now)
		if c.state == StateDreqSent {
			c.early = closeDREQ
			m.timers.Set(&c.timer, c, now.Add(c.early))
		}
		if c.state == StateTimewait && c.confirmed {
			for range closeDREPs {
				m.send(c.from, c.to, c.drep())
			}
		}
	}
}
