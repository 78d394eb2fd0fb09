package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/lab"
	"github.com/goroce/roce/bench/internal/programs"
	"github.com/goroce/roce/bench/internal/result"
	"github.com/goroce/roce/bench/internal/tcp"
	"github.com/goroce/roce/internal/progress"
	"github.com/goroce/roce/interop/child"
)

// runner measures cases with the two ends.
type runner struct {
	lab     *lab.Lab
	suite   *programs.Suite                // nil: no case is about programs
	profile string                         // folder for CPU profiles; empty: none
	pairs   map[string][][2]*child.Process // running ends, by the cores that they have
}

// runAll measures the cases until o.limit is over.
func runAll(ctx context.Context, o options, cases []testCase, out io.Writer) (run *result.Run, err error) {
	log := progress.New("bench", out)
	defer func() {
		if why := context.Cause(ctx); why != nil {
			err = why
		}
		log.Close(err)
	}()
	run, err = measureAll(ctx, o, cases, log)
	return run, err
}

func measureAll(ctx context.Context, o options, cases []testCase, log *progress.Meter) (*result.Run, error) {
	if o.profile != "" {
		if err := os.MkdirAll(o.profile, 0o755); err != nil {
			return nil, err
		}
	}
	l, err := lab.New(ctx)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	r := &runner{lab: l, profile: o.profile, pairs: make(map[string][][2]*child.Process)}
	defer r.kill()

	run := &result.Run{Environment: environment(o, l.Cores)}
	note := func(format string, a ...any) {
		text := fmt.Sprintf(format, a...)
		run.Environment.Notes = append(run.Environment.Notes, text)
		fmt.Fprintln(log, text)
	}
	isProgram := func(c testCase) bool { return c.spec.By != "" }
	if slices.ContainsFunc(cases, isProgram) {
		suite, missing, err := programs.New(ctx, l, o.root)
		if err != nil {
			return nil, err
		}
		defer suite.Close()
		r.suite = suite
		for who, why := range missing {
			note("programs of %s cannot be measured here: %s", who, why)
		}
		cases = slices.DeleteFunc(cases, func(c testCase) bool { return isProgram(c) && missing[c.spec.By] != "" })
	}
	began := time.Now()
	if l.Cores[0] == l.Cores[1] {
		run.Environment.Notes = append(run.Environment.Notes, "one core for both sides: this machine has only one")
	}
	if !o.asIs {
		restore, how := shortenPageLists()
		defer restore()
		if how != "" {
			run.Environment.Notes = append(run.Environment.Notes, how)
		}
	}
	missing, err := r.missingLinks(ctx, cases)
	if err != nil {
		return nil, err
	}
	for link, why := range missing {
		note("link %s does not work here, its cases were left out: %s", link, why)
	}
	cases = slices.DeleteFunc(cases, func(c testCase) bool { return missing[c.spec.Link] != "" })
	if err := missingQuota(cases); err != nil {
		note("cases with a quota of processor time were left out: %v", err)
		cases = slices.DeleteFunc(cases, hasQuota)
	}
	points := make([]*result.Point, len(cases))
	for i, c := range cases {
		points[i] = &result.Point{Name: c.name, Spec: c.spec}
	}
	engine := newEngine(o)
	defer engine.close()
	steps := schedule(cases)
	usual := func(s harness.Spec) time.Duration { return s.Warmup + s.Duration + setUpTime }
	for _, t := range steps {
		log.Plan(1, usual(cases[t.point].spec))
	}
	for i, t := range steps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if o.limit > 0 && time.Since(began) > o.limit {
			note("out of time after %v: %d of %d measurements were not made", o.limit, len(steps)-i, len(steps))
			break
		}
		p := points[t.point]
		if len(p.Errors) > 1 && len(p.Rounds) == 0 { // it failed twice before
			log.Plan(-1, usual(p.Spec))
			continue
		}
		end := log.Begin(p.Name)
		if p.Spec.Kind == result.Engine {
			if err := engine.round(ctx); err != nil {
				p.Errors = append(p.Errors, err.Error())
			}
			end()
			log.Count(usual(p.Spec), p.Name)
			continue
		}
		m, err := r.measure(ctx, p.Spec)
		for again := 0; err != nil && again < 2 && ctx.Err() == nil; again++ {
			p.Errors = append(p.Errors, err.Error())
			fmt.Fprintf(log, "%-34s %v\n", p.Name, err)
			m, err = r.measure(ctx, p.Spec)
		}
		end()
		if err != nil {
			log.Count(usual(p.Spec), p.Name)
			continue
		}
		p.Rounds = append(p.Rounds, m)
		if o.verbose {
			log.Step(usual(p.Spec), fmt.Sprintf("%-34s %s", p.Name, brief(p.Spec.Kind, m)))
		} else {
			log.Count(usual(p.Spec), p.Name)
		}
	}
	for _, p := range points {
		if p.Spec.Kind == result.Engine {
			if more, err := engine.points(); err != nil {
				p.Errors = append(p.Errors, err.Error())
			} else {
				run.Points = append(run.Points, more...)
			}
		}
		if len(p.Rounds)+len(p.Errors) > 0 {
			run.Points = append(run.Points, p)
		}
	}
	run.Environment.Took = time.Since(began).Seconds()
	return run, nil
}

// missingLinks returns the links of the cases that do not work on this system, and why.
func (r *runner) missingLinks(ctx context.Context, cases []testCase) (map[string]string, error) {
	missing := make(map[string]string)
	seen := make(map[string]bool)
	for _, c := range cases {
		l := c.spec.Link
		if l == "" || l == "tcp" || seen[l] {
			continue
		}
		seen[l] = true
		m, err := r.measure(ctx, harness.Spec{Kind: kindProbe, Link: l, PMTU: 1024})
		if err != nil {
			return nil, fmt.Errorf("link %s: %w", l, err)
		}
		if m.Mode != "" {
			missing[l] = m.Mode
		}
	}
	return missing, nil
}

// measure measures one round of a case.
func (r *runner) measure(ctx context.Context, s harness.Spec) (m harness.Measure, err error) {
	name, mtu, offloads := s.Link, result.InterfaceMTU(s.PMTU), true
	if s.Kind == result.IPerf {
		mtu = s.PMTU
		if offloads = s.Op != "plain"; !offloads {
			name = "plain"
		}
	}
	pair, err := r.lab.Pair(ctx, name, mtu, offloads)
	if err != nil {
		return m, err
	}
	switch s.Kind {
	case result.IPerf:
		return tcp.IPerf(ctx, r.lab.Start, pair.Ends[1].IP.String(), s.Duration)
	case result.Processes:
		return r.measureProcesses(ctx, s, pair, mtu)
	case result.Programs:
		return r.suite.Measure(ctx, s, pair)
	case result.Busy, result.BusyTrips:
		return r.measureBusy(ctx, s, pair, mtu)
	}
	ends, err := r.ends()
	if err != nil {
		return m, err
	}
	measures := 0
	if s.Kind == result.Blast {
		measures = 1 // the receiver
	}
	both, err := r.lead(ctx, ends, s, pair, mtu, measures)
	m = both[measures]
	m.Mallocs += both[1-measures].Mallocs
	m.Drops += both[1-measures].Drops
	m.Processor += both[1-measures].Processor
	return m, err
}

// ends returns the two usual ends, with a core each.
func (r *runner) ends() ([2]*child.Process, error) {
	return r.another("", 0, r.ownCore, profileVariable+"="+r.profile)
}

func (r *runner) ownCore(end int) []int { return r.lab.Cores[end:][:1] }

// lead controls two ends during a measurement.
func (r *runner) lead(ctx context.Context, ends [2]*child.Process, s harness.Spec, pair *lab.Pair, mtu, measures int) ([2]harness.Measure, error) {
	clients := [2]*child.Client{ends[0].Client, ends[1].Client}
	both, err := harness.Run(ctx, clients, bothEnds(s, pair, mtu), measures, 10*(s.Warmup+s.Duration)+20*time.Second)
	if errors.Is(err, child.ErrBroken) {
		r.kill()
	}
	return both, err
}

// bothEnds returns the Spec of each end.
func bothEnds(s harness.Spec, pair *lab.Pair, mtu int) (specs [2]harness.Spec) {
	for i := range specs {
		s.Active, s.Interface, s.MTU = i == 0, pair.Name, mtu
		s.Local, s.Remote = harness.Address(pair.Ends[i]), harness.Address(pair.Ends[1-i])
		specs[i] = s
	}
	return specs
}

// measureProcesses measures one round of several pairs of processes.
func (r *runner) measureProcesses(ctx context.Context, s harness.Spec, pair *lab.Pair, mtu int) (harness.Measure, error) {
	var pairs [][2]*child.Client
	key := fmt.Sprint(s.Apart, s.Shards)
	for n := range s.Processes {
		pair, err := r.another(key, n, func(end int) []int { return r.cores(s, n, end) })
		if err != nil {
			return harness.Measure{}, err
		}
		pairs = append(pairs, [2]*child.Client{pair[0].Client, pair[1].Client})
	}
	m, err := harness.RunTogether(ctx, pairs, bothEnds(s, pair, mtu), 0, 10*(s.Warmup+s.Duration)+20*time.Second)
	if errors.Is(err, child.ErrBroken) {
		r.kill()
	}
	return m, err
}

// another returns the nth pair of processes with a key, which it starts unless it is running.
func (r *runner) another(key string, n int, cores func(end int) []int, env ...string) (both [2]*child.Process, err error) {
	if n < len(r.pairs[key]) {
		return r.pairs[key][n], nil
	}
	for i := range both {
		if both[i], err = r.lab.Child(i, cores(i), append([]string{endVariable + "=1", profileVariable + "="}, env...)...); err != nil {
			if i > 0 {
				both[0].Close()
			}
			return both, err
		}
	}
	r.pairs[key] = append(r.pairs[key], both)
	return both, nil
}

// cores returns the cores of an end of a pair of processes.
func (r *runner) cores(s harness.Spec, pair, end int) []int {
	switch both := r.lab.Cores[:]; {
	case s.Shards > 1:
		return both
	case s.Apart:
		return both[pair%2:][:1]
	default:
		return r.ownCore(end)
	}
}

// kill ends all ends.
func (r *runner) kill() {
	for _, pairs := range r.pairs {
		for _, both := range pairs {
			both[0].Close()
			both[1].Close()
		}
	}
	clear(r.pairs)
}

// brief describes the result of a round.
func brief(kind string, m harness.Measure) string {
	switch {
	case m.Latency != nil:
		return fmt.Sprintf("%.1f µs, p99 %.1f, p99.9 %.1f  %s", m.Latency.P50, m.Latency.P99, m.Latency.P999, m.Mode)
	case kind == result.Alternating:
		return fmt.Sprintf("%.2f, %.3f : %.3f M/s, both directions %.2f  %s", m.Value, m.Extra["READ"]/1e6, m.Extra["WRITE"]/1e6, m.Extra["both"], m.Mode)
	case kind == result.Memory:
		return fmt.Sprintf("%.0f bytes", m.Value)
	case kind == result.Scaling && m.Value > 0:
		return fmt.Sprintf("%.3f M/s, one %.3f, %.2f to it, %d sent again, %d dropped  %s", m.Rate()/1e6, m.Extra["one"]/1e6, m.Value, m.Retrans, m.Drops, m.Mode)
	case m.Handled > 0:
		return fmt.Sprintf("%7.2f Gb/s %8.3f M/s  %.2f µs of processor time for each", m.Goodput()/1e9, m.Rate()/1e6, 1e6*m.Processor/float64(m.Handled))
	case m.Bytes > 0:
		return fmt.Sprintf("%7.2f Gb/s %8.3f M/s  %d allocations, %d sent again, %d dropped  %s",
			m.Goodput()/1e9, m.Rate()/1e6, m.Mallocs, m.Retrans, m.Drops, m.Mode)
	}
	return fmt.Sprintf("%.0f/s", m.Rate())
}
