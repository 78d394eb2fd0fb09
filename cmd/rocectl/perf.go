package main

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/machine"
	"github.com/goroce/roce/internal/tools/perftest"
	"github.com/goroce/roce/internal/tools/usage"
)

func perfCommand() *cobra.Command {
	var subs []*cobra.Command
	for _, t := range perftest.Tests {
		subs = append(subs, perfTestCommand(t))
	}
	return group("perf", "Measure operations, as perftest's ib_* programs do",
		"Measure operations between two queue pairs that are connected without the\nconnection manager. These are the programs of linux-rdma/perftest, with their flags.",
		subs...)
}

func perfTestCommand(t perftest.Test) *cobra.Command {
	cfg := t.Config()
	var port uint16
	part := "The client measures and sends the result to the server."
	switch {
	case t.TwoSided:
		part = "Both ends measure."
	case t.Latency && !t.Reads:
		part = "The two ends write in turn, and both measure."
	case t.Latency:
		part = "The client measures."
	}
	c := &cobra.Command{
		Use:   t.Name + " [HOST]",
		Short: "Run perftest's ib_" + t.Name + ", either end",
		Long: `Run perftest's ib_` + t.Name + `, either end. Without HOST it is the server. The two
ends exchange their queue pairs over TCP, through the host's ordinary sockets, and
then use RDMA. Give both ends the same flags. If both ends are rocectl, they compare the
flags and report a difference; perftest's programs do not. ` + part + `
With --poll it busy-polls for completions, as perftest does. Without --poll, or with -e,
it sleeps until a completion comes.
` + deviceHelp,
		Example: `  rocectl perf ` + t.Name + ` --link mem               # both ends, no privilege
  rocectl perf ` + t.Name + ` --dev eth0               # a server; the peer runs: ib_` + t.Name + ` -x 1 ADDR
  rocectl perf ` + t.Name + ` -n 5000 10.0.0.2`,
		Args: arguments(0, 1),
	}
	f := c.Flags()
	f.Uint16VarP(&port, "port", "p", perftest.DefaultPort, "TCP port of the exchange")
	addPerfFlags(f, t, &cfg)
	res := addJSONFlag(c)
	f.StringVar(&res.file, "out", "", "also append the result to `FILE`, as one JSON object a line")
	dev := addDeviceFlags(c)
	f.BoolVar(&dev.Lazy, "lazy", true, "send posted messages together when no completion is left to poll (--lazy=false: send each at once)")
	f.StringVarP(&dev.Dev, "ib-dev", "d", "", "the same as --dev")
	c.RunE = func(c *cobra.Command, args []string) error {
		if cfg.Duration != 0 && f.Changed("iters") {
			return usage.Errorf("either -n, a number of messages, or -D, a duration")
		}
		res.begin(c)
		// With --link mem the flags apply to one end, and the client has the results.
		server, client := cfg, cfg
		server.Out, client.Out = c.OutOrStdout(), c.OutOrStdout()
		server.Poll, client.Poll = dev.Polled, dev.Polled
		if dev.Link == machine.LinkMem {
			server.Out = io.Discard
			server.Poll, client.Poll = dev.Polled && len(args) == 0, dev.Polled && len(args) == 1
		}
		t := toolWithResult(perftest.Server, server, perftest.Client, client, func(role string, r perftest.Result) error {
			for _, row := range r.Rows() {
				if err := res.print(role, "", row); err != nil {
					return err
				}
			}
			return nil
		})
		t.validate, t.overTCP = cfg.Validate, !cfg.CM
		return dev.run(c, argument(args, port), t)
	}
	return c
}

// addPerfFlags adds the flags of a test. They are the flags of perftest's program of this name.
func addPerfFlags(f *pflag.FlagSet, t perftest.Test, cfg *perftest.Config) {
	if t.Atomics() {
		f.FuncP("atomic_type", "A", "`operation`: CMP_AND_SWAP or FETCH_AND_ADD (the default)",
			parseOneOf(&cfg.Atomic, perftest.AtomicType.String, perftest.CmpAndSwap, perftest.FetchAndAdd))
	} else {
		f.BoolVarP(&cfg.All, "all", "a", false, "all sizes from 2 to 2^23, for datagrams up to the path MTU")
	}
	f.FuncP("connection", "c", "`service`: "+t.Services()+" (default RC)", parseOneOf(&cfg.Service, roce.QPType.String, roce.RC, roce.UC, roce.UD))
	f.IntVarP(&cfg.Size, "size", "s", cfg.Size, "bytes of a message")
	f.IntVarP(&cfg.Iters, "iters", "n", cfg.Iters, "messages of each queue pair")
	f.FuncP("duration", "D", "instead of -n: run for this many `seconds`", parseSeconds(&cfg.Duration))
	f.FuncP("margin", "f", "`seconds` at either end of the duration that are not measured (default: a quarter)", parseSeconds(&cfg.Margin))
	f.IntVarP(&cfg.TxDepth, "tx-depth", "t", cfg.TxDepth, "messages in flight on a queue pair")
	if t.TwoSided {
		f.IntVarP(&cfg.RxDepth, "rx-depth", "r", cfg.RxDepth, "posted receives of a queue pair")
	}
	if t.Reads {
		f.IntVarP(&cfg.OutReads, "outs", "o", cfg.OutReads, "READs and atomics in flight in each direction")
	}
	if t.Writes() {
		f.BoolVar(&cfg.SplitWrites, "split-writes", false, "send WRITEs of 2 to 32 packets as messages of one packet each")
	}
	if !t.Reads {
		f.IntVarP(&cfg.InlineSize, "inline_size", "I", cfg.InlineSize, "messages up to this size are copied when posted (-1: perftest's default)")
	}
	if t.Latency {
		f.BoolVarP(&cfg.Unsorted, "report-unsorted", "U", false, "print every result, in order")
		f.BoolVarP(&cfg.Histogram, "report-histogram", "H", false, "print every result, sorted")
	} else {
		f.IntVarP(&cfg.QPs, "qp", "q", cfg.QPs, "queue pairs")
		f.BoolVarP(&cfg.Both, "bidirectional", "b", false, "both ends send, and the sum is reported")
		f.IntVarP(&cfg.PostList, "post_list", "l", cfg.PostList, "work requests posted with one call")
		f.IntVarP(&cfg.CQMod, "cq-mod", "Q", cfg.CQMod, "messages per completion (default: perftest's rule)")
		f.BoolVarP(&cfg.NoPeak, "noPeak", "N", false, "do not compute the peak")
		f.BoolVar(&cfg.Gbits, "report_gbits", false, "report gigabits a second instead of mebibytes")
	}
	f.BoolVarP(&cfg.CM, "rdma_cm", "R", false, "connect by the connection manager, which also carries the exchange")
	if !t.Watches() {
		f.BoolVarP(&cfg.Events, "events", "e", false, "sleep until a completion comes, even with --poll")
	}
	f.FuncP("mtu", "m", "path MTU in `bytes` (default: the interface's)", parseOneOf(&cfg.MTU, mtuName, mtus...))
	f.IntVarP(&cfg.GIDIndex, "gid-index", "x", cfg.GIDIndex, "index of the own address (-1: one of the peer's IP version)")
	f.Uint8VarP(&cfg.Timeout, "qp-timeout", "u", cfg.Timeout, "ACK timeout, 4.096 µs times 2 to the power of this")
	f.BoolVar(&cfg.Check, "check", false, "check the data, as far as one end can; the checks add to the measured time")
	f.IntP("ib-port", "i", 1, "port of the device (it has one)")
	f.BoolP("CPU-freq", "F", false, "do not warn of a varying clock (it never does)")
	f.IntP("sl", "S", 0, "service level (has no meaning on RoCE)")
}

// mtus are the path MTUs.
var mtus = []roce.MTU{roce.MTU256, roce.MTU512, roce.MTU1024, roce.MTU2048, roce.MTU4096}

// parseOneOf returns a function that reads the name of one of some values.
func parseOneOf[T any](to *T, name func(T) string, values ...T) func(string) error {
	return func(s string) error {
		var names []string
		for _, v := range values {
			if strings.EqualFold(name(v), s) {
				*to = v
				return nil
			}
			names = append(names, name(v))
		}
		return errors.New("want " + usage.OrList(names))
	}
}

func mtuName(m roce.MTU) string { return strconv.Itoa(m.Bytes()) }

// parseSeconds returns a function that reads a time: seconds without a unit, as in perftest, or a
// number with a unit.
func parseSeconds(to *time.Duration) func(string) error {
	return func(s string) (err error) {
		if *to, err = time.ParseDuration(s); err != nil {
			*to, err = time.ParseDuration(s + "s")
		}
		if err != nil || *to < 0 {
			return errors.New("want seconds, or a time like 500ms")
		}
		return nil
	}
}
