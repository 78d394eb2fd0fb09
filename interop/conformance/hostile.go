//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/hostnet"
	"github.com/goroce/roce/internal/progress"
	"github.com/goroce/roce/interop/conformance/hostile"
	"github.com/goroce/roce/interop/conformance/ours"
	"github.com/goroce/roce/interop/conformance/suite"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/link/raw"
	"github.com/goroce/roce/script"
)

// victim is a target of hostile packets: one column of their table.
type victim struct {
	name   string
	kernel string // "" for roce
	// open makes a device context and an attacker on its network.
	open func() (verbs.Node, *hostile.Attacker, error)
	// complaints returns the messages of a kernel about its own faults; revive boots a kernel
	// that has died again, and reports that. Both are nil for roce.
	complaints func(context.Context) ([]string, error)
	revive     func(context.Context) (dead bool, err error)
}

// attack runs one case on a new device context.
func (v *victim) attack(ctx context.Context, c hostile.Case) (hostile.Result, error) {
	n, a, err := v.open()
	if err != nil {
		return hostile.Result{Err: err}, fmt.Errorf("no target: %w", err)
	}
	r := hostile.RunCase(c, n, a)
	n.Close()
	a.Close()
	if v.revive != nil && (r.Err != nil || c.Expected(v.kernel)[0] == hostile.Panic) {
		switch dead, err := v.revive(ctx); {
		case err != nil:
			return r, errors.Join(r.Err, err)
		case dead:
			r.Got, r.Err = hostile.Panic, nil
		}
	}
	if r.Err == nil && v.complaints != nil {
		said, err := v.complaints(ctx)
		if err != nil {
			return r, err
		}
		r.Complaints = said
	}
	return r, hostile.Check(c, r, v.kernel)
}

// quiet is how long a target must be silent. For rxe it is longer, because rxe's queue pairs work
// in parallel: one may still send packets when another has already answered.
const quiet, quietRXE = 2 * time.Millisecond, 40 * time.Millisecond

// memVictim is roce on a switch in the process.
func memVictim() victim {
	return victim{name: "mem", open: func() (verbs.Node, *hostile.Attacker, error) {
		hub := mem.NewHub(mem.Config{MTU: linkMTU})
		target, own := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
		return openBoth(func(suite.Test) (verbs.Node, error) {
			port, err := hub.Port("target", roce.DerivedMAC(target))
			if err != nil {
				return nil, err
			}
			return ours.Open(roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: []netip.Addr{target}}))
		}, func() (*hostile.Attacker, error) {
			port, err := hub.Port("attacker", roce.DerivedMAC(own))
			return &hostile.Attacker{Wire: script.Wire{Port: port, Own: bth.GIDFrom(own), Peer: bth.GIDFrom(target), MAC: roce.DerivedMAC(target), Quiet: quiet}}, err
		})
	}}
}

// attackerOn opens an attacker on an interface of a namespace, which sends single packets
// only, or super-packets too.
func attackerOn(in namespace, name, own, target string, wait time.Duration, single bool) (a *hostile.Attacker, err error) {
	err = in(func() error {
		host, err := hostnet.Open(name)
		if err != nil {
			return err
		}
		defer host.Close()
		ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
		defer stop()
		src, dst := netip.MustParseAddr(own), netip.MustParseAddr(target)
		n, err := host.Resolve(ctx, src, dst)
		if err != nil {
			return err
		}
		port, err := raw.Open(raw.Config{Interface: name, NoGSO: single})
		if err != nil {
			return err
		}
		a = &hostile.Attacker{Wire: script.Wire{Port: port, Own: bth.GIDFrom(src), Peer: bth.GIDFrom(dst), MAC: frame.MAC(n.MAC), Quiet: wait}}
		return nil
	})
	return a, err
}

// victimOf returns a victim with functions that open a target and an attacker.
func victimOf(name, kernel string, target suite.Opener, attacker func() (*hostile.Attacker, error)) victim {
	return victim{name: name, kernel: kernel, open: func() (verbs.Node, *hostile.Attacker, error) { return openBoth(target, attacker) }}
}

func openBoth(target suite.Opener, attacker func() (*hostile.Attacker, error)) (verbs.Node, *hostile.Attacker, error) {
	n, err := target(suite.Test{Clean: true})
	if err != nil {
		return nil, nil, err
	}
	a, err := attacker()
	if err != nil {
		n.Close()
		return nil, nil, err
	}
	return n, a, nil
}

// attacks has the results of every hostile case on every victim.
type attacks struct {
	cases   []hostile.Case
	meter   *progress.Meter
	victims []*attacked
}

// attacked is a victim with the outcome of each case. One goroutine attacks it.
type attacked struct {
	victim
	got  []string
	errs []error // nil: the outcome is the expected one
}

func newAttacks(run *regexp.Regexp) *attacks {
	a := &attacks{}
	for _, c := range hostile.All() {
		if run.MatchString("hostile/" + c.Name) {
			a.cases = append(a.cases, c)
		}
	}
	return a
}

// reserve adds a column for a victim.
func (a *attacks) reserve() *attacked {
	v := &attacked{got: make([]string, len(a.cases)), errs: slices.Repeat([]error{errors.New("not run")}, len(a.cases))}
	a.victims = append(a.victims, v)
	return v
}

// notAsked is the outcome of a case that does not run on a victim.
const notAsked = "–"

// run attacks a victim with the cases that want selects.
func (a *attacks) run(ctx context.Context, at *attacked, v victim, want func(hostile.Case) bool) {
	at.victim = v
	usual := hostileUsual
	if v.kernel != "" {
		usual = hostileRXEUsual
	}
	for i, c := range a.cases {
		if !want(c) {
			at.got[i], at.errs[i] = notAsked, nil
			a.meter.Plan(-1, usual)
			continue
		}
		end := a.meter.Begin(v.name + " hostile/" + c.Name)
		r, err := v.attack(ctx, c)
		end()
		if ctx.Err() != nil {
			return
		}
		at.got[i], at.errs[i] = r.Got, err
		word := "pass"
		var notes []string
		if err != nil {
			word, notes = "FAIL", []string{err.Error()}
		}
		a.meter.Step(usual, row(word, v.name, 60, "hostile/"+c.Name, r.Took, notes...))
	}
}

func (a *attacks) failed() (n int) {
	for _, v := range a.victims {
		for _, err := range v.errs {
			if err != nil {
				n++
			}
		}
	}
	return n
}

func (a *attacks) summary(w io.Writer) {
	total := 0
	for _, v := range a.victims {
		for _, got := range v.got {
			if got != notAsked {
				total++
			}
		}
	}
	if total == 0 {
		return
	}
	fmt.Fprintf(w, "hostile packets: %d passed, %d failed\n", total-a.failed(), a.failed())
	for _, v := range a.victims {
		for i, err := range v.errs {
			if err != nil {
				fmt.Fprintf(w, "failed: hostile/%s, %s\n", a.cases[i].Name, v.name)
			}
		}
	}
}

// markdown renders the table of cases, and after it the table of ways.
func (a *attacks) markdown(kernels []string, w *ways) []byte {
	var b bytes.Buffer
	begin(&b, "Hostile packets", kernels)
	b.WriteString(`For each row the test sends packets that no well-behaved peer sends to a device with a connected queue pair. A cell shows the
outcome: the answers with their PSN (relative to the expected PSN at the beginning) and MSN, the completions of receives and
sends, the changes in memory, and the state of the queue pair if it is no longer RTS. The scripts in ` + "`script/library`" + ` define the packets
([script.md](script.md)), which are sent through a packet socket. After each case the target must still answer on
another queue pair. A case fails if the outcome is not the expected one. [Below](#in-other-ways) the same packets
are sent in other ways.

`)
	columns := []string{"packets", "IBTA, or the attack"}
	for _, v := range a.victims {
		if v.kernel == "" {
			columns = append(columns, "roce")
		} else {
			columns = append(columns, v.name)
		}
	}
	head(&b, append(columns, "why they differ")...)
	for i, c := range a.cases {
		fmt.Fprintf(&b, "| %s | %s |", c.Name, c.Rule)
		differ := false
		for at, v := range a.victims {
			cell := v.got[i]
			switch {
			case v.errs[i] != nil:
				cell = "**FAIL** " + cell
			case cell == notAsked:
			case !c.Right(cell):
				differ = true
			case at > 0 && cell == a.victims[0].got[i]:
				cell = "same"
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		why := ""
		if differ {
			why = c.Why()
		}
		fmt.Fprintf(&b, " %s |\n", why)
	}
	w.markdown(&b)
	return b.Bytes()
}
