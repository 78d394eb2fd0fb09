package roce

import (
	"time"

	"github.com/goroce/roce/mono"
)

// turns decides whether the background goroutine, having found nothing, gives the
// only processor to other programs before it sleeps. If the peer is one of them that is
// much the better: it does all it can, not one packet, and nobody is put to sleep and
// waked. But who is awake waits for its turn like everybody, where who sleeps would be
// waked at once; and others may use up theirs without sending us anything. Then there
// are none for a while.
type turns struct {
	gone  time.Duration // how long the last one was, until its packets are counted
	later mono.Time     // not before
	pause time.Duration // the last one, halved by each good turn since
}

const (
	// A turn was too long if it brought not one packet for each perPacket, or it was no
	// longer than shortTurn: a packet costs some microseconds, an emulated processor a hundred.
	perPacket = 200 * time.Microsecond
	shortTurn = time.Millisecond

	// Each bad turn makes the pause twice as long. One of somebody who computes takes some
	// milliseconds: in the end it delays few packets.
	minPause = 4 * time.Millisecond
	maxPause = 256 * time.Millisecond
)

// due reports whether it is time for one.
func (t *turns) due(now mono.Time) bool { return now >= t.later }

// over notes one.
func (t *turns) over(took time.Duration) { t.gone = max(took, 1) }

// brought notes how many packets there were after it.
func (t *turns) brought(packets int, now mono.Time) {
	switch {
	case t.gone == 0: // none since the last time
	case t.gone > shortTurn && t.gone > time.Duration(packets)*perPacket:
		t.pause = min(max(2*t.pause, minPause), maxPause)
		t.later = now.Add(t.pause)
	default:
		t.pause /= 2
	}
	t.gone = 0
}
