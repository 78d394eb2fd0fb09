// Package txpolicy decides what a driver does about packets that the kernel refuses: how long it waits for room, and
// when it stops sending super-packets. It reads no clock: time is an argument.
package txpolicy

import (
	"time"

	"github.com/goroce/roce/bth"
)

// Limit is how long a message waits for room in the transmit ring of a card, or for memory, because the kernel does not
// tell when there is room again. A full ring has room again much sooner, unless the card hangs or a filter drops the
// packets.
const Limit = 5 * time.Millisecond

// Patience limits how long a sender without room keeps its messages. The zero value is
// ready. It belongs to one goroutine at a time.
type Patience struct {
	since   time.Time // time of the first refusal since the last message was sent
	waiting bool
	spent   bool
}

// Refused notes that there was no room. It returns true if the sender must keep the message and try again later, and
// false if it must drop the message. From then on it returns false until a message is sent, so a message that the
// kernel never takes does not delay the others for long.
func (p *Patience) Refused(now time.Time) (keep bool) {
	if !p.waiting {
		p.waiting, p.since = true, now
	}
	p.spent = p.spent || now.Sub(p.since) >= Limit
	return !p.spent
}

// Went notes that a message was sent.
func (p *Patience) Went() {
	if p.waiting {
		*p = Patience{}
	}
}

const (
	// strikes is the number of consecutive failures after which a Trial pauses. A failure is a refused super-packet
	// whose packets the kernel takes one by one.
	strikes = 3

	// shortest and longest are the bounds of the pause: it becomes longer each time.
	shortest = 5 * time.Second
	longest  = 5 * time.Minute
)

// Trial tells the caller when to try an operation that may fail for some time and work again later. The zero value
// assumes that the operation works.
type Trial struct {
	failures int
	pause    time.Duration
	until    time.Time
}

// Failed notes a failure, and reports whether a pause has begun.
func (t *Trial) Failed(now time.Time) bool {
	if t.failures++; t.failures < strikes {
		return false
	}
	t.GiveUp(now)
	return true
}

// GiveUp begins a pause.
func (t *Trial) GiveUp(now time.Time) {
	t.pause = min(max(2*t.pause, shortest), longest)
	t.until = now.Add(t.pause)
	t.failures = strikes - 1 // after the pause one more failure begins the next one
}

// Worked notes a success.
func (t *Trial) Worked() { *t = Trial{} }

// Doubted reports whether there was a failure since the last success.
func (t *Trial) Doubted() bool { return t.failures > 0 }

// Allowed reports whether there is no pause.
func (t *Trial) Allowed(now time.Time) bool { return t.until.IsZero() || !now.Before(t.until) }

// maxPeers is how many peers a Trials remembers. One more replaces another one, whose failures are then forgotten.
const maxPeers = 64

// Trials has a Trial for each peer: a route, a tunnel or IPsec may refuse super-packets that other paths take. The zero
// value is ready. It belongs to one goroutine at a time.
type Trials struct{ peers map[bth.GID]*Trial }

// Failed notes a failure with a peer.
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

// Worked notes a success with a peer.
func (t *Trials) Worked(peer bth.GID) {
	if len(t.peers) > 0 {
		delete(t.peers, peer)
	}
}

// Allowed reports whether there is no pause for a peer.
func (t *Trials) Allowed(now time.Time, peer bth.GID) bool {
	p := t.peers[peer]
	return p == nil || p.Allowed(now)
}

// Any reports whether the last attempt with some peer has failed. If not, all peers are allowed.
func (t *Trials) Any() bool { return len(t.peers) > 0 }

// Paused returns the number of peers with a pause.
func (t *Trials) Paused(now time.Time) (n int) {
	for _, p := range t.peers {
		if !p.Allowed(now) {
			n++
		}
	}
	return n
}
