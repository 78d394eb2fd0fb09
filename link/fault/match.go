package fault

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/conntrack"
)

// armed is a rule at work.
type armed struct {
	Rule
	matched int
	fired   int
}

// candidate is a packet that rules look at.
type candidate struct {
	dir      Direction
	src, dst bth.GID
	p        *bth.Packet
	place    conntrack.Place
	iter     int
	age      time.Duration // since the network began
}

// fires reports whether the rule acts on the packet, and keeps count.
func (a *armed) fires(c *candidate, rng *rand.Rand) bool {
	if !a.matches(c) {
		return false
	}
	a.matched++
	limit := a.Count
	if limit == 0 && a.Nth > 0 && a.Every == 0 {
		limit = 1
	}
	switch {
	case a.matched < a.Nth,
		a.Every > 0 && a.Nth == 0 && a.matched%a.Every != 0,
		a.Every > 0 && a.Nth > 0 && (a.matched-a.Nth)%a.Every != 0,
		limit > 0 && a.fired >= limit,
		a.Probability > 0 && rng.Float64() >= a.Probability:
		return false
	}
	a.fired++
	return true
}

// matches reports whether the packet has all properties that the rule names.
func (a *armed) matches(c *candidate) bool {
	p := c.p
	return (a.Dir == 0 || a.Dir&c.dir != 0) &&
		a.Op.admits(p.Op) && (a.Ops.empty() || a.Ops.Has(p.Op)) &&
		a.QPN.admits(p.DestQPN()) && a.PSN.admits(p.PSN()) &&
		(a.Conn == 0 || a.Conn == c.place.Conn) &&
		(!a.RelPSN.set || c.place.Known && a.RelPSN.v == c.place.Rel) &&
		(a.Iter == 0 || a.Iter == c.iter) &&
		c.age >= a.After && (a.Until == 0 || c.age < a.Until) &&
		(!a.Addr.set || is(c.src, a.Addr.v) || is(c.dst, a.Addr.v)) &&
		(!a.Src.set || is(c.src, a.Src.v)) && (!a.Dst.set || is(c.dst, a.Dst.v)) &&
		(a.Func == nil || a.Func(c.dir, p))
}

// is reports whether a GID is that of an address.
func is(g bth.GID, a netip.Addr) bool { return g == bth.GID(a.As16()) }

const (
	maxIter  = 255
	iterSize = 1 << 14 // power of two: consecutive PSNs of a flow that are told apart
	maxFlows = 1 << 10
)

// iters counts transmissions per PSN. Each flow has a separate table, in which a PSN replaces the one
// iterSize before it: a window is far smaller. The memory is bounded: with too many flows all counts
// begin anew.
type iters struct {
	flows map[flow]*[iterSize]transmissions
	last  flow // of the packet before, and its table
	table *[iterSize]transmissions
}

// flow identifies the requests to a queue pair, or the responses to it, which have the PSNs of the other
// direction.
type flow struct {
	dir      Direction
	response bool
	dst      bth.GID
	qpn      bth.QPN
}

// transmissions of a PSN: the PSN in the upper 24 bits, the count in the lower eight.
type transmissions uint32

// count notes one more transmission and returns its number, from 1.
func (t *iters) count(dir Direction, dst *bth.GID, p *bth.Packet) int {
	f := flow{dir, p.Info.Flags&bth.Response != 0, *dst, p.DestQPN()}
	if t.table == nil || t.last != f {
		t.last, t.table = f, t.flows[f]
		if t.table == nil {
			if t.flows == nil || len(t.flows) == maxFlows {
				t.flows = make(map[flow]*[iterSize]transmissions)
			}
			t.table = new([iterSize]transmissions)
			t.flows[f] = t.table
		}
	}
	psn := transmissions(p.PSN())
	e := &t.table[psn%iterSize]
	if *e>>8 != psn {
		*e = psn << 8
	}
	if *e&maxIter < maxIter {
		*e++
	}
	return int(*e & maxIter)
}
