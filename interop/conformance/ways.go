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
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/interop/netns"
	"github.com/goroce/roce/script"
)

// ways has the results of the hostile cases in every way, for each target.
type ways struct {
	cases []hostile.Case
	ways  []script.Way
	meter *progress.Meter

	targets []string
	once    map[string]string // outcome of each case with each packet sent eight times, one by one

	mu      sync.Mutex
	results map[string]wayResult // by target and way
}

// wayResult is the result of all cases in one way.
type wayResult struct {
	ran    int
	failed []string // names of cases
}

func newWays(all []hostile.Case) *ways {
	var cases []hostile.Case
	for _, c := range all {
		if c.InWays() {
			cases = append(cases, c)
		}
	}
	return &ways{cases: cases, ways: script.Ways(), once: map[string]string{}, results: map[string]wayResult{}}
}

// refer runs each case in this process, with each packet sent eight times, one by one. The outcome is the reference for
// the packets in a run.
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

// target adds a column to the table. The caller adds the columns of all targets before they run in parallel, so that
// the order is always the same.
func (w *ways) target(name string) {
	w.targets = append(w.targets, name)
}

// run attacks one target in some ways, with the cases that want selects. All cases of a way share a device context.
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
		w.meter.Step(wayUsual, row(word, v.name, 60, "hostile, "+way.String(), time.Since(began), bad...))
	}
}

func key(target string, way script.Way) string { return target + ", " + way.String() }

// mostFailures is how many cases may fail in one way before the rest is skipped: each failed case waits until a time
// limit.
const mostFailures = 10

// attack runs the cases in one way and returns the failures.
func (w *ways) attack(ctx context.Context, v victim, way script.Way, want func(hostile.Case) bool) (bad []string) {
	var result wayResult
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.results[key(v.name, way)] = result
	}()
	fail := func(c string, err error) {
		bad = append(bad, fmt.Sprintf("hostile/%s: %v", c, err))
		result.failed = append(result.failed, c)
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
			return append(bad, "the remaining cases were skipped")
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
		result.ran++
		if r.Err != nil { // the target may be in any state now
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
			p, err := netns.NewPair(ctx, driver, device)
			if err != nil {
				return err
			}
			defer p.Remove()
			// The answers to the stranger behind the router need a route.
			if err := p[1].IP(ctx, "route add default via 10.79.0.1"); err != nil {
				return err
			}
			victims = append(victims, victimOf(driver, "", ourTarget(p[1].Do, device, driver), func() (*hostile.Attacker, error) {
				return attackerOn(p[0].Do, device, "10.79.0.1", "10.79.0.2", wayQuiet, false)
			}))
		}
	}
	var wg sync.WaitGroup
	for _, v := range victims {
		w.target(v.name)
		wg.Go(func() { w.run(ctx, v, w.ways, every) })
	}
	wg.Wait()
	return ctx.Err()
}

// runKernel sends packets from a stranger on the same network to rxe that rxe would execute if they came
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
	for _, r := range w.results {
		n += len(r.failed)
	}
	return n
}

func (w *ways) summary(out io.Writer) {
	total := 0
	for _, r := range w.results {
		total += r.ran
	}
	if total+w.failures() == 0 {
		return
	}
	fmt.Fprintf(out, "hostile packets in other ways: %d passed, %d failed\n", max(total-w.failures(), 0), w.failures())
	for key, r := range w.results {
		if r.failed != nil {
			fmt.Fprintf(out, "failed: hostile, %s: %s\n", key, strings.Join(r.failed, "; "))
		}
	}
}

// markdown renders the table of the ways.
func (w *ways) markdown(b *bytes.Buffer) {
	if len(w.targets) == 0 {
		return
	}
	b.WriteString(`
## In other ways

The same packets are sent alone, eight times each in one super-packet, and in the middle of a stream of good packets for
another queue pair (in one super-packet with these, if the driver makes super-packets). They come from the peer's address, from the address of
another host on the same network with its own Ethernet address, and from the address of a host behind a router.

- **From a stranger** the packets must have no effect, and each must be counted as dropped, except that datagrams (UD) with the
right Q_Key are accepted from any source.
- **A run** must have the same outcome as the same packets sent eight times one by one; repeated answers count once.
- **Alone from the peer** the packets must have the outcome of the rows above over each driver, except that xdp cannot detect a wrong UDP checksum.
- **In a stream** the packets must have the same outcome as alone, and the stream must arrive.

A cell has the number of cases with the required outcome. rxe gets only the cases that have an effect if they come from the peer.

`)
	head(b, append([]string{"sent"}, w.targets...)...)
	for _, way := range w.ways {
		fmt.Fprintf(b, "| %s |", way)
		for _, t := range w.targets {
			r := w.results[key(t, way)]
			n, failed := r.ran, len(r.failed)
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

// wayQuiet is how long a target must be silent at the end of a case that has already run alone.
const wayQuiet = 500 * time.Microsecond
