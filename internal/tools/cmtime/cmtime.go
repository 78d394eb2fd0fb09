// Package cmtime is cmtime of librdmacm's examples: how long the steps of a connection take,
// for many connections at once. It sends no data.
package cmtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/usage"
	"github.com/goroce/roce/rdmacm"
)

// DefaultPort is the port that cmtime uses.
const DefaultPort = 7471

// Forever is the number of connections of a server that does not end.
const Forever = 0

// Config are cmtime's options.
type Config struct {
	Connections int            // -c; a server ends after so many, or with Forever never
	Retries     int            // -r of address and route, and of the transport
	Timeout     time.Duration  // -t of address and route
	Bind        netip.AddrPort // -b of a client; invalid: the one that leads to the server
	Out         io.Writer      // what cmtime prints; nil: nowhere
}

// Default returns what cmtime does without flags.
func Default() Config { return Config{Connections: 100, Retries: 2, Timeout: 2 * time.Second} }

// Validate returns an error that names the option which makes no sense.
func (c *Config) Validate() error {
	return cmp.Or(usage.AtLeast("-c", c.Connections, 1), usage.AtLeast("-r", c.Retries, 0), usage.AtLeast("-t", int(c.Timeout/time.Millisecond), 1))
}

// Indices of special steps, and the number of steps.
const (
	createID = 0
	bind     = 1
	destroy  = numSteps - 1
	numSteps = 8
)

// span is when something began and ended.
type span struct{ begin, end time.Time }

func (s span) us() float64 { return float64(s.end.Sub(s.begin).Nanoseconds()) / 1e3 }

// node is one connection.
type node struct {
	id      *rdmacm.ID
	times   [numSteps]span
	retries int
	err     error
}

// test is a run of the client.
type test struct {
	Config
	to      netip.AddrPort
	host    *rdmacm.Host
	channel *rdmacm.Channel
	nodes   []node
	times   [numSteps]span
}

// qpConfig is the queue pair of cmtime.
var qpConfig = roce.QPConfig{Caps: roce.Caps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}

// steps are what takes time, in order.
var steps = [numSteps]struct {
	name, title string
	retry       bool // the step is repeated after an error event
	do          func(*test, context.Context, *node) error
	done        []rdmacm.EventType // events that end the step; none: do is all
}{
	{name: "create id", title: "creating id", do: func(t *test, _ context.Context, n *node) (err error) {
		n.id, err = t.host.CreateID(t.channel, rdmacm.TCP, n)
		return err
	}},
	{name: "bind addr", title: "binding source address", do: func(t *test, _ context.Context, n *node) error { return n.id.Bind(t.Bind) }},
	{name: "resolve addr", title: "resolving address", retry: true, do: func(t *test, ctx context.Context, n *node) error {
		return n.id.ResolveAddr(ctx, netip.AddrPort{}, t.to, t.Timeout)
	}, done: []rdmacm.EventType{rdmacm.AddrResolved, rdmacm.AddrError}},
	{name: "resolve route", title: "resolving route", retry: true, do: func(t *test, ctx context.Context, n *node) error {
		return n.id.ResolveRoute(ctx, t.Timeout)
	}, done: []rdmacm.EventType{rdmacm.RouteResolved, rdmacm.RouteError}},
	{name: "create qp", title: "creating qp", do: func(_ *test, _ context.Context, n *node) error { return n.id.CreateQP(nil, qpConfig) }},
	{name: "connect", title: "connecting", do: func(t *test, ctx context.Context, n *node) error {
		return n.id.Connect(ctx, rdmacm.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: cmp.Or(t.Retries, -1), RNRRetryCount: -1})
	}, done: []rdmacm.EventType{rdmacm.Established, rdmacm.ConnectError, rdmacm.Unreachable, rdmacm.Rejected}},
	{name: "disconnect", title: "disconnecting", do: func(_ *test, ctx context.Context, n *node) error {
		if err := n.id.Disconnect(ctx); err != nil {
			return err
		}
		return n.id.DestroyQP()
	}, done: []rdmacm.EventType{rdmacm.Disconnected}},
	{name: "destroy", title: "destroying id", do: func(_ *test, _ context.Context, n *node) error { return n.id.DestroyEP() }},
}

// skipped reports whether a step is not part of the test.
func (t *test) skipped(step int) bool { return step == bind && !t.Bind.IsValid() }

// Client makes the connections and ends them, each step for all at once, and prints how long
// it took. It fails if a connection failed. addr is "host:port".
func Client(ctx context.Context, d *roce.Device, addr string, c Config) (err error) {
	t := &test{Config: c, nodes: make([]node, c.Connections)}
	if t.to, err = netip.ParseAddrPort(addr); err != nil {
		return err
	}
	if t.Out == nil {
		t.Out = io.Discard
	}
	if t.host, err = rdmacm.NewHost(d); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.host.Close()) }()
	t.channel = t.host.NewChannel()
	for step := range steps {
		if t.skipped(step) {
			continue
		}
		fmt.Fprintln(t.Out, steps[step].title)
		if err := t.all(ctx, step); err != nil {
			return err
		}
	}
	t.print()
	for i := range t.nodes {
		if err := t.nodes[i].err; err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
	}
	return nil
}

// all does a step for all connections and waits for their events.
func (t *test) all(ctx context.Context, step int) error {
	s := &steps[step]
	t.times[step].begin = time.Now()
	waiting := 0
	for i := range t.nodes {
		n := &t.nodes[i]
		if n.err != nil && step != destroy || n.id == nil && step != createID {
			continue
		}
		n.retries, n.times[step].begin = t.Retries, time.Now()
		if err := s.do(t, ctx, n); err != nil {
			n.err = fmt.Errorf("%s: %w", s.name, err)
			n.times[step] = span{}
		} else if s.done == nil {
			n.times[step].end = time.Now()
		} else {
			waiting++
		}
	}
	for waiting > 0 {
		ev, err := t.channel.Next(ctx)
		if err != nil {
			return fmt.Errorf("%s: %d of %d are missing: %w", s.name, waiting, len(t.nodes), err)
		}
		if !slices.Contains(s.done, ev.Type) {
			continue
		}
		n := ev.ID.Context.(*node)
		if ev.Err != nil && s.retry && n.retries > 0 {
			n.retries--
			if s.do(t, ctx, n) == nil {
				continue
			}
		}
		n.times[step].end = time.Now()
		if ev.Err != nil {
			n.err = fmt.Errorf("%s: %v: %w", s.name, ev.Type, ev.Err)
		}
		waiting--
	}
	t.times[step].end = time.Now()
	return nil
}

// print prints cmtime's table.
func (t *test) print() {
	fmt.Fprintln(t.Out, "step              total ms     max ms     min us  us / conn")
	for step := range steps {
		if t.skipped(step) {
			continue
		}
		longest, shortest := 0.0, 999999999.0
		for i := range t.nodes {
			if sp := t.nodes[i].times[step]; !sp.end.IsZero() {
				longest, shortest = max(longest, sp.us()), min(shortest, sp.us())
			}
		}
		total := t.times[step].us()
		fmt.Fprintf(t.Out, "%-13s: %11.2f%11.2f%11.2f%11.2f\n", steps[step].name, total/1e3, longest/1e3, shortest, total/float64(len(t.nodes)))
	}
}

// Server accepts connections until ctx ends, or until as many as c says have ended. It calls
// listening when clients can connect. addr is "host:port", and host may be empty.
func Server(ctx context.Context, d *roce.Device, addr string, c Config, listening func(netip.AddrPort)) (err error) {
	host, err := rdmacm.NewHost(d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	if strings.HasPrefix(addr, ":") {
		addr = "0.0.0.0" + addr
	}
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return err
	}
	channel := host.NewChannel()
	l, err := host.CreateID(channel, rdmacm.TCP, nil)
	if err != nil {
		return err
	}
	if err := l.Bind(at); err != nil {
		return err
	}
	if err := l.Listen(0); err != nil {
		return err
	}
	listening(l.LocalAddr())
	for ended := 0; c.Connections == Forever || ended < c.Connections; {
		ev, err := channel.Next(ctx)
		if err != nil {
			return err
		}
		switch ev.Type {
		case rdmacm.ConnectRequest:
			if err := accept(ctx, ev.ID); err != nil {
				return err
			}
		case rdmacm.Disconnected:
			ended++
			if err := errors.Join(ev.ID.Disconnect(ctx), ev.ID.DestroyEP()); err != nil {
				return err
			}
		case rdmacm.Rejected, rdmacm.Unreachable: // the client gave up
			ev.ID.DestroyEP()
		}
	}
	return nil
}

// accept accepts a request. It returns nil, too, if the client gave up meanwhile.
func accept(ctx context.Context, id *rdmacm.ID) error {
	if err := id.CreateQP(nil, qpConfig); err != nil {
		id.Reject(nil)
		id.DestroyEP()
		return err
	}
	if err := id.Accept(ctx, rdmacm.ConnParam{}); err != nil && ctx.Err() != nil {
		return err
	}
	return nil
}
