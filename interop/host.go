//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/goroce/roce/interop/proc"
)

// hostCase runs tests of this module in the guest: tests on kinds of interfaces that the
// kernel of this machine may lack. They do not use rxe.
type hostCase struct {
	id    string
	tests []hostTest
}

func (c hostCase) name() string { return c.id }

// hostTest is tests of one package.
type hostTest struct {
	pkg   string // its folder
	run   string // which tests, as in go test -run
	cards bool   // on the guest's cards instead of veth pairs, built with the check of the owner of every frame
}

const scenarios = "internal/scenario"

// hostCases are the last cases of every kernel.
func hostCases() []hostCase {
	return []hostCase{
		{"host/vlan", []hostTest{{pkg: scenarios, run: "^TestStacked(Tags)?$/^(VLAN|raw|udp|xdp)$"}, {pkg: "link/raw", run: "^TestVLAN(Interface|Device)$"}}},
		{"host/ipvlan", []hostTest{{pkg: scenarios, run: "^TestStacked$/^ipvlan"}}},
		{"host/macvlan", []hostTest{{pkg: scenarios, run: "^TestStacked$/^macvlan"}}},
		{"host/bond", []hostTest{{pkg: scenarios, run: "^TestBond$"}}},
		{"host/netem", []hostTest{{pkg: scenarios, run: "^TestNetem$"}}},
		// The xdp driver on the cards, built with the check of the owner of every frame.
		onCards("contract", "xdp", "^Test(Contract|ZeroCopy(Auto)?|SpareQueues)$/^(native|small_rings|MTU.*)$"),
		onCards("life", "xdp", "^Test(Reopen|OpenFails|Kill|ForeignProgram|LinkDown|QueuedBeforeDown|SendBeforeCarrier)$/^(|near|netlink.*|bpf_link|[0-9]*)$"),
		onCards("traffic", "xdp", "^Test(KernelSender|OtherTraffic|BusyPoll|Pieces|InPlace|InPlaceGivenBack|SlowReceiver)$"),
	}
}

// onCards is a case on the guest's cards.
func onCards(name, pkg, run string) hostCase {
	return hostCase{"card/" + name, []hostTest{{pkg: pkg, run: run, cards: true}}}
}

// onCards reports whether the case needs the guest's cards.
func (c hostCase) onCards() bool { return c.tests[0].cards }

func (c hostCase) usual() time.Duration { return 5 * time.Second }

// hostLimit is the time limit for the tests of a package in an emulated guest. The tests have a slightly shorter limit
// of their own, so that they print their goroutines first.
const hostLimit = 2 * time.Minute

// resetsLimit is hostLimit on cards that reset.
const resetsLimit = 10 * time.Minute

// program returns the path of the test program in the guest.
func (h hostTest) program() string { return "/usr/bin/" + h.file() }

func (h hostTest) file() string {
	if h.cards {
		return path.Base(h.pkg) + ".frames.test"
	}
	return path.Base(h.pkg) + ".test"
}

// buildHostTests builds the test programs of the chosen cases and adds them to the files of the guests.
func (o *options) buildHostTests(ctx context.Context) error {
	o.files = make(map[string]string)
	for _, c := range o.hosts {
		for _, h := range c.tests {
			if o.files[h.program()] != "" {
				continue
			}
			tags := ""
			if h.cards {
				tags = "roceframes"
			}
			file := filepath.Join(o.out, h.file())
			o.files[h.program()] = file
			if err := proc.Build(ctx, "the tests of "+h.pkg, "env", "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64",
				"go", "test", "-C", o.root, "-c", "-trimpath", "-tags", tags, "-ldflags", "-s -w", "-o", file, "./"+h.pkg); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c hostCase) run(ctx context.Context, b *bed) (r result) {
	start := time.Now()
	r = result{kernel: b.kernel, name: c.id, usual: c.usual()}
	defer func() { r.took = time.Since(start) }()
	for _, h := range c.tests {
		out, err := b.runHostTest(ctx, h)
		r.log += out
		if err != nil {
			r.err = errors.Join(r.err, fmt.Errorf("%s: %w", h.pkg, err))
		}
	}
	if r.err != nil && c.onCards() {
		r.log += b.card.counters(ctx)
	}
	if r.err != nil || b.o.keep {
		os.WriteFile(filepath.Join(b.dir, strings.ReplaceAll(c.id, "/", "_")+".log"), []byte(r.log), 0o644)
	}
	return r
}

func (b *bed) runHostTest(ctx context.Context, h hostTest) (string, error) {
	argv := []string{"env", "ROCE_REQUIRE_NETNS=1", "ROCE_REQUIRE_FEATURES=1"}
	if h.cards {
		argv = append(argv, "ROCE_NETLAB_CARDS="+testCards)
	}
	limit := hostLimit
	if h.cards && b.o.cards.resets {
		limit = resetsLimit
	}
	p, err := b.linux.vm.Start(limit, append(argv, h.program(), "-test.v", "-test.timeout", (limit-10*time.Second).String(), "-test.parallel", "4", "-test.run", h.run)...)
	if err != nil {
		return "", err
	}
	e, err := p.Wait(ctx)
	switch {
	case err != nil:
	case e.OK():
		err = allRan(p.Output())
	default:
		err = fmt.Errorf("%v\n%s", e, complaints(p.Output()))
	}
	return p.Output(), err
}

// allRan returns an error if tests were skipped, or if there were none.
func allRan(output string) error {
	ran := false
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "--- SKIP") {
			return fmt.Errorf("%s\n%s", line, complaints(output))
		}
		ran = ran || strings.HasPrefix(line, "--- PASS")
	}
	if !ran {
		return errors.New("there are no such tests")
	}
	return nil
}

// complaints returns the output of tests without the lines of passed tests.
func complaints(output string) string {
	var w strings.Builder
	for line := range strings.Lines(output) {
		if t := strings.TrimSpace(line); !strings.HasPrefix(t, "=== ") && !strings.HasPrefix(t, "--- PASS") {
			w.WriteString(line)
		}
	}
	return strings.TrimSpace(w.String())
}
