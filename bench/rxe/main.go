//go:build linux

// Command rxe measures this stack beside Linux's software NIC: inside one virtual
// machine, perftest between two rxe devices and rocectl's perf between two of ours, the
// same tests with the same sizes in turn, several rounds of each.
//
//	go run ./bench/rxe                     # Linux 6.12, both ends on one processor
//	go run ./bench/rxe -cpus 2 -run 'WRITE|lat' -rounds 5
//
// Both pairs talk over a veth pair of the guest. It prints a table in Markdown and
// writes all that was measured as JSON. It needs root, and installs the Debian packages
// it uses. With KVM the figures are those of the machine; without, the guest is
// emulated and only their ratios say something, and little: an emulated processor is
// slow at other things than a real one.
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
	"strings"
	"syscall"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/interop/netns"
	"github.com/goroce/roce/interop/proc"
	"github.com/goroce/roce/interop/vm"
)

type options struct {
	kernel  string
	accel   string
	cpus    int
	rounds  int
	seconds int
	links   []string
	run     *regexp.Regexp
	out     string
	root    string // of the repository
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

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("rxe", flag.ContinueOnError)
	f.StringVar(&o.kernel, "kernel", "6.12", "kernel `series` of the guest")
	f.StringVar(&o.accel, "accel", "auto", "kvm, tcg, or auto: kvm if it works")
	f.IntVar(&o.cpus, "cpus", 1, "processors of the guest: 1, for both ends, or 2, one for each")
	f.IntVar(&o.rounds, "rounds", 3, "how often everything is measured")
	f.IntVar(&o.seconds, "seconds", 2, "how long a bandwidth test takes")
	f.StringVar(&o.out, "out", "", "`file` for what was measured (default bench/results/rxe-CPUS.json)")
	links := f.String("links", strings.Join(roce.InterfaceDrivers(), ","), "rocectl's `links` to measure, separated by commas")
	run := f.String("run", "", "only tests whose name matches this `regexp`")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.links = strings.Split(*links, ",")
	if o.out == "" {
		o.out = fmt.Sprintf("bench/results/rxe-%d.json", o.cpus)
	}
	if o.run, err = regexp.Compile(*run); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.cpus < 1 || o.cpus > 2:
		return o, fmt.Errorf("-cpus %d: want 1 or 2", o.cpus)
	case o.rounds < 1 || o.seconds < 1:
		return o, errors.New("-rounds and -seconds: want at least 1")
	case o.accel != "auto" && o.accel != "kvm" && o.accel != "tcg":
		return o, fmt.Errorf("-accel %s: want kvm, tcg or auto", o.accel)
	}
	return o, nil
}

// measure does it all.
func (o *options) measure(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("root is needed for network namespaces and tap devices")
	}
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return err
	}
	o.root = filepath.Dir(strings.TrimSpace(string(mod)))
	dir, err := os.MkdirTemp("", "roce-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	rocectl := filepath.Join(dir, "rocectl")
	if out, err := proc.Run(ctx, "env", "CGO_ENABLED=0", "go", "build", "-C", o.root, "-ldflags", "-s -w", "-o", rocectl, "./cmd/rocectl"); err != nil {
		return fmt.Errorf("building rocectl: %w\n%s", err, out)
	}
	netns.Sweep(ctx)
	ns, err := netns.New(ctx, "rxe")
	if err != nil {
		return err
	}
	defer ns.Remove()
	g, accel, err := o.boot(ctx, ns, dir, rocectl)
	if err != nil {
		return err
	}
	defer g.vm.Close()
	if err := g.setUp(ctx); err != nil {
		return err
	}
	r := o.header(ctx, g, accel)
	for round := range o.rounds {
		for _, t := range tests {
			if o.run.MatchString(t.name) {
				if err := o.row(ctx, g, &r, t, round); err != nil {
					return err
				}
			}
		}
	}
	r.settle()
	fmt.Print(r.markdown())
	return r.write(o.out)
}

// boot starts the guest. KVM is there on some machines and works on fewer.
func (o *options) boot(ctx context.Context, ns netns.Netns, dir, rocectl string) (*guest, string, error) {
	scripts := filepath.Join(o.root, "interop", "vm")
	image, err := vm.Image(ctx, scripts, o.kernel)
	if err != nil {
		return nil, "", err
	}
	for _, line := range []string{"tuntap add dev tap0 mode tap", "link set tap0 up"} {
		if err := ns.IP(ctx, line); err != nil {
			return nil, "", err
		}
	}
	start := func(accel string, limit time.Duration) (*guest, error) {
		ctx, stop := context.WithTimeout(ctx, limit)
		defer stop()
		v, err := vm.Boot(ctx, vm.Config{Scripts: scripts, Image: image, Netns: string(ns), Tap: "tap0", MTU: 1500, CPUs: o.cpus, Accel: accel,
			IP4: "10.77.0.2/24", IP6: "fd77::2/64", MAC: "52:54:00:77:00:02", Console: filepath.Join(dir, "console"),
			Files: map[string]string{guestRocectl: rocectl}})
		if err != nil {
			return nil, err
		}
		return &guest{vm: v, cpus: o.cpus, port: 19000}, nil
	}
	if o.accel != "tcg" {
		g, err := start("kvm", 30*time.Second)
		if err == nil || o.accel == "kvm" {
			return g, "KVM", err
		}
		fmt.Fprintln(os.Stderr, "rxe: no KVM here, the guest is emulated")
	}
	g, err := start("tcg,thread=multi", 3*time.Minute)
	return g, "emulated", err
}

// row measures one test once, with everybody in turn; who is first changes.
func (o *options) row(ctx context.Context, g *guest, r *results, t test, round int) error {
	everybody := []contender{rxe{}}
	for _, l := range o.links {
		everybody = append(everybody, ours{link: l, poll: o.cpus > 1})
	}
	if err := g.setMTU(ctx, t.mtu); err != nil {
		return err
	}
	for i := range everybody {
		c := everybody[(i+round)%len(everybody)]
		v, err := g.measure(ctx, c, t, o.seconds)
		if err != nil {
			fmt.Fprintf(os.Stderr, "round %d  %-26s %-10s failed: %v\n", round+1, t.name, c.name(), err)
		} else {
			fmt.Fprintf(os.Stderr, "round %d  %-26s %-10s %.4g %s\n", round+1, t.name, c.name(), v.Value, t.unit())
		}
		r.add(t, c.name(), v, err)
	}
	return ctx.Err()
}
