package link

import (
	"time"

	"github.com/goroce/roce/bth"
)

// Filterer is a Port whose driver can drop packets that no queue pair can take before they
// use up the receive queue of the Port: in the kernel, or on the card.
type Filterer interface {
	// Filter starts early drop for all Ports of the same interface and returns its control.
	// From then on the Ports receive, of the packets to unicast addresses, those to admitted
	// queue pairs and the management datagrams that the limit allows. Call it before
	// packets are expected, once. [ErrUnsupported]: there is no early drop here, and the
	// Ports receive every packet.
	Filter(MADLimit) (Filter, error)
}

// Filter controls early drop. Its methods may be called by any goroutine at any time, also
// after the Ports were closed. A driver that cannot carry out a call stops dropping early, for
// good: then the Ports receive every packet, and Info().Mode says so.
type Filter interface {
	// Admit lets packets to a queue pair reach the Port: those from one source address, or
	// from every address if from is zero. It replaces what an earlier Admit has said about
	// the queue pair, so that no packet that both allow is dropped meanwhile.
	Admit(n bth.QPN, from bth.GID)

	// Pause drops the packets to a datagram queue pair that has no receives, until the next
	// Admit.
	Pause(n bth.QPN)

	// Forget drops the packets to a queue pair from now on.
	Forget(n bth.QPN)

	// Drops returns how many packets were dropped early, by reason.
	Drops() FilterDrops
}

// FloodFilter is a Filter that drops early only during a flood: else the device drops strange
// packets itself, and counts them by reason. It has no limit for management datagrams. It may let
// packets pass that a Filter drops, such as those to a queue pair that is paused or gone.
type FloodFilter interface {
	Filter

	// Flooded says that strange packets arrive at a high rate. The driver drops early for a
	// while, for longer if it is told again soon afterwards.
	Flooded()
}

// FilterDrops counts packets that a [Filter] has dropped, by the first check that failed.
type FilterDrops struct {
	Malformed uint64 // too short for a BTH, or of another transport version
	NoQP      uint64 // no such queue pair
	WrongPeer uint64 // not from the address that the queue pair was admitted with
	NoReceive uint64 // to a queue pair that is paused
	MADFlood  uint64 // management datagrams beyond the limit
}

// MADLimit bounds the management datagrams that a [Filter] lets through.
type MADLimit struct {
	Idle, Busy MADRate       // while no connection transfers data; while one does
	BusyFor    time.Duration // how long after a data packet connections count as transferring data
}

// MADRate is a rate with bursts. When half of a burst is used up, each group of source
// addresses has an equal share of the rate.
type MADRate struct {
	Gap   time.Duration // between two datagrams: 1/rate
	Burst time.Duration // so much of the rate may be used up at once
}
