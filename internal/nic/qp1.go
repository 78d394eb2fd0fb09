package nic

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// QP1 is the management queue pair (GSI): the machine room gives it its packets and its
// share of each turn. It lives on shard 0. All methods but Removed are called with
// the lock of that shard held.
type QP1 interface {
	// Admit reports whether a packet from a source is handled, before its ICRC is checked:
	// false drops it and counts it in Drops.MADFlood. dataAt is when a queue pair of the
	// shard accepted a packet last.
	Admit(now, dataAt mono.Time, source *bth.GID) bool

	// MADLimit returns the limit of Admit, for drivers that drop early what Admit would.
	MADLimit() link.MADLimit

	// Receive takes a packet that has passed all checks.
	Receive(now mono.Time, p *frame.Packet)

	// NextTimeout and HandleTimeout are those of the connection manager.
	NextTimeout() mono.Time
	HandleTimeout(now mono.Time)

	// Post hands datagrams that wait to the engine of QP 1. It is called before packets
	// are built, if the manager was called ([Shard.QP1Called]). It reports whether a
	// datagram found the engine's queue full and waits for room.
	Post(now mono.Time) (blocked bool)

	// Collect turns what happened into calls ([Shard.Call]). It is called at the end of
	// an entry in which the manager was called.
	Collect()

	// Shutdown ends all connections, for a NIC that is being closed. It is called with
	// all shards locked; the caller calls the function that it returns without.
	Shutdown(now mono.Time) (tell func(error))

	// Leaving returns how many peers have not confirmed yet that their connection is
	// over.
	Leaving() int

	// Removed says that the network interface was removed: connections and listeners
	// are over. It is called without a lock.
	Removed(why error)
}

// qp1State is what shard 0 keeps of QP 1, so that an entry in which nothing happens to it
// costs no call. On other shards nothing ever happens to it.
type qp1State struct {
	post, collect bool      // the manager was called since Post, since Collect
	blocked       bool      // what Post has reported
	deadline      mono.Time // what NextTimeout has reported
}

// QP1Called says that the connection manager is called: afterwards it may have datagrams,
// events and another deadline. The caller has locked the shard.
func (s *Shard) QP1Called() { s.qp1.post, s.qp1.collect = true, true }

// postQP1 lets QP 1 post.
func (s *Shard) postQP1(now mono.Time) {
	s.qp1.blocked = s.nic.qp1.Post(now)
	s.qp1.post = false
	s.qp1.deadline = s.nic.qp1.NextTimeout()
}

// collectQP1 takes the news of QP 1.
func (s *Shard) collectQP1() {
	s.nic.qp1.Collect()
	s.qp1.collect = false
	s.qp1.deadline = s.nic.qp1.NextTimeout()
	if s.nic.closed && s.nic.qp1.Leaving() == 0 {
		s.nic.drained.Notify()
	}
}
