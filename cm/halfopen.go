package cm

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mono"
)

// The address of a peer may be forged until the peer confirms the connection that it began. So
// this side decides how long it keeps half-open connections, and how many.

// The first and the longest pause between repetitions of a REP; the pause doubles each time. In
// Linux the REQ determines the pause (its response time) and the number of repetitions (its
// retries). So a peer could request 16 copies in 16 ms, or a wait of 17 minutes.
const (
	firstREPPause = 500 * time.Millisecond
	maxREPPause   = 4 * time.Second
)

// admit reports whether there is room for one more request. It evicts a half-open
// connection of another source that holds more, if that makes room. A request without room is
// dropped, not rejected: the peer repeats it, and there may be room then.
func (m *Manager) admit(r *rx, l *Listener) bool {
	source := SourceOf(r.from)
	ok := !m.eventsFull() && !m.hasShare(source) && (l.requests.n < l.backlog || l.requests.makeRoom(r.now, source))
	if ok && (m.halfOpen.n >= m.cfg.MaxHalfOpen || m.Len() >= m.cfg.MaxConns) {
		ok = m.halfOpen.makeRoom(r.now, source)
	}
	if !ok {
		m.counters.RequestsFull++
	}
	return ok
}

// hold adds a request or a half-open connection to the queues that bound their number.
func (m *Manager) hold(owner evictable, halfOpen, request *place, l *Listener, from bth.GID) {
	halfOpen.owner, request.owner = owner, owner
	m.halfOpen.add(halfOpen, SourceOf(from))
	l.requests.add(request, SourceOf(from))
}

// sendREP sends the REP and repeats it until the end of the wait for the RTU.
func (c *Conn) sendREP(now mono.Time, rep *REP) {
	c.m.send(c.from, c.to, rep)
	c.msg = c.m.out.Last().MAD
	c.began, c.until, c.pause = now, now.Add(c.m.cfg.HalfOpenTimeout), firstREPPause
	c.m.timers.Set(&c.timer, c, min(now.Add(c.pause), c.until))
}

// repeatREP repeats the REP if there is time left. It makes few repetitions,
// because the address of the peer may be forged.
func (c *Conn) repeatREP(now mono.Time) {
	until := c.until
	if c.m.crowded(c.listener) && c.m.confirmed[SourceOf(c.to)] == nil {
		until = min(until, c.began.Add(c.m.cfg.HalfOpenTimeout/8))
	}
	if !now.Before(until) {
		c.giveUp(now)
		return
	}
	if c.m.mayReply(now, c.to, costUnprovoked) {
		c.m.resend(c.from, c.to, &c.msg)
	}
	c.pause = min(2*c.pause, maxREPPause)
	c.m.timers.Set(&c.timer, c, min(now.Add(c.pause), c.until))
}

// crowded reports whether the half-open connections, or the requests of a listener, have
// reached or nearly reached their limit.
func (m *Manager) crowded(l *Listener) bool {
	return m.halfOpen.n > m.cfg.MaxHalfOpen/8*7 || l.requests.n >= l.backlog
}

// expire ends a request that the owner has not answered in time. The peer gets a REJ if this
// side has asked it to wait or the owner has the event. Otherwise the peer repeats its REQ,
// and there may be room then.
func (c *Conn) expire(now mono.Time) {
	c.m.counters.Expired++
	c.withdraw(now, ErrExpired, c.delivered || c.askedToWait)
}

// evict ends the connection to make room for another peer.
func (c *Conn) evict(now mono.Time) {
	c.m.counters.Evicted++
	c.withdraw(now, ErrEvicted, !c.state.pendingRequest() || c.askedToWait)
}

// withdraw ends a half-open connection for a reason of this side.
func (c *Conn) withdraw(now mono.Time, why error, tell bool) {
	if tell && c.m.mayReply(now, c.to, costUnprovoked) {
		c.m.send(c.from, c.to, c.rej(RejectNoResources, nil))
	}
	c.toIdle()
	c.event(Event{Kind: Unreachable, Err: why})
}
