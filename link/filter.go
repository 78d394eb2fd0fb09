package link

import (
	"time"

	"github.com/goroce/roce/bth"
)

// Filterer is a Port whose driver can drop packets that no queue pair accepts before they
// fill the receive queue of the Port: in the kernel, or on the card.
type Filterer interface {
	// Filter starts early drop for all Ports of the same interface and returns its control.
	// From then on, of the packets to unicast addresses the Ports receive only those to
	// admitted queue pairs, and management datagrams within the limit. Call it once, before
	// the first packets. It fails with [ErrUnsupported] if there is no early drop: the Ports
	// then receive every packet.
	Filter(MADLimit) (Filter, error)
}

// Filter controls early drop. Its methods may be called by any goroutine at any time, also
// after the Ports were closed. If a driver cannot carry out a call, it stops early drop for
// ever: the Ports then receive every packet, and Info().Mode says so.
type Filter interface {
	// Admit makes the filter pass packets to a queue pair: from one source address, or
	// from every address if from is zero. It replaces an earlier Admit for the queue pair;
	// meanwhile the filter drops no packet that both allow.
	Admit(n bth.QPN, from bth.GID)

	// Pause makes the filter drop packets to a datagram queue pair without receives, until
	// the next Admit.
	Pause(n bth.QPN)

	// Forget makes the filter drop packets to a queue pair from now on.
	Forget(n bth.QPN)

	// Drops returns the numbers of packets that were dropped early, by
	// reason.
	Drops() FilterDrops
}

// FloodFilter is a Filter that drops early only during a flood: otherwise the device drops
// strange packets itself, and counts them by reason. It has no limit for management datagrams. It
// may pass packets that a Filter drops, such as those to a queue pair that is paused or was
// removed.
type FloodFilter interface {
	Filter

	// Flooded tells the driver that strange packets arrive at a high rate. The driver drops
	// early for some time, and for longer if the next call follows soon.
	Flooded()
}

// FilterDrops counts packets that a [Filter] has dropped, by the first check that failed.
type FilterDrops struct {
	Malformed uint64 // too short for a BTH, or of another transport version
	NoQP      uint64 // no such queue pair
	WrongPeer uint64 // not from the admitted address of the queue pair
	NoReceive uint64 // to a queue pair that is paused
	MADFlood  uint64 // management datagrams beyond the limit
}

// MADLimit bounds the management datagrams that a [Filter] passes.
type MADLimit struct {
	Idle, Busy MADRate       // while no connection transfers data; while one does
	BusyFor    time.Duration // time after a data packet during which connections count as transferring data
}

// MADRate is a rate with bursts. When half of a burst is used up, each group of source
// addresses has an equal share of the rate.
type MADRate struct {
	Gap   time.Duration // between two datagrams: 1/rate
	Burst time.Duration // part of the rate that may be used at once
}
