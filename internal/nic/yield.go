package nic

import (
	"time"

	"github.com/goroce/roce/mono"
)

// yieldPolicy decides, on a machine with one processor, whether an idle background
// goroutine calls sched_yield before it sleeps. If the peer runs on the same processor,
// one yield lets the peer handle all its packets, without a sleep and a wake-up for each.
// If the processor goes to a program that sends us nothing, yielding only adds delay. After
// such a yield the policy backs off: it pauses, twice as long each time.
type yieldPolicy struct {
	took  time.Duration // duration of the last yield; 0: its packets are already counted
	next  mono.Time     // no yield before this time
	pause time.Duration // the last pause, halved by each good yield since
}

const (
	// A yield was bad if it took longer than shortYield and brought less than one packet
	// for each perPacket. A packet costs some microseconds, on an emulated processor a
	// hundred.
	perPacket  = 200 * time.Microsecond
	shortYield = time.Millisecond

	// A program that computes keeps the processor for some milliseconds. With these
	// pauses it delays only few packets.
	minPause = 4 * time.Millisecond
	maxPause = 256 * time.Millisecond
)

// allows reports whether the goroutine should yield now.
func (y *yieldPolicy) allows(now mono.Time) bool { return now >= y.next }

// yielded records the duration of a yield.
func (y *yieldPolicy) yielded(took time.Duration) { y.took = max(took, 1) }

// received records the number of packets after a yield.
func (y *yieldPolicy) received(packets int, now mono.Time) {
	switch {
	case y.took == 0: // no yield since the last call
	case y.took > shortYield && y.took > time.Duration(packets)*perPacket:
		y.pause = min(max(2*y.pause, minPause), maxPause)
		y.next = now.Add(y.pause)
	default:
		y.pause /= 2
	}
	y.took = 0
}

// offerPolicy decides, on a machine with several processors, whether a background goroutine that finds nothing calls
// sched_yield between two polls. Threads that it has woken, or those of a peer on this machine, may wait for its processor while
// it polls. But a program that computes may take the processor and keep it for some milliseconds. After such a yield
// the policy backs off: it pauses, twice as long if the last pause has ended a short time ago.
type offerPolicy struct {
	next  mono.Time     // no yield before this time
	pause time.Duration // the last pause
}

const (
	minOffer = sharedFirst
	maxOffer = 2 * time.Second

	// The next pause is short again if the last pause ended more than calmOffers times its length ago.
	calmOffers = 8
)

// allows reports whether the goroutine should yield now.
func (p *offerPolicy) allows(now mono.Time) bool { return now >= p.next }

// yielded notes a yield.
func (p *offerPolicy) yielded(from, to mono.Time) {
	if to.Sub(from) < sharedTurn {
		return
	}
	if from.Sub(p.next) > calmOffers*p.pause {
		p.pause = 0
	}
	p.pause = min(max(2*p.pause, minOffer), maxOffer)
	p.next = to.Add(p.pause)
}
