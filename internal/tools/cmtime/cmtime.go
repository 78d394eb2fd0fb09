// Package cmtime is cmtime of librdmacm's examples: how long the steps of a
// connection take, for many connections at once. No data is sent.
package cmtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/rdmacm"
)

// DefaultPort is the port cmtime uses.
const DefaultPort = 7471

// Config are cmtime's options, with its defaults for zero values.
type Config struct {
	Connections int            // -c, 100; of a server: it ends after so many, 0: never
	Retries     int            // -r of address and route, and of the transport; negative: none, 0: 2
	Timeout     time.Duration  // -t of address and route, 2 s
	Bind        netip.AddrPort // -b of a client
	Out         io.Writer      // what cmtime prints; nil: nowhere
}

// step is one thing that takes time.
type step int

const (
	createID step = iota
	bind
	resolveAddr
	resolveRoute
	createQP
	connecting
	disconnecting
	destroy
	steps
)

var stepNames = [...]string{"create id", "bind addr", "resolve addr", "resolve route", "create qp", "connect", "disconnect", "destroy"}

// span is when something began and ended.
type span struct{ begin, end time.Time }

func (s span) us() float64 { return float64(s.end.Sub(s.begin).Nanoseconds()) / 1e3 }

// node is one connection.
type node struct {
	id      *rdmacm.ID
	times   [steps]span
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
	times   [steps]span
}

// config is the queue pair of cmtime.
var config = roce.QPConfig{Caps: roce.Caps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}

// Client makes the connections and ends them, each step for all at once, and
// prints how long it took. It fails if any of them did.
func Client(ctx context.Context, d *roce.Device, addr string, c Config) (err error) {
	t := &test{Config: c}
	if t.to, err = netip.ParseAddrPort(addr); err != nil {
		return err
	}
	t.defaults()
	if t.host, err = rdmacm.NewHost(d); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.host.Close()) }()
	t.channel = t.host.NewChannel()
	t.nodes = make([]node, t.Connections)
	if err := t.run(ctx); err != nil {
		return err
	}
	t.print()
	for i := range t.nodes {
		if err := t.nodes[i].err; err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
	}
	return nil
}

func (t *test) defaults() {
	if t.Connections == 0 {
		t.Connections = 100
	}
	if t.Retries == 0 {
		t.Retries = 2
	}
	t.Retries = max(t.Retries, 0)
	if t.Timeout == 0 {
		t.Timeout = 2 * time.Second
	}
	if t.Out == nil {
		t.Out = io.Discard
	}
}

func (t *test) run(ctx context.Context) error {
	param := rdmacm.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: uint8(min(t.Retries, 7))}
	type action struct {
		step  step
		title string
		skip  bool
		do    func(*node) error
		done  []rdmacm.EventType // the first is success; none: do is all
	}
	for _, a := range []action{
		{step: createID, title: "creating id", do: func(n *node) (err error) {
			n.id, err = t.host.CreateID(t.channel, rdmacm.TCP, n)
			return err
		}},
		{step: bind, title: "binding source address", skip: !t.Bind.IsValid(), do: func(n *node) error { return n.id.Bind(t.Bind) }},
		{step: resolveAddr, title: "resolving address", do: func(n *node) error {
			n.retries = t.Retries
			return n.id.ResolveAddr(ctx, netip.AddrPort{}, t.to, t.Timeout)
		}, done: []rdmacm.EventType{rdmacm.AddrResolved, rdmacm.AddrError}},
		{step: resolveRoute, title: "resolving route", do: func(n *node) error {
			n.retries = t.Retries
			return n.id.ResolveRoute(ctx, t.Timeout)
		}, done: []rdmacm.EventType{rdmacm.RouteResolved, rdmacm.RouteError}},
		{step: createQP, title: "creating qp", do: func(n *node) error { return n.id.CreateQP(nil, config) }},
		{step: connecting, title: "connecting", do: func(n *node) error { return n.id.Connect(ctx, param) },
			done: []rdmacm.EventType{rdmacm.Established, rdmacm.ConnectError, rdmacm.Unreachable, rdmacm.Rejected}},
		{step: disconnecting, title: "disconnecting", do: func(n *node) error {
			if err := n.id.Disconnect(ctx); err != nil {
				return err
			}
			return n.id.DestroyQP()
		}, done: []rdmacm.EventType{rdmacm.Disconnected}},
		{step: destroy, title: "destroying id", do: func(n *node) error { return n.id.DestroyEP() }},
	} {
		if a.skip {
			continue
		}
		fmt.Fprintln(t.Out, a.title)
		if err := t.all(ctx, a.step, a.do, a.done); err != nil {
			return err
		}
	}
	return nil
}

// all does a step for all connections and waits for their events.
func (t *test) all(ctx context.Context, s step, do func(*node) error, done []rdmacm.EventType) error {
	t.times[s].begin = time.Now()
	waiting := 0
	for i := range t.nodes {
		n := &t.nodes[i]
		if n.err != nil && s != destroy || n.id == nil && s != createID {
			continue
		}
		n.times[s].begin = time.Now()
		if err := do(n); err != nil {
			n.err = fmt.Errorf("%s: %w", stepNames[s], err)
			n.times[s] = span{}
			continue
		}
		if done == nil {
			n.times[s].end = time.Now()
		} else {
			waiting++
		}
	}
	for waiting > 0 {
		ev, err := t.channel.Next(ctx)
		if err != nil {
			return fmt.Errorf("%s: %d of %d are missing: %w", stepNames[s], waiting, len(t.nodes), err)
		}
		n := ev.ID.Context.(*node)
		for _, want := range done {
			if ev.Type != want {
				continue
			}
			if ev.Err != nil && n.retries > 0 && s < connecting {
				n.retries--
				if do(n) == nil {
					break
				}
			}
			n.times[s].end = time.Now()
			if ev.Err != nil {
				n.err = fmt.Errorf("%s: %v: %w", stepNames[s], ev.Type, ev.Err)
			}
			waiting--
		}
	}
	t.times[s].end = time.Now()
	return nil
}

// print prints cmtime's table.
func (t *test) print() {
	fmt.Fprintln(t.Out, "step              total ms     max ms     min us  us / conn")
	for s := range steps {
		if s == bind && !t.Bind.IsValid() {
			continue
		}
		longest, shortest := 0.0, 999999999.0
		for i := range t.nodes {
			if sp := t.nodes[i].times[s]; !sp.end.IsZero() {
				longest, shortest = max(longest, sp.us()), min(shortest, sp.us())
			}
		}
		total := t.times[s].us()
		fmt.Fprintf(t.Out, "%-13s: %11.2f%11.2f%11.2f%11.2f\n", stepNames[s], total/1e3, longest/1e3, shortest, total/float64(len(t.nodes)))
	}
}

// Server accepts connections until the context ends, or as many as c says have
// ended. listening is called when clients can connect.
func Server(ctx context.Context, d *roce.Device, addr string, c Config, listening func(netip.AddrPort)) (err error) {
	host, err := rdmacm.NewHost(d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	if len(addr) > 0 && addr[0] == ':' {
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
	for over := 0; c.Connections == 0 || over < c.Connections; {
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
			over++
			if err := errors.Join(ev.ID.Disconnect(ctx), ev.ID.DestroyEP()); err != nil {
				return err
			}
		case rdmacm.Rejected, rdmacm.Unreachable: // the client has changed its mind
			ev.ID.DestroyEP()
		}
	}
	return nil
}

// accept accepts a request, unless the client gave up meanwhile.
func accept(ctx context.Context, id *rdmacm.ID) error {
	if err := id.CreateQP(nil, config); err != nil {
		id.Reject(nil)
		id.DestroyEP()
		return err
	}
	if err := id.Accept(ctx, rdmacm.ConnParam{}); err != nil && ctx.Err() != nil {
		return err
	}
	return nil
}
