package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/goroce/roce/internal/impair"
	"github.com/goroce/roce/internal/tools/usage"
	"github.com/goroce/roce/link/pcap"
)

const impairHelp = `Forward all frames between two Ethernet interfaces, and apply the faults of a rule file to
RoCE packets: drop, duplicate, delay, reorder, corrupt, mark Congestion Experienced, or
rewrite fields. Rules select packets by connection, direction, opcode, queue pair, PSN, PSN
relative to the first of the connection, number of the transmission of that PSN, every n-th,
probability and time. The ends can be any two RoCE peers, and need no change. An interface
of a network namespace is IFACE@NETNS. The interfaces must not be in a bridge, and need no
address.

With one interface the ends are the kernel of this host (rxe, UDP sockets) and the wire;
"tx" packets are those that the host sends. Packets of programs that use packet sockets or
AF_XDP are not affected.

A rule file is YAML; docs/impair.md describes it, and examples/impair has some. The flags
are faults, too: "tx" is from the first interface to the second. The rules of the file come
first.

The trace has each packet at both interfaces, with a comment that names the fault and the
rule. At Ctrl-C or after --for the command prints counters and ends. If it is killed, it
leaves nothing behind: promiscuous mode and all else belongs to its sockets.

It needs CAP_NET_RAW; CAP_SYS_ADMIN for interfaces of other namespaces; CAP_NET_ADMIN,
CAP_BPF and Linux 6.6 for one interface.`

func impairCommand() *cobra.Command {
	var (
		cfg    impair.Config
		rules  string
		trace  string
		point  string
		limit  time.Duration
		asJSON bool
		check  bool
	)
	c := &cobra.Command{
		Use:   "impair [flags] IFACE [IFACE]",
		Short: "Forward between two interfaces, and impair RoCE packets by rules",
		Long:  impairHelp,
		Example: `  rocectl impair --rules drop-fifth.yaml --trace run.pcapng tap0 tap1
  rocectl impair --loss 1% --seed 7 veth1@left veth2@right
  rocectl impair --fault drop,op=READ_RESPONSE_*,rel=2,iter=1 eth1 eth2
  rocectl impair --rules drop-fifth.yaml eth0
  rocectl impair --check --rules drop-fifth.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case check && rules == "":
				return usage.Errorf("--check wants a file: --rules FILE")
			case check && len(args) > 0:
				return usage.Errorf("--check takes no interfaces")
			case !check && len(args) != 1 && len(args) != 2:
				return usage.Errorf("%d interfaces: want one or two, rocectl impair [flags] IFACE [IFACE]", len(args))
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&rules, "rules", "", "rule `file` (YAML)")
	f.StringVar(&trace, "trace", "", "write the packets to this `file` (pcapng)")
	f.StringVar(&point, "trace-at", impair.Points[impair.Both], "interface whose packets are in the trace: a (the first), b (the second) or both")
	f.DurationVar(&limit, "for", 0, "end after this time (0: at Ctrl-C)")
	f.BoolVar(&asJSON, "json", false, "print the counters as one JSON object")
	f.BoolVar(&check, "check", false, "check the rule file only")
	f.IntVar(&cfg.Buffer, "buffer", 0, "receive buffer of each interface in bytes (0: 64 MiB)")
	faults := flag.NewFlagSet("", flag.ContinueOnError)
	cfg.Faults.RegisterFlags(faults)
	f.AddGoFlagSet(faults)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := usage.OneOf("--trace-at", point, impair.Points...); err != nil {
			return err
		}
		if limit < 0 {
			return usage.Errorf("--for %v is negative: give a time such as 10s, or 0 to run until Ctrl-C", limit)
		}
		if cfg.Buffer < 0 || cfg.Buffer > impair.MaxBuffer {
			return usage.Errorf("--buffer %d is not between 0 and %d bytes", cfg.Buffer, impair.MaxBuffer)
		}
		if err := cfg.Faults.Validate(); err != nil { // cfg.Faults has only the faults of the flags yet
			return usage.Error{Err: err}
		}
		at := impair.Point(slices.Index(impair.Points, point))
		file := new(impair.File)
		if rules != "" {
			var err error
			if file, err = impair.Load(rules); err != nil {
				return err
			}
		}
		if check {
			_, err := fmt.Fprintf(c.OutOrStdout(), "%s: right, rules: %d\n", rules, len(file.Rules))
			return err
		}
		if !f.Changed("seed") {
			cfg.Faults.Seed = file.Seed
		}
		cfg.Faults.Hold = file.Hold
		cfg.Faults.Rules = append(file.FaultRules(), cfg.Faults.Rules...)
		var err error
		if cfg.A, err = impair.ParseInterface(args[0]); err == nil && len(args) == 2 {
			cfg.B, err = impair.ParseInterface(args[1])
		}
		if err != nil {
			return usage.Error{Err: err}
		}
		ctx := c.Context()
		if limit > 0 {
			var stop context.CancelFunc
			ctx, stop = context.WithTimeout(ctx, limit)
			defer stop()
		}
		return runImpair(ctx, c.OutOrStdout(), c.ErrOrStderr(), cfg, file, trace, at, asJSON)
	}
	return c
}

// runImpair forwards packets until ctx ends, and prints the report. trace is the name of the trace file; "" means no trace.
func runImpair(ctx context.Context, out, notes io.Writer, cfg impair.Config, file *impair.File, trace string, point impair.Point, asJSON bool) (err error) {
	if trace != "" {
		w, err := createTrace(trace)
		if err != nil {
			return err
		}
		defer func() {
			if cerr := w.Close(); err == nil && cerr != nil {
				err = fmt.Errorf("%s: %w", trace, cerr)
			}
		}()
		if cfg.Trace, err = impair.NewTrace(w, point, cfg.Ends(), file.Rules); err != nil {
			return err
		}
	}
	cfg.Note = func(text string) { fmt.Fprintf(notes, "rocectl: %s\n", text) }
	started := false
	cfg.Ready = func() {
		started = true
		w := out
		if asJSON {
			w = notes
		}
		fmt.Fprintf(w, "forwarding between %s with %d rules\n", strings.Join(cfg.Ends(), " and "), len(cfg.Faults.Rules))
	}
	report, err := impair.Run(ctx, cfg)
	if !started {
		return err
	}
	write := report.WriteText
	if asJSON {
		write = report.WriteJSON
	}
	if werr := write(out, file.Rules, cfg.Faults.Rules); err == nil {
		err = werr
	}
	return err
}

// createTrace begins a pcapng file, because only this format has comments.
func createTrace(name string) (*pcap.Writer, error) {
	if !pcap.IsNG(name) {
		return nil, usage.Errorf("--trace %s: want a name that ends with .pcapng, because other formats have no comments", name)
	}
	return pcap.Create(name, 0)
}
