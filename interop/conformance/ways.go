//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/goroce/roce/internal/progress"
	"github.com/goroce/roce/interop/conformance/hostile"
	"github.com/goroce/roce/interop/conformance/suite"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/script"
)

// ways is what came of the hostile cases in every way, for each target.
type ways struct {
	cases []hostile.Case
	ways  []script.Way
	meter *progress.Meter

	mu      sync.Mutex
	targets []string
	failed  map[string][]string // names of cases, by target and way
	ran     map[string]int
	once    map[string]string // what came of each case eight times one by one
}

func newWays(all []hostile.Case) *ways {
	var cases []hostile.Case
	for _, c := range all {
		if c.InWays() {
			cases = append(cases, c)
		}
	}
	return &ways{cases: cases, ways: script.Ways(), failed: map[string][]string{}, ran: map[string]int{}, once: map[string]string{}}
}

// refer runs each case eight times one by one, in the process: what a run must do, too.
func (w *ways) refer(ctx context.Context) error {
	v := memVictim()
	n, a, err := v.open()
	if err != nil {
		return err
	}
	defer n.Close()
	defer a.Close()
	a.Quiet = 500 * time.Microsecond
	for _, c := range w.cases {
		r := hostile.RunOnce(c, n, a)
		if r.Err != nil {
			return fmt.Errorf("hostile/%s, 8 times: %w", c.Name, r.Err)
		}
		w.once[c.Name] = r.Got
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// target makes a column of the table. The caller makes those of all targets in one order, before they run side by side.
func (w *ways) target(name string) {
	w.targets = append(w.targets, name)
}

// run attacks one target in some ways, with those cases that are wanted. All cases of a
// way share a device context.
func (w *ways) run(ctx context.Context, v victim, in []script.Way, want func(hostile.Case) bool) {
	for _, way := range in {
		began := time.Now()
		end := w.meter.Begin(v.name + " " + way.String())
		bad := w.attack(ctx, v, way, want)
		end()
		if ctx.Err() != nil {
			return
		}
		word := "pass"
		if len(bad) > 0 {
			word = "FAIL"
		}
		text := fmt.Sprintf("%s  %-18s  %-60s %5.2fs\n", word, v.name, "hostile, "+way.String(), time.Since(began).Seconds())
		for _, s := range bad {
			text += fmt.Sprintf("      %s\n", strings.ReplaceAll(s, "\n", "\n      "))
		}
		w.meter.Step(wayUsual, text)
	}
}

// mostFailures is how many cases may fail in one way: each waits for what does not come.
const mostFailures = 10

// attack runs the cases in one way and returns what was wrong.
func (w *ways) attack(ctx context.Context, v victim, way script.Way, want func(hostile.Case) bool) (bad []string) {
	key := v.name + ", " + way.String()
	fail := func(c string, err error) {
		bad = append(bad, fmt.Sprintf("hostile/%s: %v", c, err))
		w.mu.Lock()
		defer w.mu.Unlock()
		w.failed[key] = append(w.failed[key], c)
	}
	var n verbs.Node
	var a *hostile.Attacker
	shut := func() {
		if n != nil {
			n.Close()
			a.Close()
			n = nil
		}
	}
	defer shut()
	for _, c := range w.cases {
		if ctx.Err() != nil || !want(c) {
			continue
		}
		if len(bad) == mostFailures {
			return append(bad, "the cases behind these were not tried")
		}
		var err error
		if n == nil {
			if n, a, err = v.open(); err != nil {
				n = nil
				fail("no target", err)
				return bad
			}
			a.Way = way
		}
		r := hostile.RunWay(c, n, a)
		if err := hostile.CheckWay(c, way, r, v.name, w.once[c.Name]); err != nil {
			fail(c.Name, err)
		}
		w.mu.Lock()
		w.ran[key]++
		w.mu.Unlock()
		if r.Err != nil { // whatever it is in now
			shut()
		}
	}
	return bad
}

// runLinks attacks roce over each link in each way, all links at the same time.
func (w *ways) runLinks(ctx context.Context, root bool) error {
	if len(w.cases) == 0 {
		return nil
	}
	if err := w.refer(ctx); err != nil {
		return err
	}
	victims := []victim{memVictim()}
	if root {
		for _, driver := range []string{"raw", "udp", "xdp"} {
			bed, err := newVethBed(ctx, driver)
			if err != nil {
				return err
			}
			defer bed.close()
			v, err := bed.victimOf(driver)
			if err != nil {
				return err
			}
			victims = append(victims, v)
		}
	}
	all := func(hostile.Case) bool { return true }
	var wg sync.WaitGroup
	for _, v := range victims {
		w.target(v.name)
		wg.Go(func() { w.run(ctx, v, w.ways, all) })
	}
	wg.Wait()
	return ctx.Err()
}

// runKernel has a stranger on the segment send to rxe what would be executed if it came
// from the peer.
func (w *ways) runKernel(ctx context.Context, v victim) {
	if len(w.cases) == 0 {
		return
	}
	in := []script.Way{{Origin: script.FromStranger, Mode: script.InRun}}
	w.run(ctx, v, in, func(c hostile.Case) bool {
		e := c.Expected(v.kernel)
		return e[0] != "nothing" && e[0] != hostile.Panic && !strings.HasPrefix(c.Name, "UD:")
	})
}

func (w *ways) failures() (n int) {
	for _, f := range w.failed {
		n += len(f)
	}
	return n
}

func (w *ways) summary(out io.Writer) {
	total := 0
	for _, n := range w.ran {
		total += n
	}
	if total+w.failures() == 0 {
		return
	}
	fmt.Fprintf(out, "hostile packets in other ways: %d passed, %d failed\n", max(total-w.failures(), 0), w.failures())
	for key, f := range w.failed {
		fmt.Fprintf(out, "failed: hostile, %s: %s\n", key, strings.Join(f, "; "))
	}
}

// markdown renders the table of the ways.
func (w *ways) markdown(b *bytes.Buffer) {
	if len(w.targets) == 0 {
		return
	}
	b.WriteString(`
## In other ways

The same packets, sent alone, eight times each in one super-packet, and in the middle of a stream of good packets for
another queue pair, in one super-packet with it where the drivers make such; from the peer's address, from that of
another host of the segment with an Ethernet address of its own, and from that of a host behind a router.

- **From a stranger** nothing may come of any of them, and each must be counted as dropped; but datagrams (UD) with the
  right Q_Key may come from anybody.
- **A run** must do what the same packets do that are sent eight times one by one; answers that repeat each other count once.
- **Alone from the peer** they must do what the rows above say over each driver; xdp cannot see a wrong UDP checksum.
- **In a stream** they must do what they do alone, and the stream must arrive.

A cell is how many cases came out so. rxe gets those that have an effect when they come from the peer.

`)
	b.WriteString("| sent |")
	for _, t := range w.targets {
		fmt.Fprintf(b, " %s |", t)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(w.targets)) + "\n")
	for _, way := range w.ways {
		fmt.Fprintf(b, "| %s |", way)
		for _, t := range w.targets {
			key := t + ", " + way.String()
			n, failed := w.ran[key], len(w.failed[key])
			switch {
			case failed > 0:
				fmt.Fprintf(b, " **%d failed of %d** |", failed, max(n, failed))
			case n == 0:
				b.WriteString(" – |")
			default:
				fmt.Fprintf(b, " all %d |", n)
			}
		}
		b.WriteByte('\n')
	}
}

// victimOf is roce over a driver on one end of the veth pair.
func (v *vethBed) victimOf(driver string) (victim, error) {
	// The stranger behind the router is answered the way it came.
	if err := v.b.IP(context.Background(), "route add default via 10.79.0.1"); err != nil {
		return victim{}, err
	}
	target := ourTarget(v.b.Do, "veth0", driver)
	return victimOf(driver, "", func(suite.Test) (verbs.Node, error) { return target(suite.Test{Clean: true}) }, func() (*hostile.Attacker, error) {
		a, err := attackerOn(v.a.Do, "veth0", "10.79.0.1", "10.79.0.2", wayQuiet, false)
		return a, err
	}), nil
}

// wayQuiet is how long a target must be silent when the case was seen alone before.
const wayQuiet = 500 * time.Microsecond
