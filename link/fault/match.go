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
	iterSize = 1 << 14 // power of two
)

// iters counts transmissions per PSN. It is direct-mapped and forgets on a
// collision: a QP's window is far smaller than the table, and memory stays
// bounded whatever comes.
type iters [iterSize]struct {
	key   uint64
	count uint8
}

// count notes one more transmission and returns its number, from 1.
func (t *iters) count(dir Direction, dst *bth.GID, p *bth.Packet) int {
	qpn, psn := uint64(p.DestQPN()), uint64(p.PSN())
	// Hosts that are behind one port of a bridge may use the same numbers.
	host := uint64(dst[14]^dst[12]^dst[8])<<8&0xF00 | uint64(dst[15])
	key := 1<<63 | host<<51 | uint64(dir)<<49 | qpn<<24 | psn
	if p.Info.Flags&bth.Response != 0 {
		key |= 1 << 48 // acknowledgements reuse the numbers of the other side
	}
	e := &t[(psn+(key>>24)*0x9E3779B1)%iterSize]
	if e.key != key {
		e.key, e.count = key, 0
	}
	if e.count < maxIter {
		e.count++
	}
	return int(e.count)
}
