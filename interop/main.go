//go:build linux

// Command interop tests roce against Linux: it boots stock Debian kernels with rxe under QEMU, and runs rdma-core's
// example programs in the guests. The peer, on this side of a tap device, is rocectl, or the same program on our
// libraries. The command prints one row per case. The last cases run tests of this module in the guests.
//
//	go run ./interop                        # cases that cover the others, on one kernel or on several
//	go run ./interop -all                   # every case on every kernel
//	go run ./interop -kernel 6.12 -run 'rping.*loss' -v
//	go run ./interop -list
//
// It needs root, and installs the Debian packages it uses. Logs and captures of
// failed cases stay in interop/out. The exit code is 0 only if every case passed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goroce/roce/internal/progress"
	"github.com/goroce/roce/interop/netns"
	"github.com/goroce/roce/interop/proc"
	"github.com/goroce/roce/interop/repo"
	"github.com/goroce/roce/interop/vm"
)

type options struct {
	kernels  []string // the newest last
	all      bool
	run      *regexp.Regexp
	verbose  bool
	keep     bool
	count    int
	between  bool
	repaired bool
	seed     uint64
	rocectl  string
	libs     string // the folder of our libibverbs.so.1, if there are cases with it
	root     string // of the repository
	out      string
	scripts  string            // folder of the guest's scripts
	images   map[string]string // by kernel
	cards    cardModel
	qemu     string            // another QEMU than that of this system
	hosts    []hostCase        // run after the other cases
	files    map[string]string // for the guests, by their paths in the guest
	meter    *progress.Meter
}

func main() {
	code, err := realMain()
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
	}
	os.Exit(code)
}

func realMain() (code int, err error) {
	var o options
	var kernels, run, cards string
	var list bool
	flag.StringVar(&kernels, "kernel", "6.1,6.12,7", "kernel `series` to test against, separated by commas, the newest last")
	flag.BoolVar(&o.all, "all", false, "run every case on every kernel, also cases that other cases cover")
	flag.StringVar(&run, "run", "", "only cases whose name matches this `regexp`")
	flag.BoolVar(&list, "list", false, "print the names of the cases and exit")
	flag.BoolVar(&o.verbose, "v", false, "print commands and their output")
	flag.BoolVar(&o.keep, "keep", false, "keep logs and captures of cases that passed, too")
	flag.IntVar(&o.count, "count", 1, "run every case this many times; its row shows the first failure")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of rocectl's faults in the first case; each following case adds 1")
	flag.StringVar(&o.out, "out", "", "`folder` for logs and captures (default interop/out)")
	flag.BoolVar(&o.repaired, "repaired", false, "run all cases with --recovery; by default, without -all, one condition for each tool and role")
	flag.BoolVar(&o.between, "between", false, "run all cases of rocectl impair between two guests, not only one")
	flag.StringVar(&cards, "cards", "virtio", "`model` of the guest's cards for AF_XDP: virtio, or igb, for which QEMU of the next Debian release is fetched")
	flag.Parse()
	if flag.NArg() > 0 {
		return 2, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if o.run, err = regexp.Compile(run); err != nil {
		return 2, fmt.Errorf("-run: %w", err)
	}
	var known bool
	if o.cards, known = cardModels[cards]; !known {
		return 2, fmt.Errorf("-cards %q: there are the models %s", cards, strings.Join(slices.Sorted(maps.Keys(cardModels)), " and "))
	}
	o.kernels = strings.Split(kernels, ",")

	var chosen []testCase
	for _, c := range allCases() {
		if o.run.MatchString(c.name()) && o.wants(c) {
			chosen = append(chosen, c)
		}
	}
	for _, c := range hostCases() {
		if o.run.MatchString(c.name()) {
			o.hosts = append(o.hosts, c)
		}
	}
	if len(chosen)+len(o.hosts) == 0 {
		return 2, fmt.Errorf("no case matches -run %q (see -list)", run)
	}
	if list {
		for _, j := range jobs(chosen, o.hosts) {
			fmt.Println(j.name())
		}
		return 0, nil
	}
	if os.Geteuid() != 0 {
		return 2, errors.New("root is needed for network namespaces and tap devices")
	}

	ctx, stop := progress.Context(context.Background(), "interop")
	defer stop()
	if err := o.prepare(ctx, chosen); err != nil {
		return 1, errors.Join(context.Cause(ctx), err)
	}
	start := time.Now()
	o.meter = progress.New("interop", os.Stdout)
	for _, k := range o.kernels {
		recorded := 0
		all := jobs(o.casesOf(k, chosen))
		if len(all) == 0 {
			continue
		}
		for _, j := range all {
			o.meter.Plan(1, j.usual())
			if c, is := j.(testCase); is && !c.inGo && c.between.rules == "" {
				recorded++
			}
		}
		o.meter.Plan(1, kernelLogUsual)
		o.meter.Plan((recorded+capturesOfBatch-1)/capturesOfBatch, tsharkUsual)
	}
	results := runAll(ctx, o, chosen)
	o.meter.Close(context.Cause(ctx))
	return report(os.Stdout, &o, chosen, results, time.Since(start)), context.Cause(ctx)
}

// prepare finds the repository, clears the output folder, and builds rocectl and the images of
// the guests (which also installs the packages that other steps need).
func (o *options) prepare(ctx context.Context, chosen []testCase) (err error) {
	if o.root, err = repo.Root(); err != nil {
		return err
	}
	if o.out == "" {
		o.out = filepath.Join(o.root, "interop", "out")
	}
	if o.out, err = filepath.Abs(o.out); err != nil {
		return err
	}
	if err := os.RemoveAll(o.out); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	o.scripts = filepath.Join(o.root, "interop", "vm")
	o.images = make(map[string]string)
	for _, k := range o.kernels {
		fmt.Printf("image of Linux %s: packages, kernel, tools (minutes the first time)\n", k)
		if o.images[k], err = vm.Image(ctx, o.scripts, k); err != nil {
			return err
		}
	}
	if o.cards.newer {
		if o.qemu, err = vm.QEMU(ctx, o.scripts); err != nil {
			return err
		}
	}
	netns.Sweep(ctx)
	if err := o.buildHostTests(ctx); err != nil {
		return err
	}
	if slices.ContainsFunc(chosen, func(c testCase) bool { return c.program }) {
		if err := o.buildPrograms(ctx); err != nil {
			return err
		}
	}
	if err := o.buildExamples(ctx, chosen); err != nil {
		return err
	}
	o.rocectl = filepath.Join(o.out, "rocectl")
	o.files["/usr/bin/rocectl"] = o.rocectl // for cases on the card, and rocectl impair in the guest
	for _, c := range chosen {
		if c.between.inside {
			o.files[c.between.guestFile()] = c.between.file(o.root)
		}
	}
	return proc.Build(ctx, "rocectl", "env", "CGO_ENABLED=0", "go", "build", "-C", o.root, "-trimpath", "-o", o.rocectl, "./cmd/rocectl")
}

// runAll runs the chosen cases against all kernels, in parallel.
func runAll(ctx context.Context, o options, chosen []testCase) []result {
	var mu sync.Mutex
	var all []result
	record := func(r result) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, r)
		o.meter.Step(r.usual, r.text(o.verbose))
	}
	var wg sync.WaitGroup
	for _, k := range o.kernels {
		wg.Go(func() { runKernel(ctx, o, k, chosen, record) })
	}
	wg.Wait()
	return all
}

// mayDie is how many guests of a kernel may die during the tests. Linux 6.12 sometimes dies of a double fault in
// kmalloc, called by rxe's requester, in different cases; the cause is not known. More deaths count as caused by our
// packets.
const mayDie = 2

// runKernel boots one kernel and runs the cases in it. A case that could not run because of the test bed has failed. If
// the guest's kernel dies, the case is repeated once in a new guest, with a note in its row.
func runKernel(ctx context.Context, o options, kernel string, chosen []testCase, record func(result)) {
	left := jobs(o.casesOf(kernel, chosen))
	if len(left) == 0 {
		return
	}
	fail := func(err error) {
		for _, j := range left {
			if ctx.Err() == nil { // otherwise the job was interrupted, and counts as not run
				record(result{kernel: kernel, name: j.name(), usual: j.usual(), err: err})
			}
		}
		left = nil
	}
	defer func() {
		if p := recover(); p != nil {
			fail(fmt.Errorf("the harness panicked: %v", p))
		}
	}()
	end := o.meter.Begin("Linux " + kernel + " starts")
	b, err := newBed(ctx, o, kernel)
	end()
	if err != nil {
		fail(fmt.Errorf("the test bed: %w", err))
		return
	}
	defer func() { b.close() }()
	isCase := func(j job) bool {
		_, is := j.(testCase)
		return is
	}
	var deaths []string
	for len(left) > 0 && ctx.Err() == nil {
		j := left[0]
		end := o.meter.Begin(kernel + " " + j.name())
		r := j.run(ctx, b)
		for n := 1; n < o.count && r.err == nil; n++ {
			r = r.then(j.run(ctx, b))
		}
		var why error
		if isCase(j) {
			why = b.obituary(len(deaths) + 1)
		}
		if why != nil && len(deaths) < mayDie && ctx.Err() == nil {
			deaths = append(deaths, fmt.Sprintf("in %s: %v", j.name(), why))
			if len(b.captures) > 0 {
				record(b.malformed(ctx))
			}
			kept := b.kept
			b.close()
			if b, err = newBed(ctx, o, kernel); err != nil {
				b = &bed{}
				end()
				fail(fmt.Errorf("the test bed, after a guest died: %w", err))
				return
			}
			b.kept = kept
			r = r.then(j.run(ctx, b))
			r.notes = append(r.notes, "second attempt: "+why.Error())
		}
		end()
		if ctx.Err() != nil {
			return
		}
		left = left[1:]
		record(r)
		if n := len(b.captures); n >= capturesOfBatch || n > 0 && !slices.ContainsFunc(left, isCase) {
			record(b.malformed(ctx))
		}
	}
	if ctx.Err() != nil {
		return
	}
	r := b.kernelLog(ctx)
	r.notes = append(r.notes, deaths...)
	record(r)
}
