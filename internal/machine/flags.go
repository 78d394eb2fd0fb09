package machine

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/usage"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/qp"
	"github.com/goroce/roce/xdp"
)

// LinkMem is a value of --link; the others are the drivers of [roce.OpenInterface],
// of which linkUDP needs no interface.
const (
	LinkMem = "mem"
	linkUDP = "udp"
)

// portSpeed is the value of --dcqcn with which the port gives the line rate.
const portSpeed = "port"

// Flags are the values of the flags that describe one NIC.
type Flags struct {
	Dev      string
	Link     string
	Queues   int
	InPlace  int    // MiB
	ZeroCopy string // of driver xdp
	Capture  string
	Trace    bool
	Polled   bool
	Lazy     bool // only perf has a flag for it
	Spin     spin
	Counters bool
	Recovery string // name of the loss recovery of queue pairs; empty: the default
	DCQCN    string // line rate; portSpeed: the port's; empty: off
	Faults   fault.Config

	// Wrap, if it is not nil, wraps each port before the wrappers of the flags do. No flag sets it.
	Wrap func(link.Port) (link.Port, error)

	// own says that many programs read the same flags: a capture is then a new file of its own.
	own bool
}

// Register adds the flags to those of a command that opens one NIC, after its own ones.
func (f *Flags) Register(s *pflag.FlagSet) {
	s.SortFlags = false
	s.StringVar(&f.Dev, "dev", "", "network interface (default: the one that has, or leads to, the address)")
	s.StringVar(&f.Link, "link", roce.DefaultDriver, "on --dev: raw: packet socket, udp: UDP sockets, xdp: AF_XDP; mem: both ends in this process")
	f.register(s, "not rstream")
}

// register adds the flags that are the same for one NIC and for several. noInPlace names the senders that do not
// send in place.
func (f *Flags) register(s *pflag.FlagSet, noInPlace string) {
	s.IntVar(&f.Queues, "queues", 0, "queues of the interface, each with a shard of its own (0: one)")
	s.IntVar(&f.InPlace, "in-place", 0, "with --link xdp: `MIB` of memory that messages are sent from without a copy in user space ("+noInPlace+")")
	AddZeroCopy(s, &f.ZeroCopy)
	s.StringVar(&f.Capture, "capture", "", "write all packets to `FILE`, .pcap or .pcapng")
	s.BoolVar(&f.Trace, "trace", false, "print every packet to stderr")
	s.BoolVar(&f.Polled, "poll", false, "no background goroutine: lowest latency")
	s.Var(&f.Spin, "spin", "busy-poll for a `TIME` before sleeping; none: sleep at once")
	s.BoolVar(&f.Counters, "counters", false, "print the NIC's counters to stderr at the end")
	s.StringVar(&f.Recovery, "recovery", "", "what queue pairs do about lost packets: `go-back`, reads or all")
	s.StringVar(&f.DCQCN, "dcqcn", "", "congestion control; `GBPS` of the line if the port does not report its speed (--dcqcn=25)")
	s.Lookup("dcqcn").NoOptDefVal = portSpeed
	faults := flag.NewFlagSet("", flag.ContinueOnError)
	f.Faults.RegisterFlags(faults)
	s.AddGoFlagSet(faults)
	faults.VisitAll(func(fl *flag.Flag) {
		if fl.DefValue == "0s" { // help texts leave out an empty default
			s.Lookup(fl.Name).DefValue = ""
		}
	})
}

// Validate returns an error that names an invalid flag.
func (f *Flags) Validate() error {
	if err := cmp.Or(usage.OneOf("--link", f.Link, slices.Concat(roce.InterfaceDrivers(), []string{LinkMem})...),
		usage.AtLeast("--queues", f.Queues, 0), usage.Range("--in-place", f.InPlace, 0, 1<<20)); err != nil {
		return err
	}
	if _, err := ParseZeroCopy(f.Link, f.ZeroCopy); err != nil {
		return err
	}
	switch {
	case f.InPlace > 0 && f.Link != "xdp":
		return usage.Errorf("--in-place needs --link xdp")
	case f.InPlace > 0 && (f.Capture != "" || f.Trace || f.Faults.Enabled()):
		return usage.Errorf("--in-place: captures, traces and faults need packets in one piece: leave out one of them")
	case f.Link == LinkMem && f.Dev != "":
		return usage.Errorf("--link mem needs no --dev: leave out one of them")
	}
	if _, err := f.congestion(); err != nil {
		return err
	}
	if _, ok := qp.ParseRecovery(f.Recovery); f.Recovery != "" && !ok {
		return usage.Errorf("--recovery %s: want go-back, reads or all", f.Recovery)
	}
	for _, t := range []struct {
		flag string
		d    time.Duration
	}{{"--delay-time", f.Faults.DelayTime}, {"--delay-jitter", f.Faults.DelayJitter}, {"--reorder-time", f.Faults.ReorderTime}} {
		if t.d < 0 {
			return usage.Errorf("%s %v: want 0 or more", t.flag, t.d)
		}
	}
	if err := usage.AtLeast("--reorder-by", f.Faults.ReorderBy, 0); err != nil {
		return err
	}
	if err := f.Faults.Validate(); err != nil {
		return usage.Error{Err: err}
	}
	return nil
}

// congestion returns the parameters of congestion control, nil if it is off.
func (f *Flags) congestion() (*roce.DCQCN, error) {
	switch f.DCQCN {
	case "":
		return nil, nil
	case portSpeed:
		return &roce.DCQCN{}, nil
	}
	v, err := strconv.ParseFloat(f.DCQCN, 64)
	if err != nil || !(v >= 0.001 && v <= 10_000) {
		return nil, usage.Errorf("--dcqcn=%s: want the speed of the line in Gb/s, 0.001 to 10000", f.DCQCN)
	}
	return &roce.DCQCN{LineRate: roce.Rate(v * float64(qp.Gbps))}, nil
}

// AddZeroCopy adds --zero-copy, whose value [ParseZeroCopy] reads.
func AddZeroCopy(s *pflag.FlagSet, value *string) {
	s.StringVar(value, "zero-copy", xdp.ZeroCopyAuto.String(), "`WHEN` --link xdp uses zero copy: auto, if the card's driver has it and is trusted with it; on, also if it is not trusted; off")
}

// ParseZeroCopy returns what the value of --zero-copy means with a value of --link, or an error that names the flag. An
// empty value is auto.
func ParseZeroCopy(link, value string) (xdp.ZeroCopy, error) {
	z, ok := xdp.ParseZeroCopy(cmp.Or(value, xdp.ZeroCopyAuto.String()))
	switch {
	case !ok:
		return z, usage.Errorf("--zero-copy %s: want auto, on or off", value)
	case z != xdp.ZeroCopyAuto && link != "xdp":
		return z, usage.Errorf("--zero-copy %s needs --link xdp", value)
	}
	return z, nil
}

// options returns the options of any device. The flags are valid.
func (f *Flags) options() roce.Options {
	cc, _ := f.congestion()
	recovery, _ := qp.ParseRecovery(f.Recovery)
	return roce.Options{Polled: f.Polled, Lazy: f.Lazy, Spin: f.Spin.time, SleepAtOnce: f.Spin.none, Congestion: cc, Recovery: recovery}
}

// config returns the configuration of a device on an interface or address. The flags are valid.
func (f *Flags) config() roce.InterfaceConfig {
	c := roce.InterfaceConfig{Driver: f.Link, Queues: f.Queues, Options: f.options()}
	c.XDP.ZeroCopy, _ = ParseZeroCopy(f.Link, f.ZeroCopy)
	if f.InPlace > 0 {
		c.XDP.Memory, c.XDP.InPlace = f.InPlace<<20, 1
	}
	return c
}

// FlagError adds the permitted values of a flag to an error for which pflag only names a function of package
// strconv.
func FlagError(err error) error {
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	f, want := wrong.GetFlag(), errors.Unwrap(err).Error()
	switch f.Value.Type() {
	case "uint16":
		want = "want 0 to 65535"
	case "uint8":
		want = "want 0 to 255"
	case "int", "uint64":
		want = "want a whole number"
	case "float64":
		want = "want a number like 0.05"
	case "duration":
		want = "want a time like 500ms or 3s"
	case "bool":
		want = "want true or false"
	}
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	return fmt.Errorf("%s %s: %s", name, wrong.GetValue(), want)
}
