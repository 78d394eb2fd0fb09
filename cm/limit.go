package cm

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mono"
)

// replyLimiter bounds the messages to unconfirmed addresses: the sender of a MAD can forge its
// source address and direct our answers to a third party. The limiter has a rate for each
// source and one for all together. A source may use up a second of its rate at once.
type replyLimiter struct {
	all       rate
	sources   [replyBuckets]rate // sources with the same hash share one
	perSource time.Duration      // average time between two answers to one source
	total     time.Duration      // average time between two answers to any source
}

// replyBuckets bounds the memory of the limiter.
const replyBuckets = 1024

// rate is the state of a rate limit: the time until which the messages that were sent so far use up
// the rate.
type rate mono.Time

func newReplyLimiter(perSource, total int) replyLimiter {
	return replyLimiter{perSource: time.Second / time.Duration(perSource), total: time.Second / time.Duration(total)}
}

// allow reports whether an answer of a weight may be sent to an address now, and
// counts it if so.
func (l *replyLimiter) allow(now mono.Time, to bth.GID, weight int) bool {
	source := SourceOf(to)
	const golden = 0x9E3779B97F4A7C15
	hash := (be64(source[:8])*golden ^ be64(source[8:])) * golden
	one := &l.sources[hash>>32%replyBuckets]
	cost, costAll := l.perSource*time.Duration(weight), l.total*time.Duration(weight)
	if !one.affords(now, cost) || !l.all.affords(now, costAll) {
		return false
	}
	one.pay(now, cost)
	l.all.pay(now, costAll)
	return true
}

// affords reports whether a message of a cost is within a second's worth of the
// rate. If nothing of the rate is used, it allows any cost.
func (r *rate) affords(now mono.Time, cost time.Duration) bool {
	paid := mono.Time(*r)
	return paid <= now || !now.Add(time.Second).Before(paid.Add(cost))
}

func (r *rate) pay(now mono.Time, cost time.Duration) {
	*r = rate(max(mono.Time(*r), now).Add(cost))
}

// confirmedSource is a source that has confirmed a connection; so its address is not forged. It
// has its own rate, as high as that of all unconfirmed sources together, and each message costs
// 1. So the Manager can repeat lost REPs to a host that begins many connections at once.
type confirmedSource struct {
	conns int // confirmed connections that have not ended
	sent  rate
}

// countConfirmed counts a connection that an address has confirmed, or that has
// ended.
func (m *Manager) countConfirmed(from bth.GID, conns int) {
	source := SourceOf(from)
	a := m.confirmed[source]
	if a == nil {
		a = &confirmedSource{}
		m.confirmed[source] = a
	}
	if a.conns += conns; a.conns == 0 {
		delete(m.confirmed, source)
	}
}

// mayReply reports whether the Manager may send a message about an unconfirmed request or
// connection to an address. If so, it counts the message.
func (m *Manager) mayReply(now mono.Time, to bth.GID, weight int) (ok bool) {
	if a := m.confirmed[SourceOf(to)]; a != nil {
		if ok = a.sent.affords(now, m.limiter.total); ok {
			a.sent.pay(now, m.limiter.total)
		}
	} else {
		ok = m.limiter.allow(now, to, weight)
	}
	if !ok {
		m.counters.RepliesLimited++
	}
	return ok
}
