// Package txpolicy decides what a driver does about packets that the kernel refuses:
// how long it waits for room, and when it takes super-packets for what does not work.
// It reads no clock: time is an argument.
package txpolicy

import (
	"time"

	"github.com/goroce/roce/bth"
)

// Limit is how long a message waits for room that the kernel does not announce: in the
// transmit ring of a card, or in memory. A ring that is full has room again much sooner,
// unless the card hangs or a filter drops the packets.
const Limit = 5 * time.Millisecond

// Patience limits how long a sender without room keeps its messages. The zero value is
// ready. It belongs to one goroutine at a time.
type Patience struct {
	since   time.Time // of the first refusal since something went
	waiting bool
	spent   bool
}

// Refused notes that there was no room, and reports whether to keep the message and try
// again later. Otherwise the message is to be given up, and so is each that is refused
// from then on until one goes: so one that never goes does not hold up the others for
// long.
func (p *Patience) Refused(now time.Time) (keep bool) {
	if !p.waiting {
		p.waiting, p.since = true, now
	}
	p.spent = p.spent || now.Sub(p.since) >= Limit
	return !p.spent
}

// Went notes that a message has left.
func (p *Patience) Went() {
	if p.waiting {
		*p = Patience{}
	}
}

const (
	// strikes is how often in a row a super-packet must be refused, and its packets go,
	// before super-packets are given up for a while.
	strikes = 3

	// shortest and longest are for how long they are given up: longer each time.
	shortest = 5 * time.Second
	longest  = 5 * time.Minute
)

// Trial finds out whether something works that may stop to work, and begin again. The
// zero value takes it to work.
type Trial struct {
	failures int
	pause    time.Duration
	until    time.Time
}

// Failed notes that it did not work, and reports whether it is given up for now.
func (t *Trial) Failed(now time.Time) bool {
	if t.failures++; t.failures < strikes {
		return false
	}
	t.GiveUp(now)
	return true
}

// GiveUp gives it up for now.
func (t *Trial) GiveUp(now time.Time) {
	t.pause = min(max(2*t.pause, shortest), longest)
	t.until = now.Add(t.pause)
	t.failures = strikes - 1 // after the pause one failure more will do
}

// Worked notes that it worked.
func (t *Trial) Worked() { *t = Trial{} }

// Doubted reports whether it has failed since it worked.
func (t *Trial) Doubted() bool { return t.failures > 0 }

// Allowed reports whether to try it.
func (t *Trial) Allowed(now time.Time) bool { return t.until.IsZero() || !now.Before(t.until) }

// maxPeers is how many peers a Trials remembers. One more pushes another out, which
// then has to prove itself again.
const maxPeers = 64

// Trials has a Trial for each peer: a route, a tunnel or IPsec may refuse what the rest
// takes. The zero value is ready. It belongs to one goroutine at a time.
type Trials struct{ peers map[bth.GID]*Trial }

// Failed notes that it did not work with a peer.
func (t *Trials) Failed(now time.Time, peer bth.GID) {
	p := t.peers[peer]
	if p == nil {
		if t.peers == nil {
			t.peers = make(map[bth.GID]*Trial)
		}
		for other := range t.peers {
			if len(t.peers) < maxPeers {
				break
			}
			delete(t.peers, other)
		}
		p = new(Trial)
		t.peers[peer] = p
	}
	p.Failed(now)
}

// Worked notes that it worked with a peer.
func (t *Trials) Worked(peer bth.GID) {
	if len(t.peers) > 0 {
		delete(t.peers, peer)
	}
}

// Allowed reports whether to try it with a peer.
func (t *Trials) Allowed(now time.Time, peer bth.GID) bool {
	p := t.peers[peer]
	return p == nil || p.Allowed(now)
}

// Any reports whether there is a peer with which it did not work the last time. If not,
// it is allowed with all.
func (t *Trials) Any() bool { return len(t.peers) > 0 }

// Paused returns with how many peers it is not tried now.
func (t *Trials) Paused(now time.Time) (n int) {
	for _, p := range t.peers {
		if !p.Allowed(now) {
			n++
		}
	}
	return n
}
