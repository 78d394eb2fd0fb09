// Command bench compares roce with TCP, and with bare packets, which give the upper bound of each link. It needs Linux
// and root:
//
//	go run ./bench                      # everything, under ten minutes; writes bench/results
//	go run ./bench -quick               # all cases, but shorter; writes bin/bench
//	go run ./bench -v -run 'goodput/raw/WRITE|blast/raw'
//	go run ./bench -links udp,raw -rounds 1 -out /tmp/figures
//	go run ./bench -render              # only tables and plots, from existing figures
//
// It makes two network namespaces, starts itself in each, on one core, and controls both ends during all measurements.
// docs/benchmarks.md describes the measurements and the results.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goroce/roce/bench/internal/report"
	"github.com/goroce/roce/bench/internal/result"
	"github.com/goroce/roce/internal/progress"
	"github.com/goroce/roce/interop/repo"
)

// endVariable is the environment variable that makes this program run as one of the two ends; loopVariable makes it
// compute beside them.
const (
	endVariable  = "ROCE_BENCH_END"
	loopVariable = "ROCE_BENCH_LOOP"
)

type options struct {
	quick   bool
	verbose bool
	asIs    bool
	list    bool
	render  bool
	run     *regexp.Regexp
	links   []string
	rounds  int
	limit   time.Duration
	out     string
	profile string // folder
	root    string // of the repository
	whole   bool   // no flag leaves out a case
}

func main() {
	if os.Getenv(loopVariable) != "" {
		go func() {
			io.Copy(io.Discard, os.Stdin) // until the parent process closes it, or ends
			os.Exit(0)
		}()
		for n := uint64(1); n != 0; n++ {
		}
	}
	if os.Getenv(endVariable) != "" {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, "bench: end:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := progress.Context(context.Background(), "bench")
	defer stop()
	o, err := parse(os.Args[1:])
	if err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		os.Exit(2)
	}
	if err := realMain(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// parse reads the flags.
func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.BoolVar(&o.quick, "quick", false, "measure all cases for a short time, only to check that they work")
	f.BoolVar(&o.verbose, "v", false, "print every measurement")
	f.BoolVar(&o.asIs, "as-is", false, "do not change kernel settings (by default the lists of free pages are kept short during the run)")
	f.BoolVar(&o.list, "list", false, "list the cases and measure nothing")
	f.BoolVar(&o.render, "render", false, "measure nothing; make tables and plots from the figures in -out")
	run := f.String("run", "", "only cases that match this regular `expression`")
	links := f.String("links", strings.Join(result.Links, ","), "`links` to measure")
	f.IntVar(&o.rounds, "rounds", 0, "rounds of each case; 0: as planned")
	f.DurationVar(&o.limit, "limit", 9*time.Minute+40*time.Second, "begin no measurement after this `time`")
	f.StringVar(&o.out, "out", "", "`folder` for the results; default: bench/results for a full run, bin/bench for others")
	f.StringVar(&o.profile, "cpuprofile", "", "`folder` for a CPU profile of each end and case; profiling lowers the figures")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.run, err = regexp.Compile(*run); err != nil {
		return o, err
	}
	for l := range strings.SplitSeq(*links, ",") {
		if !slices.Contains(result.Links, l) {
			return o, fmt.Errorf("link %q: want one of %s", l, strings.Join(result.Links, ", "))
		}
		o.links = append(o.links, l)
	}
	if o.profile != "" {
		if o.profile, err = filepath.Abs(o.profile); err != nil {
			return o, err
		}
	}
	if o.root, err = repo.Root(); err != nil {
		return o, err
	}
	o.whole = *run == "" && o.profile == "" && len(o.links) == len(result.Links) && !o.quick
	if o.out == "" {
		o.out = filepath.Join(o.root, "bench", "results")
		if !o.whole && !o.render {
			o.out = filepath.Join(o.root, "bin", "bench")
		}
	}
	return o, nil
}

func realMain(ctx context.Context, o options, out io.Writer) error {
	s := full
	if o.quick {
		s = quick
	}
	s.everyProgram = o.run.String() != ""
	cases := choose(s.cases(o.links), o.run, o.rounds)
	if o.list {
		for _, c := range cases {
			fmt.Fprintf(out, "%s  %d rounds\n", c.name, c.rounds)
		}
		return nil
	}
	if len(cases) == 0 {
		return fmt.Errorf("no case matches %v", o.run)
	}
	var run *result.Run
	var err error
	if o.render {
		run, err = result.Load(o.out)
	} else {
		run, err = runAll(ctx, o, cases, out)
	}
	if err != nil {
		return err
	}
	if !o.render {
		if err := run.Save(o.out); err != nil {
			return err
		}
		if run, err = result.Load(o.out); err != nil { // the report is made from the files
			return err
		}
	}
	if err := report.Write(o.out, run); err != nil {
		return err
	}
	if err := report.Summary(out, o.out, run); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d points in %.0f s, results in %s\n", len(run.Points), run.Environment.Took, o.out)
	return failures(run)
}

// failures returns an error if all rounds of a point have failed.
func failures(run *result.Run) error {
	var all []error
	for _, p := range run.Points {
		if len(p.Rounds) == 0 {
			all = append(all, fmt.Errorf("%s: %s", p.Name, strings.Join(p.Errors, "; ")))
		}
	}
	return errors.Join(all...)
}
