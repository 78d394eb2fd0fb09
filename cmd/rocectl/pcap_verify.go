package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goroce/roce/internal/tools/usage"
	"github.com/goroce/roce/verify"
)

// exitWarnings is the exit code of "pcap verify" if there are warnings and no errors.
const exitWarnings = 3

// verifyFlags are the flags of "pcap verify".
type verifyFlags struct {
	cfg                  verify.Config
	asJSON, junit, rules bool
	only, ignore, at     []string
	counters             []string
	scope                string
}

func pcapVerifyCommand() *cobra.Command {
	var f verifyFlags
	c := &cobra.Command{
		Use:   "verify FILE...",
		Short: "Judge both ends of each connection in captures by the rules of the standard",
		Long: `Judge both ends of each connection in captures by the rules of the InfiniBand
Architecture Specification. Each finding names the rule, its section, the frames and
the reason. Several files are judged together: their packets are merged by time, and a
packet that was captured at two places counts once. A file can be from either end, from
the middle, or from a host with offloads. With --counters the counters of a host are
compared with the packets.

Some rules can only be judged if the files were captured on one of the hosts, so that no
packet gets lost between this host and the capture. --at names the host: by its addresses,
or by "file" for files that have the direction of packets, as pcapng files and captures of
"any". Other rules can only be judged if the capture has each packet that passed its place.
--complete asserts this, and so does --at, unless --dropped is given because tcpdump has
dropped packets. The command also prints which questions the captures cannot answer.

Known departures of Linux rxe and extensions of this stack are listed as "known", and
are no failure without --strict. --rules lists the rules. "rocectl pcap check" does not judge:
it verifies ICRCs and counts losses.

Exits with 0 if there are neither errors nor warnings, with 3 if there are only warnings, and
with 1 if there are errors or a file cannot be read to its end.`,
		Example: `  rocectl pcap verify --at 10.0.0.1 client.pcap
  rocectl pcap verify client.pcapng server.pcapng
  rocectl pcap verify --at 10.0.0.1 --counters 10.0.0.1=before.json,after.json client.pcap
  rocectl pcap verify --ignore bth-migreq --junit rping.pcap >rping.xml
  rocectl pcap verify --json rping.pcap | jq '.findings[] | select(.departure == null)'`,
		Args: arguments(0, math.MaxInt),
		RunE: func(c *cobra.Command, args []string) error {
			if f.rules {
				_, err := io.WriteString(c.OutOrStdout(), verify.RulesText())
				return err
			}
			if len(args) == 0 {
				return usage.Errorf("a capture is missing")
			}
			for _, list := range []string{"rule", "ignore", "at"} {
				if v, _ := c.Flags().GetStringSlice(list); c.Flags().Changed(list) && len(v) == 0 {
					return usage.Errorf("--%s names nothing", list)
				}
			}
			if err := f.parse(); err != nil {
				return err
			}
			return f.run(c.Context(), c.OutOrStdout(), args)
		},
	}
	fl := c.Flags()
	fl.BoolVar(&f.asJSON, "json", false, "print one JSON object")
	fl.BoolVar(&f.junit, "junit", false, "print JUnit XML with a test for each rule")
	fl.BoolVar(&f.rules, "rules", false, "list the rules and the known departures")
	fl.StringSliceVar(&f.only, "rule", nil, "judge only by these rules: `NAME,…`")
	fl.StringSliceVar(&f.ignore, "ignore", nil, "do not judge by these rules: `NAME,…`")
	fl.StringSliceVar(&f.at, "at", nil, "the captures were made on the host with these addresses, or \"file\" if the files have directions: `ADDRESS,…`")
	fl.StringArrayVar(&f.counters, "counters", nil, "compare with the counters of a host: `ADDRESS,…=[BEFORE,]AFTER`, files of --counters, of \"rdma statistic show -j\" or of \"ethtool -S\"; may be repeated")
	fl.BoolVar(&f.cfg.Complete, "complete", false, "the captures have each packet that passed their places")
	fl.BoolVar(&f.cfg.Dropped, "dropped", false, "the captures have lost packets (tcpdump: \"packets dropped by kernel\")")
	fl.BoolVar(&f.cfg.Strict, "strict", false, "count known departures like other findings")
	fl.DurationVar(&f.cfg.CNPInterval, "cnp-interval", 0, "least time between two CNPs (0: any)")
	fl.StringVar(&f.scope, "cnp-scope", string(verify.ByQueuePair), "CNPs are paced per: qp, addresses, destination or port")
	return c
}

// parse checks the flags and fills in the configuration.
func (f *verifyFlags) parse() error {
	if f.asJSON && f.junit {
		return usage.Errorf("--json and --junit exclude each other")
	}
	if f.cfg.Complete && f.cfg.Dropped {
		return usage.Errorf("--complete and --dropped exclude each other")
	}
	if f.cfg.CNPInterval < 0 {
		return usage.Errorf("--cnp-interval %v is negative", f.cfg.CNPInterval)
	}
	for _, r := range f.only {
		f.cfg.Rules = append(f.cfg.Rules, verify.RuleID(r))
	}
	for _, r := range f.ignore {
		f.cfg.Ignore = append(f.cfg.Ignore, verify.RuleID(r))
	}
	for _, a := range f.at {
		if a == "file" {
			f.cfg.Directions = true
			continue
		}
		addr, err := netip.ParseAddr(a)
		if err != nil {
			return usage.Errorf("--at: %q is not an address like 10.0.0.1", a)
		}
		f.cfg.At = append(f.cfg.At, addr)
	}
	for _, c := range f.counters {
		h, err := hostCounters(c)
		if err != nil {
			return err
		}
		f.cfg.Counters = append(f.cfg.Counters, h)
	}
	f.cfg.CNPScope = verify.Scope(f.scope)
	if !slices.Contains(verify.Scopes, f.cfg.CNPScope) {
		return usage.Errorf("--cnp-scope: %q is none of %v", f.scope, verify.Scopes)
	}
	_, err := verify.New(f.cfg)
	if unknown, ok := errors.AsType[*verify.UnknownRuleError](err); ok {
		return usage.Errorf("%s", strings.TrimPrefix(unknown.Error(), "verify: "))
	}
	return err
}

// hostCounters reads the files that a flag --counters names.
func hostCounters(flag string) (h verify.HostCounters, err error) {
	addrs, files, ok := strings.Cut(flag, "=")
	names := strings.Split(files, ",")
	if !ok || len(names) > 2 || slices.Contains(names, "") {
		return h, usage.Errorf("--counters: %q is not of the form 10.0.0.1=after.json or 10.0.0.1=before.json,after.json", flag)
	}
	for _, a := range strings.Split(addrs, ",") {
		addr, err := netip.ParseAddr(a)
		if err != nil {
			return h, usage.Errorf("--counters: %q is not an address like 10.0.0.1", a)
		}
		h.Addrs = append(h.Addrs, addr)
	}
	var counts []map[string]uint64
	for _, name := range names {
		in, err := os.Open(name)
		if err != nil {
			return h, err
		}
		c, err := verify.ReadCounters(in)
		in.Close()
		if err != nil {
			return h, fmt.Errorf("%s: %w", name, err)
		}
		counts = append(counts, c)
	}
	if h.Counts = counts[len(counts)-1]; len(counts) == 2 {
		h.Counts = verify.Since(counts[0], counts[1])
	}
	return h, nil
}

func (f *verifyFlags) run(ctx context.Context, out io.Writer, files []string) error {
	r, damage := verify.Files(ctx, files, f.cfg)
	if r == nil || damage != nil && r.Packets+r.Other == 0 {
		return damage
	}
	print := r.WriteText
	switch {
	case f.asJSON:
		print = func(w io.Writer) error { return encoder(w).Encode(r) }
	case f.junit:
		print = r.WriteJUnit
	}
	if err := print(out); err != nil {
		return err
	}
	if damage != nil {
		return damage
	}
	switch worst, found := r.Worst(); {
	case !found || worst == verify.Note:
		return nil
	case worst == verify.Warning:
		return exitError{fmt.Errorf("the captures give warnings"), exitWarnings}
	}
	return errors.New("the captures break rules")
}
