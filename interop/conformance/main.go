//go:build linux

// Command conformance runs the tests of package suite, which are named after those
// of rdma-core, in three pairings and prints one row per test and pairing:
//
//	mem   roce and roce over a switch in the process
//	raw   roce and roce over packet sockets, with packets lost, duplicated and reordered
//	rxe   roce and Linux rxe in a virtual machine, in both roles
//
// Of several kernels only the last one runs all tests. The others run the tests in which kernels
// differ, or with -all also all tests.
//
//	go run ./interop/conformance
//	go run ./interop/conformance -all
//	go run ./interop/conformance -pairing mem -run TestAtomic
//	go run ./interop/conformance -all -md docs/conformance.md
//
// With raw and rxe it also plays the scripts of script/library that control their peer, and with rxe
// also the scripts for programs. Most scripts send hostile packets. The pairing ways sends these
// packets in other ways, too: in runs and among good packets, from the peer and from strangers, over
// mem, raw, udp and xdp.
//
// mem needs no privilege; the others need root and install the Debian packages they
// use. The exit code is 0 only if nothing failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/progress"
	"github.com/goroce/roce/interop/conformance/hostile"
	"github.com/goroce/roce/interop/conformance/suite"
	"github.com/goroce/roce/interop/netns"
	"github.com/goroce/roce/interop/proc"
	"github.com/goroce/roce/interop/repo"
	"github.com/goroce/roce/qp"
)

type options struct {
	pairings []string
	kernels  []string // the newest last
	all      bool
	harm     bool
	recovery roce.Recovery // of our devices that have tests against rxe
	run      *regexp.Regexp
	count    int
	root     string // of the repository
	out      string // for logs
	markdown string // file for the table
	hostile  string // file for the table of hostile packets
}

func main() {
	code, err := realMain()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
	}
	os.Exit(code)
}

func realMain() (int, error) {
	o, list, err := parse()
	if err != nil {
		return 2, err
	}
	var tests []suite.Test
	for _, t := range suite.All() {
		if o.run.MatchString(t.Name) {
			tests = append(tests, t)
		}
	}
	h, q := newAttacks(o.run), newPlays(o.run)
	if len(tests)+len(h.cases)+len(q.scripts) == 0 || len(h.cases) == 0 && slices.Equal(o.pairings, []string{"ways"}) {
		return 2, errors.New("no test matches -run (see -list)")
	}
	if list {
		for _, t := range tests {
			fmt.Printf("%-40s %s\n", t.Name, t.Checks)
		}
		for _, c := range h.cases {
			fmt.Println("hostile/" + c.Name)
		}
		for _, s := range q.scripts {
			fmt.Println("script/" + s.Name)
		}
		return 0, nil
	}
	ctx, stop := progress.Context(context.Background(), "conformance")
	defer stop()
	m := progress.New("conformance", os.Stdout)
	t := &table{tests: tests, meter: m}
	w := newWays(h.cases)
	h.meter, w.meter, q.meter = m, m, m
	o.plan(m, len(tests), len(h.cases), len(w.ways))
	if o.pairing("rxe") {
		m.Plan(len(o.kernels)*len(q.scripts), playUsual)
	}
	err = o.runAll(ctx, t, h, w, q)
	if why := context.Cause(ctx); why != nil {
		err = why
	}
	m.Close(err)
	if err != nil {
		return 1, nil // the meter has printed the reason
	}
	t.summary(os.Stdout)
	h.summary(os.Stdout)
	w.summary(os.Stdout)
	q.summary(os.Stdout)
	for _, f := range []struct {
		name string
		text []byte
	}{{o.markdown, t.markdown()}, {o.hostile, h.markdown(t.kernels, w)}} {
		if f.name == "" {
			continue
		}
		if err := os.WriteFile(f.name, f.text, 0o644); err != nil {
			return 1, err
		}
	}
	if t.failed()+h.failed()+w.failures()+q.failed() > 0 {
		return 1, nil
	}
	return 0, nil
}

func parse() (o *options, list bool, err error) {
	o = &options{}
	var pairings, kernels, run, recovery string
	flag.StringVar(&pairings, "pairing", "mem,raw,ways,rxe", "which `pairings` to run, separated by commas")
	flag.StringVar(&kernels, "kernel", "6.1,6.12,7", "kernel `series` of the pairing rxe, separated by commas")
	flag.BoolVar(&o.all, "all", false, "run all tests against every kernel, not only against the last one")
	flag.BoolVar(&o.harm, "harm", false, "lose, duplicate and reorder packets in the pairing rxe, too")
	flag.StringVar(&recovery, "recovery", "default", "recovery from losses at our end of the pairing rxe: default, go-back, reads or `all`")
	flag.StringVar(&run, "run", "", "only tests whose name matches this `regexp`")
	flag.StringVar(&o.markdown, "md", "", "write the table to this Markdown `file`")
	flag.StringVar(&o.hostile, "hostile-md", "", "write the table of hostile packets to this Markdown `file`")
	flag.StringVar(&o.out, "out", "", "`folder` for logs (default interop/out)")
	flag.IntVar(&o.count, "count", 1, "run every test this many times; the first failure counts")
	flag.BoolVar(&list, "list", false, "print the tests and exit")
	flag.Parse()
	if flag.NArg() > 0 {
		return nil, false, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if o.run, err = regexp.Compile(run); err != nil {
		return nil, false, fmt.Errorf("-run: %w", err)
	}
	var ok bool
	if o.recovery, ok = qp.ParseRecovery(recovery); !ok {
		return nil, false, fmt.Errorf("-recovery: %q is not default, go-back, reads or all", recovery)
	}
	o.pairings, o.kernels = strings.Split(pairings, ","), strings.Split(kernels, ",")
	for _, p := range o.pairings {
		if !slices.Contains([]string{"mem", "raw", "ways", "rxe"}, p) {
			return nil, false, fmt.Errorf("-pairing: %q is not mem, raw, ways or rxe", p)
		}
	}
	return o, list, nil
}

// prepare finds the repository and makes the folder for logs. It is called only for pairings that
// need root.
func (o *options) prepare(ctx context.Context) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("root is needed for network namespaces (-pairing mem needs none)")
	}
	if o.root, err = repo.Root(); err != nil {
		return err
	}
	if o.out == "" {
		o.out = filepath.Join(o.root, "interop", "out")
	}
	if _, err := proc.Run(ctx, filepath.Join(o.root, "scripts", "need"), "iproute2"); err != nil {
		return err
	}
	netns.Sweep(ctx)
	return os.MkdirAll(o.out, 0o755)
}

// How long a step usually takes while others run: a test, a hostile case, and all cases in one way.
const (
	testUsual, testRawUsual, testRXEUsual = 100 * time.Millisecond, 300 * time.Millisecond, time.Second
	hostileUsual, hostileRXEUsual         = 50 * time.Millisecond, 500 * time.Millisecond
	wayUsual                              = 2 * time.Second
)

// pairing reports whether a pairing runs.
func (o *options) pairing(name string) bool { return slices.Contains(o.pairings, name) }

// plan tells the meter of all steps.
func (o *options) plan(m *progress.Meter, tests, cases, ways int) {
	want, root := o.pairing, os.Geteuid() == 0
	if want("mem") {
		m.Plan(tests, testUsual)
	}
	if want("raw") {
		m.Plan(tests, testRawUsual)
	}
	if want("raw") || want("mem") {
		m.Plan(cases, hostileUsual)
	}
	if cases == 0 {
		ways = 0
	}
	if want("ways") && root {
		m.Plan(4*ways, wayUsual) // mem and three drivers
	} else if want("ways") {
		m.Plan(ways, wayUsual)
	}
	if want("rxe") {
		m.Plan(2*len(o.kernels)*tests, testRXEUsual) // in both roles
		m.Plan(len(o.kernels)*cases, hostileRXEUsual)
		for _, k := range o.kernels {
			if want("ways") && o.whole(k) {
				m.Plan(min(1, ways), wayUsual)
			}
		}
	}
}

// runAll runs the pairings in -pairing: mem and raw one after the other, the
// kernels in parallel.
func (o *options) runAll(ctx context.Context, t *table, h *attacks, w *ways, q *plays) error {
	want := o.pairing
	if want("raw") || want("rxe") || want("ways") && os.Geteuid() == 0 {
		if err := o.prepare(ctx); err != nil {
			return err
		}
	}
	if want("mem") {
		o.runColumn(ctx, t, memColumn())
		if !want("raw") { // raw tests the same on an interface
			h.run(ctx, h.reserve(), memVictim(), every)
		}
	}
	if want("raw") {
		p, err := netns.NewPair(ctx, "pair", device)
		if err != nil {
			return err
		}
		defer p.Remove()
		o.runColumn(ctx, t, rawColumn(p[0].Do, p[1].Do, device, device))
		h.run(ctx, h.reserve(), rawVictim(p[0].Do, p[1].Do, device, device, "10.79.0.1", "10.79.0.2"), every)
	}
	if want("ways") {
		if err := w.runLinks(ctx, os.Geteuid() == 0); err != nil {
			return err
		}
	}
	if !want("rxe") {
		return ctx.Err()
	}
	errs := make([]error, len(o.kernels))
	t.kernels = make([]string, len(o.kernels))
	var wg sync.WaitGroup
	for i, k := range o.kernels { // reserve columns here, so that their order does not depend on the speed of the guests
		columns, victim := []*results{t.reserve(), t.reserve()}, h.reserve()
		t.kernels[i] = "Linux " + k
		if want("ways") && o.whole(k) && len(w.cases) > 0 {
			w.target(rxeName(k))
		}
		wg.Go(func() { errs[i] = o.runKernel(ctx, t, h, w, q, k, &t.kernels[i], columns, victim) })
	}
	wg.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// runKernel boots a kernel and runs the tests, cases and scripts for it. It sets the name of the kernel to its release.
func (o *options) runKernel(ctx context.Context, t *table, h *attacks, w *ways, q *plays, kernel string, name *string, columns []*results, victim *attacked) error {
	end := t.meter.Begin("Linux " + kernel + " starts")
	bed, err := newVMBed(ctx, o, kernel)
	end()
	if err != nil {
		return fmt.Errorf("kernel %s: %w", kernel, err)
	}
	defer bed.close()
	*name = "Linux " + bed.linux
	asks, attacks := o.wanted(kernel, t.tests)
	for n, c := range bed.columns(asks) {
		o.runAt(ctx, t, columns[n], c)
	}
	found, err := bed.complaints(ctx)
	if err == nil && found != nil {
		err = fmt.Errorf("kernel %s complains: %s", kernel, strings.Join(found, "; "))
	}
	h.run(ctx, victim, bed.victim(), attacks)
	q.run(ctx, bed, o.whole(kernel))
	if o.pairing("ways") && o.whole(kernel) {
		w.runKernel(ctx, bed.victim())
	}
	return err
}

// every selects all hostile cases.
func every(hostile.Case) bool { return true }

// whole reports whether a kernel runs everything: the last kernel does, and with -all every kernel.
func (o *options) whole(kernel string) bool {
	return o.all || kernel == o.kernels[len(o.kernels)-1]
}

// wanted returns functions that select the tests and the hostile cases of a kernel. Kernels before
// the last one run those in which kernels differ: tests with a known deviation of some rxe, tests of
// features that not every rxe has, and hostile cases in which some rxe departs from the
// specification.
func (o *options) wanted(kernel string, tests []suite.Test) (func(suite.Test) bool, func(hostile.Case) bool) {
	if o.whole(kernel) {
		return nil, every
	}
	differ := make(map[string]bool)
	mem, varying := memColumn(), varies()
	for _, test := range tests {
		differ[test.Name] = (test.Needs|test.NeedsRequester|test.NeedsResponder)&varying != 0 || mem.run(test).Known
	}
	return func(test suite.Test) bool { return differ[test.Name] }, func(c hostile.Case) bool { return c.Differs() }
}

func (o *options) runColumn(ctx context.Context, t *table, c column) { o.runAt(ctx, t, t.reserve(), c) }

func (o *options) runAt(ctx context.Context, t *table, at *results, c column) {
	at.column = c
	for i, test := range t.tests {
		if ctx.Err() != nil {
			return
		}
		end := t.meter.Begin(c.name + " " + test.Name)
		r := c.run(test)
		for n := 1; n < o.count && r.Verdict != suite.Fail && ctx.Err() == nil; n++ {
			r = c.run(test)
		}
		end()
		if ctx.Err() != nil {
			return
		}
		t.record(at, i, r)
	}
}
