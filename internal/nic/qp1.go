package nic

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// QP1 is the management queue pair (GSI), which belongs to shard 0. This package
// delivers its packets and calls it in each entry that concerns it. All methods but
// Removed are called with the lock of that shard held.
type QP1 interface {
	// Admit reports whether to handle a packet from a source, before the check of its
	// ICRC. If it returns false, the shard drops the packet and counts it in
	// Drops.MADFlood. dataAt is the time when a queue pair of the shard last accepted a
	// packet.
	Admit(now, dataAt mono.Time, source *bth.GID) bool

	// MADLimit returns the limit of Admit, for drivers that apply it early.
	MADLimit() link.MADLimit

	// Receive handles a packet that has passed all checks.
	Receive(now mono.Time, p *frame.Packet)

	// NextTimeout and HandleTimeout are those of the connection manager.
	NextTimeout() mono.Time
	HandleTimeout(now mono.Time)

	// Post gives waiting datagrams to the engine of QP 1. It is called before packets
	// are built, if the manager was called ([Shard.QP1Called]). It reports whether the
	// engine's queue was full, so that a datagram waits for room.
	Post(now mono.Time) (blocked bool)

	// Collect turns the events of the manager into calls ([Shard.Call]). It is called
	// at the end of an entry in which the manager was called.
	Collect()

	// Shutdown ends all connections, for a NIC that is being closed. It is called with
	// all shards locked; the caller then calls tell without a lock.
	Shutdown(now mono.Time) (tell func(error))

	// Leaving returns the number of peers that have not yet confirmed the end of
	// their connection.
	Leaving() int

	// Removed ends connections and listeners, because the network interface was
	// removed. It is called without a lock.
	Removed(why error)
}

// qp1State is the state of QP 1 on shard 0. With it, entries that do not concern QP 1 need not
// call it. Other shards change at most split.
type qp1State struct {
	split         bool      // the port was told to separate management datagrams
	post, collect bool      // the manager was called since the last Post, the last Collect
	blocked       bool      // last result of Post
	deadline      mono.Time // last result of NextTimeout
}

// QP1Called records a call of the connection manager, which may then have datagrams,
// events and another deadline. The caller has locked the shard.
func (s *Shard) QP1Called() { s.qp1.post, s.qp1.collect = true, true }

// splitMADs lets the port separate management datagrams from the data, before the first one is handled or sent. The
// screen of a flood lets them all pass, so those that the device drops must not stay with the data, either. The port of
// another shard than 0 has nothing to do.
func (s *Shard) splitMADs() {
	if s.qp1.split {
		return
	}
	s.qp1.split = true
	if p, ok := link.As[link.MADSplitter](s.port); ok {
		p.SplitMADs()
	}
}

// postQP1 calls Post if necessary.
func (s *Shard) postQP1(now mono.Time) {
	s.splitMADs()
	s.qp1.blocked = s.nic.qp1.Post(now)
	s.qp1.post = false
	s.qp1.deadline = s.nic.qp1.NextTimeout()
}

// collectQP1 calls Collect if necessary, and updates the deadline.
func (s *Shard) collectQP1() {
	s.nic.qp1.Collect()
	s.qp1.collect = false
	s.qp1.deadline = s.nic.qp1.NextTimeout()
	if s.nic.closed && s.nic.qp1.Leaving() == 0 {
		s.nic.drained.Notify()
	}
}
