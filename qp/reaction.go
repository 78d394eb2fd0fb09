package qp

import "github.com/goroce/roce/mono"

// reaction is the reaction point: the rate a queue pair may send at.
//
// Both timers are periodic, so they need no real timer. advance makes up for their effects when the rate is needed
// next: at a transmission, at a CNP, or when a caller asks for the rate. A queue pair that is back at the line rate
// is released: it is not paced, and the next CNP acts like the first one.
type reaction struct {
	limited bool
	rate    Rate   // current rate, Rc
	target  Rate   // target rate, Rt
	alpha   uint32 // estimate of the congestion, in 1/alphaOne

	alphaAt mono.Time // the time that alpha belongs to
	timerAt mono.Time // when the increase timer was started, or expired last
	cutAt   mono.Time // of the last reduction

	timerStage int // expiries of the timer since then
	byteStage  int // and of the byte counter
	bytes      uint64
}

// alphaOne is an alpha of 1. With so many bits it decays to 0 in about 3600
// steps of 1/256, 0.2 s.
const alphaOne = 1 << 20

// reduce is what a CNP does:
//
//	Rt = Rc, Rc = Rc(1 - alpha/2), alpha = (1-g)alpha + g
//
// and the recovery starts over. If CNPs come faster than a notification point may send them, from several hosts or
// from an attacker, at most one in each ReduceInterval has an effect. The rate never falls below MinRate.
func (c *congestion) reduce(now mono.Time) {
	c.advance(now)
	switch {
	case !c.limited:
		c.reaction = reaction{limited: true, rate: c.LineRate, alpha: alphaOne}
		c.pacer = pacer{paid: now, holdUntil: mono.Never}
	case now.Sub(c.cutAt) < c.ReduceInterval:
		return
	}
	c.target = c.rate
	c.rate = max(c.rate-Rate(uint64(c.rate)*uint64(c.alpha)/(2*alphaOne)), c.MinRate)
	c.decay()
	c.alpha += uint32(c.Gain) * (alphaOne / gainOne)
	c.alphaAt, c.timerAt, c.cutAt = now, now, now
	c.timerStage, c.byteStage, c.bytes = 0, 0, 0
}

// decay is alpha = (1-g)alpha.
func (c *congestion) decay() {
	c.alpha = uint32(uint64(c.alpha) * uint64(gainOne-c.Gain) / gainOne)
}

// advance does what the timers would have done until now.
func (c *congestion) advance(now mono.Time) {
	if !c.limited {
		return
	}
	for now.Sub(c.alphaAt) >= c.AlphaInterval {
		if c.alpha == 0 {
			c.alphaAt = now
			break
		}
		c.alphaAt = c.alphaAt.Add(c.AlphaInterval)
		c.decay()
	}
	for c.limited && now.Sub(c.timerAt) >= c.IncreaseInterval {
		c.timerAt = c.timerAt.Add(c.IncreaseInterval)
		c.timerStage++
		c.increase()
	}
}

// count feeds the byte counter.
func (c *congestion) count(n int) {
	c.bytes += uint64(n)
	if c.bytes >= c.IncreaseBytes {
		c.bytes -= c.IncreaseBytes
		c.byteStage++
		c.increase()
	}
}

// increase is a stage of the recovery. The first stages halve the distance to the rate before the reduction. Later
// stages probe for more, and faster once both the timer and the byte counter have passed FastRecovery.
func (c *congestion) increase() {
	switch first, last := min(c.timerStage, c.byteStage), max(c.timerStage, c.byteStage); {
	case last < c.FastRecovery:
	case first > c.FastRecovery:
		c.target += c.HyperIncrease * Rate(first-c.FastRecovery)
	default:
		c.target += c.AdditiveIncrease
	}
	c.target = min(c.target, c.LineRate)
	c.rate = (c.rate + c.target + 1) / 2
	if c.rate >= c.LineRate-c.LineRate/1024 { // halving alone would never get there
		c.reaction = reaction{}
	}
}
