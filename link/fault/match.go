package fault

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/conntrack"
)

// armed is a rule with its counters.
type armed struct {
	Rule
	matched int
	fired   int
}

// candidate is the packet that the rules are compared with.
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
