// Command fuzz runs every fuzz target of the module, two at a time, each on half of the processors:
//
//	go run ./internal/fuzz -time 1m                # each target for a minute
//	go run ./internal/fuzz -time 10s -budget 90s   # all in about 90 seconds
//	go run ./internal/fuzz -run '^qp\.' -list
//	go run ./internal/fuzz -blind -time 1s         # without coverage
//
// It builds each package once, while the targets of earlier packages run. The exit code is 0 only if no target
// failed. The input of a failure is in testdata/fuzz of the package.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goroce/roce/internal/progress"
)

// parallel is how many targets run at a time.
const parallel = 2

type options struct {
	time, budget time.Duration
	run          *regexp.Regexp
	list, blind  bool
}

func main() {
	ctx, stop := progress.Context(context.Background(), "fuzz")
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(2)
	}
	err = o.all(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("fuzz", flag.ContinueOnError)
	f.DurationVar(&o.time, "time", 10*time.Second, "time of each target")
	f.DurationVar(&o.budget, "budget", 0, "limit for all targets together; each target runs at least a second")
	f.BoolVar(&o.list, "list", false, "print the targets and run nothing")
	f.BoolVar(&o.blind, "blind", false, "do not instrument the packages: inputs are not guided by coverage, which takes more than a second to help, and the builds are those of go test")
	run := f.String("run", "", "only targets whose name matches this `regexp`")
	if err = f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	o.run, err = regexp.Compile(*run)
	return o, err
}

// share returns the time of each of n targets.
func (o options) share(n int) time.Duration {
	if o.budget == 0 {
		return o.time
	}
	return min(o.time, max(o.budget*parallel/time.Duration(n), time.Second))
}

// all runs all targets that match.
func (o options) all(ctx context.Context) error {
	packages, err := find(ctx, o.run)
	if err != nil {
		return err
	}
	n := 0
	for _, p := range packages {
		n += len(p.targets)
		for _, t := range p.targets {
			if o.list {
				fmt.Println(p.name(t))
			}
		}
	}
	if n == 0 {
		return fmt.Errorf("no target matches %v", o.run)
	}
	if o.list {
		return nil
	}
	dir, err := os.MkdirTemp("", "roce-fuzz-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cache, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	if err != nil {
		return err
	}
	r := &runner{time: o.share(n), blind: o.blind, dir: dir, cache: filepath.Join(strings.TrimSpace(string(cache)), "fuzz"), meter: progress.New("fuzz", os.Stdout)}
	r.meter.Plan(n, r.time)
	r.run(ctx, packages)
	err = context.Cause(ctx)
	if failed := r.failed.Load(); failed > 0 && err == nil {
		err = fmt.Errorf("%d of %d targets failed", failed, n)
	}
	r.meter.Close(err)
	return err
}

// runner builds packages and runs their targets.
type runner struct {
	time       time.Duration // of each target
	blind      bool
	dir, cache string // directories of the test programs, and of the inputs that go test keeps
	meter      *progress.Meter
	failed     atomic.Int64
}

// job is a target to run.
type job struct {
	pkg             *pkg
	target, program string
}

// run builds one package after the other. Meanwhile it runs the targets of built packages.
func (r *runner) run(ctx context.Context, packages []*pkg) {
	jobs := make(chan job, 1000) // building does not wait for targets
	go func() {
		defer close(jobs)
		for i, p := range packages {
			end := r.meter.Begin("build " + p.short())
			program, err := r.build(ctx, i, p)
			end()
			if ctx.Err() != nil {
				return
			}
			for _, t := range p.targets {
				if err != nil {
					r.fail(p.name(t), err.Error())
					continue
				}
				jobs <- job{p, t, program}
			}
		}
	}()
	var running sync.WaitGroup
	for range parallel {
		running.Go(func() {
			for j := range jobs {
				if ctx.Err() == nil {
					r.one(ctx, j)
				}
			}
		})
	}
	running.Wait()
}

// build builds the test program of a package, instrumented for fuzzing unless the run is blind.
func (r *runner) build(ctx context.Context, i int, p *pkg) (program string, err error) {
	program = filepath.Join(r.dir, fmt.Sprintf("%d.test", i))
	args := []string{"test", "-c", "-vet=off", "-o", program}
	if !r.blind {
		args = append(args, "-fuzz", "^Fuzz")
	}
	out, err := command(ctx, p.Dir, "go", append(args, ".")...)
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", p.ImportPath, err, out)
	}
	return program, nil
}

// one runs one target. It limits the time that go test spends on minimizing an input, by default up to a minute. If
// the target's time ends meanwhile, the target fails with "context deadline exceeded" although it has found
// nothing.
func (r *runner) one(ctx context.Context, j job) {
	name := j.pkg.name(j.target)
	end := r.meter.Begin(name)
	out, err := command(ctx, j.pkg.Dir, j.program, "-test.run", "^$", "-test.fuzz", "^"+j.target+"$", "-test.fuzztime", r.time.String(),
		"-test.fuzzminimizetime", "10x", "-test.parallel", fmt.Sprint((runtime.GOMAXPROCS(0)+parallel-1)/parallel),
		"-test.fuzzcachedir", filepath.Join(r.cache, j.pkg.ImportPath))
	end()
	switch {
	case ctx.Err() != nil:
	case err != nil && !lateOnly(out):
		r.fail(name, fmt.Sprintf("%s%v", out, err))
	default:
		r.meter.Step(r.time, fmt.Sprintf("pass  %-50s %s", name, executions(out)))
	}
}

// fail prints why a target failed and then its line. It indents the output of go test, because lines in it may look
// like verdicts.
func (r *runner) fail(name, why string) {
	r.failed.Add(1)
	fmt.Fprintf(r.meter, "      %s\n", strings.ReplaceAll(strings.TrimSpace(why), "\n", "\n      "))
	r.meter.Step(r.time, "FAIL  "+name)
}

// late matches the output of a target whose time was over. found matches the output of a target that
// has found something.
var (
	late  = regexp.MustCompile(`(?m)^    context deadline exceeded$`)
	found = regexp.MustCompile(`Failing input|panic|_test\.go:`)
)

// lateOnly reports whether a target failed only because its time was over while it minimized an
// input. If it is false, the target has found something.
func lateOnly(out []byte) bool { return late.Match(out) && !found.Match(out) }

var executed = regexp.MustCompile(`elapsed: \w+, (execs: .*)`)

// executions returns the last count of executions that a target has printed.
func executions(out []byte) string {
	m := executed.FindAllSubmatch(out, -1)
	if m == nil {
		return ""
	}
	return string(m[len(m)-1][1])
}

// command runs a program in a new process group and returns its output. When ctx ends, it interrupts the whole
// group, and then kills processes that have not ended.
func command(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	group(cmd)
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		kill(cmd, syscall.SIGKILL)
	}
	return out.Bytes(), err
}
