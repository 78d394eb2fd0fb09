package fault

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/conntrack"
	"github.com/goroce/roce/internal/recent"
	"github.com/goroce/roce/mono"
)

const (
	maxIter    = 255
	firstSlots = 1 << 8  // of a tally
	mostSlots  = 1 << 14 // powers of two: so many consecutive PSNs of a flow are told apart
	allSlots   = 1 << 24 // of all tallies together: 64 MiB
)

// iters counts transmissions per PSN. Each flow has a tally of its own, in which a PSN displaces the one that is mostSlots
// before it: a window is far smaller. A tally grows with the PSNs that it has seen. When all tallies together would be larger
// than allSlots, those of the flows that were silent for longest are forgotten.
type iters struct {
	tallies   map[flow]*tally
	order     recent.List[*tally]
	slots     int    // of all tallies
	forgotten uint64 // tallies of flows in use
	last      *tally // of the packet before
}

// flow is what goes from a host to a queue pair: requests, or responses, which have the PSNs of the other direction.
type flow struct {
	dir      Direction
	response bool
	src, dst bth.GID
	qpn      bth.QPN
}

// tally is the count of a flow. A PSN is in the slot that is its remainder.
type tally struct {
	recent.Entry[*tally]
	flow
	slots []transmissions
}

// transmissions of a PSN: the PSN in the upper 24 bits, the count in the lower eight; 0: the slot is free.
type transmissions uint32

func newIters() *iters {
	return &iters{tallies: make(map[flow]*tally), order: recent.List[*tally]{Slack: conntrack.Idle / 64}}
}

// count notes one more transmission and returns its number, from 1. Those behind maxIter are all maxIter+1.
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
	t.order.Renew(now, &x.Entry) // the last that is forgotten
	t.makeRoom(now, len(x.slots))
	old := x.slots
	x.slots = make([]transmissions, 2*len(old))
	for _, e := range old {
		if e != 0 {
			*x.at(e >> 8) = e
		}
	}
}

// makeRoom takes slots for a tally. It forgets others as long as there are too many.
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
