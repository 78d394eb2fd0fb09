package nic

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/qp"
)

// Early drop: if the port's driver can drop packets that no queue pair can take (link.Filter),
// the NIC tells it which queue pairs exist and from which address each takes packets.
//
// Invariant: the driver never drops a packet that the engine would take. So the driver learns
// of more packets before the engine takes them, and of fewer after the engine has ceased to.
//
// Some drivers cannot count what they drop, or pay for each change (link.FloodFilter). They drop
// early only while the NIC reports a flood.

// startFilter starts early drop, if the port has it. No queue pair exists yet.
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

// strange returns how many packets the shard has dropped that a link.FloodFilter can drop early.
func (s *Shard) strange() uint64 {
	return s.drops.Malformed + s.drops.NoQP + s.counters.WrongPeer + s.dryDrops
}

// noteStrange tells the driver of a flood. k strange packets have come just now.
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

// anySource is the source of queue pairs that take packets from every address.
var anySource bth.GID

// admit lets the packets to a new queue pair pass, from every address.
func (q *QP) admit() {
	if f := q.shard.nic.filter; f != nil {
		q.source = anySource
		f.Admit(q.num, anySource)
	}
}

// admitMore is called before attributes change: packets from every address pass if the
// change may make the engine take packets from another address.
func (q *QP) admitMore(mask qp.AttrMask) {
	const moves = qp.AttrAV | qp.AttrAltPath | qp.AttrPathMigState
	if q.shard.nic.filter != nil && mask&moves != 0 {
		q.admitFrom(anySource)
	}
}

// admitLess is called after attributes have changed: only those packets pass that the engine
// may take. A migration needs no such call: the engine takes packets from several addresses
// before and after it.
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
		q.shard.nic.filter.Admit(q.num, from)
	}
}

// pauseAfter is how many datagrams in a row must find no receive before the driver drops those
// that follow. To pause and to resume takes a call of the driver each.
const pauseAfter = 32

// noteReceive is called after a packet was received. dropped reports whether it was a datagram
// that found no receive.
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
		q.shard.nic.filter.Pause(q.num)
	}
}

// resume is called before a receive is posted: the driver lets datagrams pass again.
func (q *QP) resume() {
	if q.paused {
		q.paused, q.dry = false, 0
		q.shard.nic.filter.Admit(q.num, q.source)
	}
}

// forget lets no more packets to the queue pair pass.
func (q *QP) forget() {
	if f := q.shard.nic.filter; f != nil {
		f.Forget(q.num)
	}
}
