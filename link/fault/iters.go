package fault

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/conntrack"
	"github.com/goroce/roce/internal/recent"
	"github.com/goroce/roce/mono"
)

const (
	maxIter    = 255
	firstSlots = 1 << 8  // of a new tally; a power of two
	mostSlots  = 1 << 14 // of a tally: so many consecutive PSNs have a slot each; a power of two
	allSlots   = 1 << 24 // of all tallies together: 64 MiB
)

// iters counts transmissions per PSN. Each flow has a tally. In a tally of full size a PSN displaces the PSN that is
// mostSlots before it; a window of packets in flight is far smaller. A tally grows with the PSNs that it has seen. When
// all tallies together would exceed allSlots, the tallies of the flows that were idle for longest are removed.
type iters struct {
	tallies   map[flow]*tally
	order     recent.List[*tally]
	slots     int    // of all tallies
	forgotten uint64 // tallies of flows in use
	last      *tally // of the previous packet
}

// flow identifies the requests, or the responses, from one host to one queue pair. The two are separate because
// responses have the PSNs of the requests in the other direction.
type flow struct {
	dir      Direction
	response bool
	src, dst bth.GID
	qpn      bth.QPN
}

// tally has the counts of a flow. The slot of a PSN is the PSN modulo the number of slots.
type tally struct {
	recent.Entry[*tally]
	flow
	slots []transmissions
}

// transmissions is a slot of a tally: a PSN in the upper 24 bits, its count in the lower eight. 0: the slot is free.
type transmissions uint32

func newIters() *iters {
	return &iters{tallies: make(map[flow]*tally), order: recent.List[*tally]{Slack: conntrack.Idle / 64}}
}

// count counts a transmission and returns its number, from 1. Every transmission after maxIter has the number
// maxIter+1.
func (t *iters) count(now mono.Time, dir Direction, src, dst *bth.GID, p *bth.Packet) int {
	f := flow{dir, p.Info.Flags&bth.Response != 0, *src, *dst, p.DestQPN()}
	if t.last == nil || t.last.flow != f {
		if t.last = t.tallies[f]; t.last == nil {
			t.last = t.begin(now, f)
		}
	}
	t.order.Touch(now, &t.last.Entry)
	psn := transmissions(p.PSN())
	e := t.last.at(psn)
	for *e != 0 && *e>>8 != psn && len(t.last.slots) < mostSlots {
		t.grow(now, t.last)
		e = t.last.at(psn)
	}
	if *e>>8 != psn {
		*e = psn << 8
	}
	if *e&maxIter == maxIter {
		return maxIter + 1
	}
	*e++
	return int(*e & maxIter)
}

// begin makes the tally of a flow.
func (t *iters) begin(now mono.Time, f flow) *tally {
	t.makeRoom(now, firstSlots)
	x := &tally{flow: f, slots: make([]transmissions, firstSlots)}
	t.tallies[f] = x
	t.order.Add(now, &x.Entry, x)
	return x
}

// at returns the slot of a PSN.
func (x *tally) at(psn transmissions) *transmissions { return &x.slots[int(psn)&(len(x.slots)-1)] }

// grow doubles a tally. The PSNs in it keep their counts.
func (t *iters) grow(now mono.Time, x *tally) {
	t.order.Renew(now, &x.Entry) // so that makeRoom does not remove it
	t.makeRoom(now, len(x.slots))
	old := x.slots
	x.slots = make([]transmissions, 2*len(old))
	for _, e := range old {
		if e != 0 {
			*x.at(e >> 8) = e
		}
	}
}

// makeRoom reserves slots for a tally. It removes other tallies while the total exceeds allSlots.
func (t *iters) makeRoom(now mono.Time, slots int) {
	for t.slots += slots; t.slots > allSlots; {
		x, used, _ := t.order.Oldest()
		if now.Sub(used) < conntrack.Idle {
			t.forgotten++
		}
		t.slots -= len(x.slots)
		t.order.Remove(&x.Entry)
		delete(t.tallies, x.flow)
	}
}
