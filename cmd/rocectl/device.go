package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/hubdev"
	"github.com/goroce/roce/internal/tools/usage"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/link/pcap"
	"github.com/goroce/roce/qp"
	"github.com/goroce/roce/xdp"
)

// linkMem is a value of --link; the others are the drivers of [roce.OpenInterface],
// of which linkUDP needs no interface.
const (
	linkMem = "mem"
	linkUDP = "udp"
)

// portSpeed is the value of --dcqcn that takes the speed of the line from the port.
const portSpeed = "port"

const deviceHelp = `
The software NIC sits on a network interface (--dev) and needs CAP_NET_RAW; with
--link xdp also CAP_NET_ADMIN and CAP_BPF. With --link udp it uses UDP sockets, on
the loopback too and on any system, and with --link mem both ends run in this
process on a wire between them: neither needs any privilege. Faults (--loss and so
on) apply to the packets that this end sends and receives; --capture records the
packets on the wire.`

// deviceFlags are the flags of every command that sends packets: they describe the NIC.
type deviceFlags struct {
	dev      string
	link     string
	queues   int
	inPlace  int // MiB
	capture  string
	trace    bool
	polled   bool
	lazy     bool // only perf has a flag for it
	spin     time.Duration
	counters bool
	dcqcn    string // line rate; portSpeed: the port's; empty: off
	faults   fault.Config
}

// addDeviceFlags adds the flags to a command, after its own ones.
func addDeviceFlags(c *cobra.Command) *deviceFlags {
	f := new(deviceFlags)
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&f.dev, "dev", "", "network interface (default: the one that has, or leads to, the address)")
	s.StringVar(&f.link, "link", roce.DefaultDriver, "on --dev: raw: packet socket, udp: UDP sockets, xdp: AF_XDP; mem: both ends in this process")
	s.IntVar(&f.queues, "queues", 0, "queues of the interface, each with a shard of its own (0: one)")
	s.IntVar(&f.inPlace, "in-place", 0, "with --link xdp: `MIB` of memory that messages are sent from without a copy in user space (not rstream)")
	s.StringVar(&f.capture, "capture", "", "write all packets to `FILE`, .pcap or .pcapng")
	s.BoolVar(&f.trace, "trace", false, "print every packet to stderr")
	s.BoolVar(&f.polled, "poll", false, "no background goroutine: lowest latency")
	s.DurationVar(&f.spin, "spin", 0, fmt.Sprintf("busy-poll this long before sleeping; 0: %v, less: sleep at once", roce.DefaultSpin))
	s.BoolVar(&f.counters, "counters", false, "print the NIC's counters to stderr at the end")
	s.StringVar(&f.dcqcn, "dcqcn", "", "congestion control; `GBPS` of the line if the port does not report its speed (--dcqcn=25)")
	s.Lookup("dcqcn").NoOptDefVal = portSpeed
	faults := flag.NewFlagSet("", flag.ContinueOnError)
	f.faults.RegisterFlags(faults)
	s.AddGoFlagSet(faults)
	faults.VisitAll(func(fl *flag.Flag) {
		if fl.DefValue == "0s" { // help texts leave out an empty default
			s.Lookup(fl.Name).DefValue = ""
		}
	})
	return f
}

// validate returns an error that names the flag which makes no sense.
func (f *deviceFlags) validate() error {
	if err := cmp.Or(oneOf("--link", f.link, slices.Concat(roce.InterfaceDrivers(), []string{linkMem})...),
		usage.AtLeast("--queues", f.queues, 0), usage.Range("--in-place", f.inPlace, 0, 1<<20)); err != nil {
		return err
	}
	switch {
	case f.inPlace > 0 && f.link != "xdp":
		return usage.Errorf("--in-place needs --link xdp")
	case f.inPlace > 0 && (f.capture != "" || f.trace || f.faults.Enabled()):
		return usage.Errorf("--in-place: captures, traces and faults need packets in one piece: leave out one of them")
	case f.link == linkMem && f.dev != "":
		return usage.Errorf("--link mem needs no --dev: leave out one of them")
	}
	if _, err := f.congestion(); err != nil {
		return err
	}
	for _, t := range []struct {
		flag string
		d    time.Duration
	}{{"--delay-time", f.faults.DelayTime}, {"--delay-jitter", f.faults.DelayJitter}, {"--reorder-time", f.faults.ReorderTime}} {
		if t.d < 0 {
			return usage.Errorf("%s %v: want 0 or more", t.flag, t.d)
		}
	}
	if err := usage.AtLeast("--reorder-by", f.faults.ReorderBy, 0); err != nil {
		return err
	}
	if err := f.faults.Validate(); err != nil {
		return usage.Error{Err: err}
	}
	return nil
}

// congestion returns the parameters of congestion control, nil if it is off.
func (f *deviceFlags) congestion() (*roce.DCQCN, error) {
	switch f.dcqcn {
	case "":
		return nil, nil
	case portSpeed:
		return &roce.DCQCN{}, nil
	}
	v, err := strconv.ParseFloat(f.dcqcn, 64)
	if err != nil || !(v >= 0.001 && v <= 10_000) {
		return nil, usage.Errorf("--dcqcn=%s: want the speed of the line in Gb/s, 0.001 to 10000", f.dcqcn)
	}
	return &roce.DCQCN{LineRate: roce.Rate(v * float64(qp.Gbps))}, nil
}

// device is a NIC together with the capture of its packets.
type device struct {
	*roce.Device
	capture  *pcap.Writer // nil: none
	trace    *trace       // nil: none
	counters io.Writer    // where the counters go; nil: nowhere
}

// Close stops the NIC and finishes the capture.
func (d *device) Close() error {
	if d.counters != nil {
		printCounters(d.counters, d.Counters())
	}
	return errors.Join(d.Device.Close(), d.closeTaps())
}

// closeTaps finishes the capture and the trace.
func (d *device) closeTaps() (err error) {
	if d.capture != nil {
		err = d.capture.Close()
	}
	if d.trace != nil {
		err = errors.Join(err, d.trace.close())
	}
	return err
}

// options returns what the flags say of any device.
func (f *deviceFlags) options(cc *roce.DCQCN) roce.Options {
	return roce.Options{Polled: f.polled, Lazy: f.lazy, Spin: max(f.spin, 0), SleepAtOnce: f.spin < 0, Congestion: cc}
}

// open opens the NIC on its interface: that of --dev, or else the one that has the address near
// or leads to far.
func (f *deviceFlags) open(near, far netip.Addr, log io.Writer) (*device, error) {
	d := f.device(log)
	cc, err := f.congestion()
	if err != nil {
		return nil, err
	}
	c := roce.InterfaceConfig{Driver: f.link, Queues: f.queues, Wrap: f.wrap(d, log), Options: f.options(cc)}
	if f.inPlace > 0 {
		c.XDP = xdp.Config{Memory: f.inPlace << 20, InPlace: 1}
	}
	if a := f.socketAddr(near, far); a.IsValid() {
		d.Device, err = roce.OpenAddr(a, c)
		return d.opened(err)
	}
	name := f.dev
	if name == "" {
		if name, err = findInterface(near, far); err != nil {
			return nil, err
		}
	}
	if err := exists(name); err != nil {
		return nil, err
	}
	d.Device, err = roce.OpenInterface(name, c)
	if err == nil && f.inPlace > 0 { // the notes say why it is not possible
		for _, n := range d.Query().Link.Notes {
			fmt.Fprintf(log, "%s: %s\n", name, n)
		}
	}
	return d.opened(err)
}

// openPair opens two NICs on a wire in this process. The flags apply to the first one.
func (f *deviceFlags) openPair(a, b netip.Addr, log io.Writer) (near, far *device, err error) {
	hub := mem.NewHub(mem.Config{})
	far = new(device)
	cc, err := f.congestion()
	if err != nil {
		return nil, nil, err
	}
	if far.Device, err = hubdev.Open(hub, b, roce.Config{Options: roce.Options{Congestion: cc}}, nil); err != nil {
		return nil, nil, adviseSpeed(err)
	}
	near = f.device(log)
	near.Device, err = hubdev.Open(hub, a, roce.Config{Options: f.options(cc)}, f.wrap(near, log))
	if near, err = near.opened(err); err != nil {
		far.Close()
		return nil, nil, err
	}
	return near, far, nil
}

func (f *deviceFlags) device(log io.Writer) *device {
	d := new(device)
	if f.counters {
		d.counters = log
	}
	return d
}

// opened returns d, or closes the taps if err says that the NIC could not be opened.
func (d *device) opened(err error) (*device, error) {
	if err == nil {
		return d, nil
	}
	d.closeTaps()
	return nil, adviseSpeed(err)
}

// adviseSpeed names the flag that stands for the field LineRate, if err says that it is missing.
func adviseSpeed(err error) error {
	if strings.Contains(err.Error(), "LineRate") {
		return fmt.Errorf("%w: give the speed of the line, --dcqcn=25 for 25 Gb/s", err)
	}
	return err
}

// wrap returns a function that wraps a port in the capture and the trace, which d closes, and
// these in the faults.
func (f *deviceFlags) wrap(d *device, log io.Writer) func(link.Port) (link.Port, error) {
	return func(p link.Port) (_ link.Port, err error) {
		if f.capture != "" {
			if d.capture == nil { // one file for all queues
				if d.capture, err = pcap.Create(f.capture, 0); err != nil {
					return nil, err
				}
			}
			if p, err = pcap.Wrap(p, d.capture, pcap.Options{Live: f.capture == "-"}); err != nil {
				return nil, err
			}
		}
		if f.trace {
			if d.trace == nil {
				d.trace = newTrace(log)
			}
			if p, err = pcap.Wrap(p, d.trace.tap, pcap.Options{Live: true}); err != nil {
				return nil, err
			}
		}
		if f.faults.Enabled() {
			return fault.Wrap(p, f.faults)
		}
		return p, nil
	}
}

// printCounters prints the counters that are not zero, one a line.
func printCounters(w io.Writer, c roce.Counters) {
	line := func(name string, v uint64) {
		if v != 0 {
			fmt.Fprintf(w, "%-32s %d\n", name, v)
		}
	}
	for _, f := range c.Fields() {
		line(f.Name, *f.V)
	}
	for _, f := range []struct {
		name string
		v    uint64
	}{
		{"drop_malformed", c.Drops.Malformed}, {"drop_not_for_us", c.Drops.NotForUs}, {"drop_no_qp", c.Drops.NoQP},
		{"drop_pkey", c.Drops.PKey}, {"drop_no_mad", c.Drops.NoMAD}, {"drop_mad_flood", c.Drops.MADFlood},
		{"drop_overrun", c.Drops.Overrun}, {"port_errors", c.PortErrors}, {"lost_events", c.LostEvents},
		{"link_rx_packets", c.Link.RxPackets}, {"link_rx_drops", c.Link.RxDrops}, {"link_rx_errors", c.Link.RxErrors}, {"link_rx_floods", c.Link.RxFloods},
		{"link_tx_packets", c.Link.TxPackets}, {"link_tx_in_place", c.Link.TxInPlace}, {"link_tx_drops", c.Link.TxDrops}, {"link_tx_errors", c.Link.TxErrors},
		{"link_tx_oversize", c.Link.TxOversize}, {"link_downs", c.Link.LinkDowns},
		{"share_tx_packets", c.Shared.Sent}, {"share_rx_packets", c.Shared.Received}, {"share_rx_strays", c.Shared.Strays}, {"share_tx_drops", c.Shared.Dropped},
	} {
		line(f.name, f.v)
	}
	c.CM.Each(line)
}
