//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/goroce/roce/bench/internal/result"
	"github.com/goroce/roce/interop/proc"
)

// onThisMachine makes the pairs, runs all tests, and removes the pairs.
func (o *options) onThisMachine(ctx context.Context) error {
	p, err := newPairs(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	m := &measurer{options: o, pairs: p, results: o.header(), port: firstPort}
	for round := range o.rounds {
		for _, t := range tests {
			if o.run.MatchString(t.name) {
				if err := m.row(ctx, t, round); err != nil {
					return err
				}
			}
		}
	}
	m.results.summarize()
	fmt.Print(m.results.markdown())
	return m.results.write(o.out)
}

// firstPort is the number before the TCP port of the first test.
const firstPort = 19000

// measurer runs one test after the other.
type measurer struct {
	*options
	pairs   *pairs
	results results
	port    int // TCP port of the last test, over which its ends exchange their addresses
	mtu     int
}

// row runs one test once with each contender. Each round begins with another contender.
func (m *measurer) row(ctx context.Context, t test, round int) error {
	all := m.contenders(t)
	if t.mtu != m.mtu {
		if err := m.pairs.setMTU(ctx, t.mtu); err != nil {
			return err
		}
		m.mtu = t.mtu
	}
	for i := range all {
		c := all[(i+round)%len(all)]
		v, err := m.measure(ctx, c, t)
		if err != nil {
			fmt.Fprintf(os.Stderr, "round %d  %-26s %-10s failed: %v\n", round+1, t.name, c.name(), err)
		} else {
			fmt.Fprintf(os.Stderr, "round %d  %-26s %-10s %.4g %s\n", round+1, t.name, c.name(), v.Value, t.unit())
		}
		m.results.add(t, c.name(), v, err)
	}
	return ctx.Err()
}

// contenders returns the contenders of a test.
func (m *measurer) contenders(t test) (all []contender) {
	if t.who == fromRXE || t.who == lossy {
		for _, l := range m.links {
			p := m.pairs.mixed
			all = append(all, mixed{ours{p, m.rocectl, l, m.cpus > 1}, rxe{p}, t.who == lossy})
		}
		return all
	}
	all = append(all, rxe{m.pairs.rxe})
	for _, l := range m.links {
		all = append(all, ours{m.pairs.ours, m.rocectl, l, m.cpus > 1})
	}
	if t.who == libraried {
		for _, l := range m.links {
			all = append(all, libraries{m.pairs.ours, m.lib, l})
		}
	}
	return all
}

// measure runs one test with one contender. If there are two processors, each end has one.
func (m *measurer) measure(ctx context.Context, c contender, t test) (result.RXESample, error) {
	m.port++
	before := m.pairs.carried()
	ctx, stop := context.WithTimeout(ctx, time.Duration(m.seconds)*time.Second+time.Minute)
	defer stop()
	start := func(end int) (*proc.Proc, error) {
		pin := []string{"taskset", "-c", strconv.Itoa(end % m.cpus)}
		return proc.Start(ctx, c.in(end, append(pin, c.argv(end, t, m.port, m.seconds)...)...)...)
	}
	s, err := start(0)
	if err != nil {
		return result.RXESample{}, err
	}
	if err := m.listens(ctx, c, s); err != nil {
		return result.RXESample{}, err
	}
	p, err := start(1)
	if err != nil {
		return result.RXESample{}, err
	}
	out, err := p.Finish(ctx)
	if err != nil {
		return result.RXESample{}, fmt.Errorf("%w; server: %s", err, s.Output())
	}
	if _, err := s.Wait(ctx); err != nil {
		return result.RXESample{}, err
	}
	v, err := t.read(out)
	if _, is := c.(rxe); is && err == nil {
		if got := m.pairs.carried() - before; got < uint64(v.Iters)*uint64(t.size) {
			err = fmt.Errorf("the veth pair has carried %d bytes of %d messages: the kernel has bypassed it", got, v.Iters)
		}
	}
	return v, err
}

// patience is the time within which a server must listen.
const patience = 20 * time.Second

// listens waits until the server listens.
func (m *measurer) listens(ctx context.Context, c contender, server *proc.Proc) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	look := fmt.Sprintf("until cat /proc/net/tcp /proc/net/tcp6 | grep -q ':%04X 0*:0000 0A'; do sleep 0.05; done", m.port)
	if _, err := proc.Run(ctx, c.in(0, "sh", "-c", look)...); err != nil {
		return fmt.Errorf("the server does not listen: %w; %s", err, server.Output())
	}
	return nil
}
