package fault

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/roce/mono"
)

// Direction is the direction of packets through a Port.
type Direction uint8

// The directions; Both is their union.
const (
	Tx   Direction = 1 << iota // sent through the Port
	Rx                         // received through it
	Both = Tx | Rx
)

var directionNames = [...]string{Tx: "tx", Rx: "rx", Both: "both"}

// String returns "tx", "rx" or "both".
func (d Direction) String() string { return nameOf("Direction", directionNames[:], d) }

// nameOf returns the name of a value, or its type and number if it has none.
func nameOf[T ~uint8](typ string, names []string, v T) string {
	if int(v) < len(names) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", typ, uint8(v))
}

// Rates are the probabilities, 0 to 1, of each fault for a packet. The faults
// are independent: one packet may be corrupted and delayed.
type Rates struct {
	Loss    float64 // dropped
	Dup     float64 // delivered twice
	Reorder float64 // held back until Config.ReorderBy others have passed it
	Delay   float64 // held back for Config.DelayTime
	Corrupt float64 // one random bit of BTH..ICRC inverted
	ECN     float64 // marked Congestion Experienced, whether ECN-capable or not
}

// Config describes an unreliable network. The zero value does nothing.
type Config struct {
	Seed   uint64 // of all random choices; the same seed and packets give the same faults
	Tx, Rx Rates

	ReorderBy   int           // how many packets overtake a reordered one; 0 means 3
	ReorderTime time.Duration // but it is held no longer than this; 0 means 1 ms
	DelayTime   time.Duration // how long a delayed packet is held; 0 means 1 ms
	DelayJitter time.Duration // added to it, uniformly between 0 and this

	// Hold is how many packets may be held back in each direction; 0 means
	// 1024. If as many are held back, the next packet passes at once and
	// counts as Overflow.
	Hold int

	// Track counts connections and transmissions for the Verdict of each packet, even if no rule
	// needs them.
	Track bool

	Rules []Rule // looked through in order; the first that fires decides

	// Now is the clock for the release of held packets, for simulations with
	// a separate time. nil means the clock of the system (or of the
	// testing/synctest bubble).
	Now func() mono.Time
}

// Enabled reports whether the configuration can change the traffic.
func (c *Config) Enabled() bool {
	return c.Tx != Rates{} || c.Rx != Rates{} || len(c.Rules) > 0
}

// Validate finds errors that flags and files can contain.
func (c *Config) Validate() error {
	for _, dir := range []struct {
		name string
		r    Rates
	}{{"tx", c.Tx}, {"rx", c.Rx}} {
		for _, f := range faults {
			if v := *f.of(&dir.r); !(v >= 0 && v <= 1) { // NaN too
				return fmt.Errorf("fault: %s rate %s=%v is not between 0 and 1", f.flag, dir.name, v)
			}
		}
	}
	for _, n := range []struct {
		name     string
		negative bool
		v        any
	}{
		{"reorder-by", c.ReorderBy < 0, c.ReorderBy}, {"reorder-time", c.ReorderTime < 0, c.ReorderTime},
		{"delay-time", c.DelayTime < 0, c.DelayTime}, {"delay-jitter", c.DelayJitter < 0, c.DelayJitter}, {"hold", c.Hold < 0, c.Hold},
	} {
		if n.negative {
			return fmt.Errorf("fault: %s %v is negative", n.name, n.v)
		}
	}
	for i := range c.Rules {
		if err := c.Rules[i].Check(); err != nil {
			return fmt.Errorf("fault: rule %v: %w", &c.Rules[i], err)
		}
	}
	return nil
}

// faults lists the random faults: flag name, help, and the field of the rate.
var faults = []struct {
	flag, help string
	of         func(*Rates) *float64
}{
	{"loss", "drop this share of packets", func(r *Rates) *float64 { return &r.Loss }},
	{"dup", "deliver this share of packets twice", func(r *Rates) *float64 { return &r.Dup }},
	{"reorder", "let others overtake this share of packets", func(r *Rates) *float64 { return &r.Reorder }},
	{"delay", "delay this share of packets", func(r *Rates) *float64 { return &r.Delay }},
	{"corrupt", "invert a bit in this share of packets", func(r *Rates) *float64 { return &r.Corrupt }},
	{"ecn", "mark this share of packets Congestion Experienced", func(r *Rates) *float64 { return &r.ECN }},
}

// RegisterFlags adds the flags --loss, --dup, --reorder, --delay, --corrupt,
// --ecn, --reorder-by, --reorder-time, --delay-time, --delay-jitter, --fault
// (a [Rule], repeatable) and --seed. Rates are "0.01", "1%" or, for one
// direction, "tx=0.01" or "tx=1%,rx=2%". A pflag set takes them by
// AddGoFlagSet.
func (c *Config) RegisterFlags(fs *flag.FlagSet) {
	for _, f := range faults {
		fs.Var(rateFlag{f.of(&c.Tx), f.of(&c.Rx)}, f.flag, f.help+" (0.01, 1%, or tx=1%,rx=2%)")
	}
	fs.IntVar(&c.ReorderBy, "reorder-by", c.ReorderBy, "packets that overtake a reordered one (0: 3)")
	fs.DurationVar(&c.ReorderTime, "reorder-time", c.ReorderTime, "longest time a reordered packet is held (0: 1ms)")
	fs.DurationVar(&c.DelayTime, "delay-time", c.DelayTime, "how long a delayed packet is held (0: 1ms)")
	fs.DurationVar(&c.DelayJitter, "delay-jitter", c.DelayJitter, "random addition to delay-time")
	fs.Var((*ruleFlag)(&c.Rules), "fault", "exact fault, e.g. drop,tx,op=SEND_ONLY,conn=1,rel=5,iter=1 (repeatable)")
	fs.Uint64Var(&c.Seed, "seed", c.Seed, "seed of the random faults")
}

// String returns the configuration in the form of flags, without the defaults. A
// failing test should print it.
func (c *Config) String() string {
	var s []string
	add := func(set bool, name string, value any) {
		if set {
			s = append(s, fmt.Sprintf("--%s %v", name, value))
		}
	}
	for _, f := range faults {
		v := rateFlag{f.of(&c.Tx), f.of(&c.Rx)}.String()
		add(v != "0", f.flag, v)
	}
	add(c.ReorderBy != 0, "reorder-by", c.ReorderBy)
	add(c.ReorderTime != 0, "reorder-time", c.ReorderTime)
	add(c.DelayTime != 0, "delay-time", c.DelayTime)
	add(c.DelayJitter != 0, "delay-jitter", c.DelayJitter)
	for i := range c.Rules {
		add(true, "fault", &c.Rules[i])
	}
	add(true, "seed", c.Seed)
	return strings.Join(s, " ")
}

// rateFlag sets one rate, in one direction or in both.
type rateFlag struct{ tx, rx *float64 }

func (f rateFlag) String() string {
	if f.tx == nil || f.rx == nil { // package flag makes zero values
		return "0"
	}
	text := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	switch {
	case *f.tx == *f.rx:
		return text(*f.tx)
	case *f.rx == 0:
		return "tx=" + text(*f.tx)
	case *f.tx == 0:
		return "rx=" + text(*f.rx)
	}
	return "tx=" + text(*f.tx) + ",rx=" + text(*f.rx)
}

func (f rateFlag) Set(s string) error {
	for part := range strings.SplitSeq(s, ",") {
		dir, value, found := strings.Cut(part, "=")
		if !found {
			dir, value = "both", part
		}
		v, err := parseRate(value)
		if err != nil {
			return err
		}
		switch dir {
		case "both":
			*f.tx, *f.rx = v, v
		case "tx":
			*f.tx = v
		case "rx":
			*f.rx = v
		default:
			return fmt.Errorf("direction %q is not tx or rx", dir)
		}
	}
	return nil
}

// Type is what pflag shows in help texts.
func (f rateFlag) Type() string { return "rate" }

func parseRate(s string) (float64, error) {
	number, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, fmt.Errorf("rate %q is not a number like 0.01 or 1%%", s)
	}
	if percent {
		v /= 100
	}
	if !(v >= 0 && v <= 1) {
		return 0, fmt.Errorf("rate %q is not between 0 and 1", s)
	}
	return v, nil
}

// ruleFlag appends rules.
type ruleFlag []Rule

func (f *ruleFlag) String() string {
	var s []string
	for i := range *f {
		s = append(s, (*f)[i].String())
	}
	return strings.Join(s, " ")
}

func (f *ruleFlag) Set(s string) error {
	r, err := ParseRule(s)
	if err == nil {
		*f = append(*f, r)
	}
	return err
}

// Type is what pflag shows in help texts.
func (f *ruleFlag) Type() string { return "rule" }
