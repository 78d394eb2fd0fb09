package fault

import (
	"cmp"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/conntrack"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// Faults is a set of actions.
type Faults uint16

// Of returns the set of one action.
func Of(a Action) Faults { return 1 << a }

// Has reports whether the action is in the set.
func (f Faults) Has(a Action) bool { return f&(1<<a) != 0 }

// String returns the names of the actions, joined by "+", or "none".
func (f Faults) String() string {
	var s []string
	for a := Drop; a <= Rewrite; a++ {
		if f.Has(a) {
			s = append(s, a.String())
		}
	}
	if s == nil {
		return "none"
	}
	return strings.Join(s, "+")
}

// Verdict is the decision about a packet, with the reason.
type Verdict struct {
	// Pass: the caller sends the packet now, with the bytes that its buffer has after the call.
	// Otherwise the packet was dropped or is held back.
	Pass bool

	Faults Faults        // what was done to it
	Rule   int           // which rule did it, from 0 in the order of Config.Rules; -1: none, the rates did
	Delay  time.Duration // how long it is held back at most
	Held   int           // how many copies leave later

	// Refused is the reason why a fault was not possible: there was no room to hold the packet
	// back, or the packet lacks the header that a rule rewrites. The packet then passes. Empty:
	// no fault was refused.
	Refused string

	Place conntrack.Place // zero unless a rule or Config.Track asks for connections
	Iter  int             // which transmission of its PSN it is; 0 unless a rule or Config.Track asks

	copied []*held
}

// engine applies faults to the packets of both directions. It does no I/O and reads no clock.
type engine struct {
	cfg    Config
	layout frame.Layout
	start  mono.Time
	tx, rx side
	rules  []*armed
	iters  *iters           // nil until a rule needs it
	conns  *conntrack.Table // nil until a rule needs it

	at     place // the parts of the packet that decide handles
	packet bth.Packet
	whole  frame.Packet // with headers, for the ICRC
	copied []*held      // packets held back for the last verdict
}

// side is the state of one direction.
type side struct {
	dir   Direction
	draws []draw
	rng   *rand.Rand
	hold  holder
	count Counters
}

// draw is a random fault that happens to a share of the packets.
type draw struct {
	fault Faults
	rate  float64
}

// setRates sets the random faults. Only those that can happen are drawn for each packet.
func (s *side) setRates(r Rates) {
	s.draws = s.draws[:0]
	for _, d := range [...]draw{{Of(Drop), r.Loss}, {Of(Corrupt), r.Corrupt}, {Of(ECN), r.ECN}, {Of(Dup), r.Dup}, {Of(Reorder), r.Reorder}, {Of(Delay), r.Delay}} {
		if d.rate > 0 {
			s.draws = append(s.draws, d)
		}
	}
}

func (s *side) snapshot() Counters {
	c := s.count
	c.Held = len(s.hold.reordered) + len(s.hold.timed)
	return c
}

// init prepares the engine for frames of a layout. c is valid.
func (e *engine) init(c Config, layout frame.Layout, now mono.Time) {
	c.ReorderBy = cmp.Or(c.ReorderBy, 3)
	c.ReorderTime = cmp.Or(c.ReorderTime, time.Millisecond)
	c.DelayTime = cmp.Or(c.DelayTime, time.Millisecond)
	c.Hold = cmp.Or(c.Hold, 1024)
	e.cfg, e.layout, e.start = c, layout, now
	side := func(dir Direction, r Rates) side {
		// Each direction draws from its own stream, so that the traffic of one
		// does not change the faults of the other.
		s := side{dir: dir, rng: rand.New(rand.NewPCG(c.Seed, uint64(dir))), hold: holder{limit: c.Hold}}
		s.setRates(r)
		return s
	}
	e.tx, e.rx = side(Tx, c.Tx), side(Rx, c.Rx)
	if c.Track {
		e.iters, e.conns = newIters(), conntrack.New()
	}
	for _, r := range c.Rules {
		e.addRule(r)
	}
}

func (e *engine) addRule(r Rule) {
	e.rules = append(e.rules, &armed{Rule: r})
	if r.Iter != 0 && e.iters == nil {
		e.iters = newIters()
	}
	if (r.Conn != 0 || r.RelPSN.set) && e.conns == nil {
		e.conns = conntrack.New()
	}
}

// decide chooses the faults of a packet. It changes the packet in place, and it holds back a copy
// for a packet that is delayed or duplicated. The caller has set e.at.
func (e *engine) decide(s *side, now mono.Time, f *link.Frame) Verdict {
	s.count.Packets++
	v := Verdict{Pass: true, Rule: -1}
	e.copied = e.copied[:0]
	if r := e.match(s, now, &v); r != nil {
		if r.Action != Pass {
			s.count.Rules++
		}
		e.apply(s, now, f, Of(r.Action), r, &v)
		return v
	}
	if len(s.draws) == 0 {
		return v
	}
	var fate Faults
	for _, d := range s.draws {
		if s.rng.Float64() < d.rate {
			fate |= d.fault
		}
	}
	e.apply(s, now, f, fate, &noRule, &v)
	return v
}

// match returns the first rule that fires for the packet, or nil.
func (e *engine) match(s *side, now mono.Time, v *Verdict) *Rule {
	at := &e.at
	if len(e.rules) == 0 && e.conns == nil || e.packet.Parse(at.body) != nil {
		return nil
	}
	p := &e.packet
	src, dst := at.addrs()
	if e.conns != nil {
		v.Place = e.conns.Observe(now, src, dst, p)
	}
	if e.iters != nil {
		v.Iter = e.iters.count(now, s.dir, &src, &dst, p)
	}
	c := candidate{dir: s.dir, src: src, dst: dst, p: p, place: v.Place, iter: v.Iter, age: now.Sub(e.start)}
	for i, r := range e.rules {
		if r.fires(&c, s.rng) {
			v.Rule = i
			return &r.Rule
		}
	}
	return nil
}

// noRule has the parameters of random faults: those of Config.
var noRule Rule

// apply applies faults to a packet, with the parameters of a rule.
func (e *engine) apply(s *side, now mono.Time, fr *link.Frame, f Faults, r *Rule, v *Verdict) {
	at := &e.at
	if f.Has(Drop) {
		s.count.Dropped++
		v.Pass, v.Faults = false, Of(Drop)
		return
	}
	raw := false // the ICRC is to stay wrong
	if f.Has(Corrupt) && e.corrupt(s, fr, r, v) {
		s.count.Corrupted++
		v.Faults |= Of(Corrupt)
		raw = r.ICRC != ICRCRight
	}
	if f.Has(Rewrite) && e.rewrite(fr, r, v) {
		s.count.Rewritten++
		v.Faults |= Of(Rewrite)
		raw = r.ICRC == ICRCWrong
	}
	mark := f.Has(ECN) && at.markable(s.dir)
	if mark {
		s.count.Marked++
		v.Faults |= Of(ECN)
		markCE(at.ip)
	}
	hold := func(due mono.Time, after uint64) bool {
		h := s.hold.put(fr, due, after)
		if h == nil {
			s.count.Overflow++
			v.Refused = "too many packets are held back already"
			return false
		}
		h.raw = raw
		if mark && h.frame.Env != nil {
			h.env.TrafficClass |= 3
		}
		e.copied = append(e.copied, h)
		return true
	}
	switch {
	case f.Has(Delay):
		v.Delay = cmp.Or(r.Time, e.cfg.DelayTime)
		if j := cmp.Or(r.Jitter, e.cfg.DelayJitter); j > 0 {
			if v.Delay += time.Duration(s.rng.Uint64N(uint64(j) + 1)); v.Delay < 0 { // overflow
				v.Delay = math.MaxInt64
			}
		}
		if hold(now.Add(v.Delay), noCount) {
			v.Pass = false
			v.Faults |= Of(Delay)
			s.count.Delayed++
		}
	case f.Has(Reorder):
		v.Delay = cmp.Or(r.Time, e.cfg.ReorderTime)
		if hold(now.Add(v.Delay), s.hold.passed+uint64(cmp.Or(r.By, e.cfg.ReorderBy))) {
			v.Pass = false
			v.Faults |= Of(Reorder)
			s.count.Reordered++
		}
	case f.Has(Dup):
		copies := cmp.Or(r.Copies, 1)
		for i := range copies {
			if !hold(now, noCount) {
				s.count.Overflow += uint64(copies - i - 1) // there is no room for the other copies, either
				break
			}
			v.Faults |= Of(Dup)
			s.count.Duplicated++
		}
	case mark && at.env != nil:
		// Other packets share the envelope, so it must not change. A copy with its own
		// envelope takes the place of the packet, and is due at once.
		v.Pass = !hold(now, noCount)
	case f.Has(Pass):
		v.Faults |= Of(Pass)
	}
	v.copied, v.Held = e.copied, len(e.copied)
}
