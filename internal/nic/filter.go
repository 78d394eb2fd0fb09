package nic

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/qp"
)

// Early drop: if the port's driver can drop packets that no queue pair accepts (link.Filter),
// the NIC tells the driver which queue pairs exist and from which address each accepts
// packets.
//
// Invariant: the driver never drops a packet that the engine would accept. So the NIC extends
// the filter before the engine accepts more packets, and restricts the filter after the
// engine accepts fewer.
//
// Some drivers cannot count dropped packets, or each change of the filter is expensive
// (link.FloodFilter). They drop early only while the NIC reports a flood.

// startFilter starts early drop, if the port supports it. No queue pair exists
// yet.
func (n *NIC) startFilter() {
	if p, ok := link.As[link.Filterer](n.shards[0].port); ok {
		if f, err := p.Filter(n.qp1.MADLimit()); err == nil {
			n.filter = f
		}
	}
}

// A flood is floodPackets strange packets within floodTime, at one shard.
const (
	floodPackets = 2048
	floodTime    = 10 * time.Millisecond
)

// strange returns the number of packets that the shard has dropped and that a link.FloodFilter
// could drop early.
func (s *Shard) strange() uint64 {
	return s.drops.Malformed + s.drops.NoQP + s.counters.WrongPeer + s.dryDrops
}

// noteStrange counts k strange packets that have just arrived, and reports a
// flood to the driver.
func (s *Shard) noteStrange(now mono.Time, k uint64) {
	f, ok := s.nic.filter.(link.FloodFilter)
	if !ok {
		return
	}
	if now.Sub(s.strangeSince) > floodTime {
		s.strangeSince, s.strangers = now, 0
	}
	if s.strangers += k; s.strangers >= floodPackets {
		s.strangers = 0
		f.Flooded()
	}
}

// earlyDrops adds the packets that were dropped early, as if the device had dropped them.
func (n *NIC) earlyDrops(c *Counters) {
	if n.filter == nil {
		return
	}
	d := n.filter.Drops()
	c.Drops.Malformed += d.Malformed
	c.Drops.NoQP += d.NoQP
	c.Drops.MADFlood += d.MADFlood
	c.QP.WrongPeer += d.WrongPeer
	c.QP.UDNoReceive += d.NoReceive
}

// anySource is the source of queue pairs that accept packets from every
// address.
var anySource bth.GID

// admit makes the filter pass packets to a new queue pair from every address.
func (q *QP) admit() {
	if f := q.shard.nic.filter; f != nil {
		q.source = anySource
		f.Admit(q.Num(), anySource)
	}
}

// admitMore is called before attributes change. If the change may make the engine
// accept packets from another address, the filter passes packets from every address.
func (q *QP) admitMore(mask qp.AttrMask) {
	const moves = qp.AttrAV | qp.AttrAltPath | qp.AttrPathMigState
	if q.shard.nic.filter != nil && mask&moves != 0 {
		q.admitFrom(anySource)
	}
}

// admitLess is called after attributes have changed: the filter then passes only packets
// that the engine may accept. A migration needs no such call, because the engine accepts
// packets from several addresses before and after it.
func (q *QP) admitLess() {
	if q.shard.nic.filter == nil {
		return
	}
	if from, one := q.engine.Source(); one {
		q.admitFrom(from)
	} else {
		q.admitFrom(anySource)
	}
}

// admitFrom tells the driver the source of a queue pair, unless the driver knows it.
func (q *QP) admitFrom(from bth.GID) {
	if q.source != from {
		q.source = from
		q.shard.nic.filter.Admit(q.Num(), from)
	}
}

// pauseAfter is the number of datagrams in a row without a receive after which the driver
// drops the following ones. Pausing and resuming each take a call of the driver.
const pauseAfter = 32

// noteReceive is called after a packet was received. dropped tells whether it was a datagram
// for which there was no receive.
func (q *QP) noteReceive(dropped bool) {
	if !dropped || !q.engine.Dry() {
		q.dry = 0
		return
	}
	q.shard.dryDrops++
	switch {
	case q.paused || q.shard.nic.filter == nil:
	case q.dry < pauseAfter:
		q.dry++
	default:
		q.paused = true
		q.shard.nic.filter.Pause(q.Num())
	}
}

// resume is called before a receive is posted: the driver passes datagrams again.
func (q *QP) resume() {
	if q.paused {
		q.paused, q.dry = false, 0
		q.shard.nic.filter.Admit(q.Num(), q.source)
	}
}

// forget makes the filter drop all packets to the queue pair.
func (q *QP) forget() {
	if f := q.shard.nic.filter; f != nil {
		f.Forget(q.Num())
	}
}
