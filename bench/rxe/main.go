//go:build linux

// Command rxe compares this stack with rxe, Linux's RDMA NIC in software. It runs perftest between
// two rxe devices and rocectl perf between two devices of ours: the same tests with the same
// sizes in turn, in several rounds.
//
//	go run ./bench/rxe                     # in a virtual machine: Linux 6.12, both ends on one processor
//	go run ./bench/rxe -cpus 2 -run 'WRITE|lat' -rounds 5
//	go run ./bench/rxe -here               # on this machine, which must have rxe and perftest
//
// Each pair of devices has its own veth pair. The program prints a table in Markdown and writes all
// results as JSON. It needs root. For the virtual machine it installs Debian packages. With KVM
// the figures are those of the machine. Without KVM the guest is emulated: the figures have no
// meaning, and the ratios little, because an emulated processor is slow at other operations than
// a real one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/interop/proc"
	"github.com/goroce/roce/interop/repo"
)

type options struct {
	here    bool
	guest   string // kind of the virtual machine in which this program runs; empty: none
	kernel  string
	cpus    int
	rounds  int
	seconds int
	links   []string
	run     *regexp.Regexp
	out     string
	rocectl string // a program; empty: build it
	lib     string // folder of libibverbs.so.1; empty: build it
}

func main() {
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "rxe:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.measure(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "rxe:", err)
		os.Exit(1)
	}
}

// measure runs all tests, on this machine or in a virtual one.
func (o *options) measure(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("root is needed for network namespaces and devices")
	}
	if o.rocectl != "" {
		if _, err := exec.LookPath(o.rocectl); err != nil {
			return fmt.Errorf("-rocectl: %w", err)
		}
	}
	if o.here && o.rocectl != "" && o.lib != "" {
		return o.onThisMachine(ctx)
	}
	dir, err := os.MkdirTemp("", "roce-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.rocectl == "" {
		if o.rocectl, err = program(ctx, dir, "rocectl", "cmd/rocectl"); err != nil {
			return err
		}
	}
	if o.lib == "" {
		o.lib = filepath.Join(dir, "lib")
		root, err := repo.Root()
		if err != nil {
			return err
		}
		if err := proc.Build(ctx, "the libraries", "env", "OUT="+o.lib, filepath.Join(root, "scripts", "cverbs")); err != nil {
			return err
		}
	}
	if o.here {
		return o.onThisMachine(ctx)
	}
	return o.inGuest(ctx, dir)
}

// withHere lists the flags that exist only with -here (true) or only without it (false).
var withHere = map[string]bool{"kernel": false, "guest": true}

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("rxe", flag.ContinueOnError)
	f.BoolVar(&o.here, "here", false, "measure on this machine instead of in a virtual one")
	f.StringVar(&o.guest, "guest", "", "with -here: what `kind` of virtual machine this is, for the table")
	f.StringVar(&o.kernel, "kernel", "6.12", "kernel `series` of the guest")
	f.IntVar(&o.cpus, "cpus", 1, "processors to use: 1, for both ends, or 2, one for each")
	f.IntVar(&o.rounds, "rounds", 3, "rounds of each test")
	f.IntVar(&o.seconds, "seconds", 2, "duration of a bandwidth test")
	f.StringVar(&o.out, "out", "", "`file` for the results (default bench/results/rxe-CPUS.json; with -here bin/rxe.json)")
	f.StringVar(&o.rocectl, "rocectl", "", "the `program` to measure (default: it is built)")
	f.StringVar(&o.lib, "lib", "", "the `folder` with this stack's libibverbs.so.1 (default: it is built)")
	links := f.String("links", strings.Join(roce.InterfaceDrivers(), ","), "rocectl's `links` to measure, separated by commas")
	run := f.String("run", "", "only tests whose name matches this `regexp`")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.links = strings.Split(*links, ",")
	switch {
	case o.out != "":
	case o.here:
		o.out = "bin/rxe.json"
	default:
		o.out = fmt.Sprintf("bench/results/rxe-%d.json", o.cpus)
	}
	if o.run, err = regexp.Compile(*run); err != nil {
		return o, err
	}
	alien := ""
	f.Visit(func(g *flag.Flag) {
		if here, tied := withHere[g.Name]; tied && here != o.here {
			alien = g.Name
		}
	})
	unknown := slices.IndexFunc(o.links, func(l string) bool { return !slices.Contains(roce.InterfaceDrivers(), l) })
	switch {
	case alien != "":
		return o, fmt.Errorf("-%s: -kernel is for the virtual machine, -guest is for -here", alien)
	case unknown >= 0:
		return o, fmt.Errorf("-links: %q is not one of %s", o.links[unknown], strings.Join(roce.InterfaceDrivers(), ", "))
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.cpus < 1 || o.cpus > 2:
		return o, fmt.Errorf("-cpus %d: want 1 or 2", o.cpus)
	case o.rounds < 1 || o.seconds < 1:
		return o, errors.New("-rounds and -seconds: want at least 1")
	}
	return o, nil
}

// program builds a statically linked program of the repository in dir.
func program(ctx context.Context, dir, name, pkg string) (file string, err error) {
	file = filepath.Join(dir, name)
	return file, proc.Build(ctx, pkg, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, "github.com/goroce/roce/"+pkg)
}
