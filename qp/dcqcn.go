package qp

import (
	"fmt"
	"syscall"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/mono"
)

// Rate is a speed in bits per second on the wire: everything from the preamble
// of an Ethernet frame to the gap behind it counts.
type Rate uint64

// Units of [Rate].
const (
	Mbps Rate = 1e6
	Gbps Rate = 1e9
)

// String prints the rate as "9.4 Gb/s" or "40 Mb/s".
func (r Rate) String() string {
	if r >= Gbps {
		return fmt.Sprintf("%.4g Gb/s", float64(r)/float64(Gbps))
	}
	return fmt.Sprintf("%.4g Mb/s", float64(r)/float64(Mbps))
}

// DCQCN are the parameters of congestion control (Zhu et al., Congestion Control for Large-Scale RDMA Deployments,
// SIGCOMM 2015). A queue pair that has them marks its packets ECN-capable, answers packets that a switch has marked
// by congestion notification packets (CNP, annex A17.9), and slows down when it receives CNPs. That applies to
// requests and to responses of READs. The names in brackets are those that adapters use. A parameter that is 0 gets
// its default.
//
// Both ends should have congestion control on. An end without it sends no CNP,
// and ignores those it gets.
type DCQCN struct {
	LineRate Rate // speed of the port, where every queue pair begins (rpg_max_rate); required here
	MinRate  Rate // CNPs do not reduce the rate below it (rpg_min_rate); 0: a thousandth of LineRate

	// The notification point.
	CNPInterval time.Duration // least time between CNPs of a queue pair (min_time_between_cnps); 0: 50 µs
	CNPDSCP     uint8         // of CNPs (cnp_dscp), 1 to 63; 0: 48, as adapters
	ECT1        bool          // mark packets ECT(1), not ECT(0)

	// The reaction point: how much a CNP slows down.
	Gain           uint16        // g in 1/1024, 1 to 1023 (1024 - dce_tcp_g); 0: 4, the 1/256 of the paper
	AlphaInterval  time.Duration // alpha falls after so long without a CNP (dce_tcp_rtt); 0: 55 µs
	ReduceInterval time.Duration // least time between two reductions (rate_reduce_monitor_period); 0: 4 µs

	// The reaction point: how it recovers.
	IncreaseInterval time.Duration // of the increase timer (rpg_time_reset); 0: 55 µs
	IncreaseBytes    uint64        // of the byte counter (rpg_byte_reset); 0: 10 MB
	FastRecovery     int           // stages of it (rpg_threshold); 0: 5
	AdditiveIncrease Rate          // of the target rate per stage (rpg_ai_rate); 0: a thousandth of LineRate: 40 Mb/s of 40 Gb/s
	HyperIncrease    Rate          // per stage when both counters are beyond FastRecovery (rpg_hai_rate); 0: ten times AdditiveIncrease

	// Batch is the duration of a burst at the current rate. A queue pair that was slowed down sends in
	// bursts, so that a timer fires once for each burst, not for each packet. 0: 50 µs.
	Batch time.Duration
}

// Limits of the parameters. The stages of the increase are computed together when the rate is read, so the number of
// stages up to the line rate must be limited.
const (
	gainOne      = 1024
	maxLineRate  = 10_000 * Gbps
	maxIncreases = 1 << 16
	maxDSCP      = 63
	minInterval  = time.Microsecond
)

// WithDefaults returns the parameters with those that are 0 replaced by their
// defaults.
func (d DCQCN) WithDefaults() DCQCN {
	def(&d.MinRate, max(d.LineRate/1000, 1))
	def(&d.CNPInterval, 50*time.Microsecond)
	def(&d.CNPDSCP, 48)
	def(&d.Gain, 4)
	def(&d.AlphaInterval, 55*time.Microsecond)
	def(&d.ReduceInterval, 4*time.Microsecond)
	def(&d.IncreaseInterval, 55*time.Microsecond)
	def(&d.IncreaseBytes, 10_000_000)
	def(&d.FastRecovery, 5)
	def(&d.AdditiveIncrease, max(d.LineRate/1000, 1))
	def(&d.HyperIncrease, 10*d.AdditiveIncrease)
	def(&d.Batch, 50*time.Microsecond)
	return d
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Validate checks the parameters. An error wraps EINVAL and names the one that
// is wrong.
func (d *DCQCN) Validate() error {
	if why := d.fault(); why != "" {
		return errs.New("congestion control", syscall.EINVAL, "%s", why)
	}
	return nil
}

// fault says what is wrong with the parameters.
func (d *DCQCN) fault() string {
	p := d.WithDefaults()
	for _, c := range [...]struct {
		bad bool
		why string
	}{
		{p.LineRate == 0, "no line rate: the port does not tell its speed, set LineRate"},
		{p.LineRate > maxLineRate, fmt.Sprintf("line rate %v, the limit is %v", p.LineRate, maxLineRate)},
		{p.MinRate > p.LineRate, fmt.Sprintf("least rate %v is more than the line rate %v", p.MinRate, p.LineRate)},
		{p.CNPDSCP > maxDSCP, fmt.Sprintf("DSCP %d, the limit is %d", p.CNPDSCP, maxDSCP)},
		{p.Gain >= gainOne, fmt.Sprintf("gain %d, the limit is %d", p.Gain, gainOne-1)},
		{p.CNPInterval < 0 || p.ReduceInterval < 0, "a negative interval"},
		{p.AlphaInterval < minInterval || p.IncreaseInterval < minInterval || p.Batch < minInterval, fmt.Sprintf("an interval of less than %v", minInterval)},
		{p.FastRecovery < 0, fmt.Sprintf("%d stages of fast recovery", p.FastRecovery)},
		{p.AdditiveIncrease < p.LineRate/maxIncreases, fmt.Sprintf("an additive increase of %v would take more than %d stages to the line rate %v", p.AdditiveIncrease, maxIncreases, p.LineRate)},
		{p.AdditiveIncrease > p.LineRate || p.HyperIncrease > p.LineRate, "an increase of more than the line rate"},
		{p.FastRecovery > maxIncreases, fmt.Sprintf("%d stages of fast recovery, the limit is %d", p.FastRecovery, maxIncreases)},
	} {
		if c.bad {
			return c.why
		}
	}
	return ""
}

// CongestionState is the state of congestion control of a queue pair.
type CongestionState struct {
	On      bool    // it has congestion control
	Limited bool    // a CNP has slowed it down, and it has not recovered yet
	Rate    Rate    // current rate (Rc); the line rate when not limited
	Target  Rate    // the rate to which it recovers first (Rt)
	Alpha   float64 // estimate of the congestion, 0 to 1; 0 when not limited
}

// Congestion returns the state of congestion control at a time.
func (q *QP) Congestion(now mono.Time) CongestionState {
	c := q.cc
	if c == nil {
		return CongestionState{}
	}
	c.advance(now)
	if !c.limited {
		return CongestionState{On: true, Rate: c.LineRate, Target: c.LineRate}
	}
	return CongestionState{On: true, Limited: true, Rate: c.rate, Target: c.target, Alpha: float64(c.alpha) / alphaOne}
}

// newCongestion makes the congestion control of a queue pair, nil if it is off. UD has none: a datagram belongs to no
// connection whose rate could be limited.
func newCongestion(d *DCQCN, t Type) *congestion {
	if d == nil || t == UD || t == GSI {
		return nil
	}
	c := &congestion{DCQCN: d.WithDefaults()}
	c.reset()
	return c
}

// congestion is the congestion control of a queue pair: notification point
// (cnp.go), reaction point (reaction.go) and pacer (pacer.go).
type congestion struct {
	DCQCN
	notification
	reaction
	pacer
}

// reset forgets everything but the parameters.
func (c *congestion) reset() {
	c.notification, c.reaction, c.pacer = notification{}, reaction{}, pacer{holdUntil: mono.Never}
}

// Bits of the traffic class that are ECN's (RFC 3168).
const (
	ecnMask = 3
	ect0    = 2
	ect1    = 1
)

// ect returns the ECN bits of the packets of a queue pair.
func (c *congestion) ect() uint8 {
	if c.ECT1 {
		return ect1
	}
	return ect0
}

// dataPacket reports whether the sender of a marked packet has to slow down: for requests and responses of READs. An
// acknowledgement is too small to be the cause of congestion.
func dataPacket(f bth.OpcodeFlags) bool { return f&(bth.Request|bth.Read) != 0 }
