package rdmacm_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/rdmacm"
)

// TestMain fails if tests leave goroutines of this module behind.
func TestMain(m *testing.M) {
	code := m.Run()
	for end := time.Now().Add(5 * time.Second); code == 0; runtime.Gosched() {
		buf := make([]byte, 1<<20)
		stacks := strings.SplitN(string(buf[:runtime.Stack(buf, true)]), "\n\n", 2)
		if len(stacks) == 1 || !strings.Contains(stacks[1], "goroce/roce") {
			break
		}
		if time.Now().After(end) {
			fmt.Fprintf(os.Stderr, "goroutines are left:\n%s\n", stacks[1])
			code = 1
		}
	}
	os.Exit(code)
}

// bubble runs f in simulated time (testing/synctest).
func bubble(t *testing.T, f func(t *testing.T)) { t.Helper(); synctest.Test(t, f) }

func ok[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) || target == nil && err != nil {
		t.Errorf("%s: error %v, want %v", what, err, target)
	}
}

// network is a switch for hosts.
type network struct {
	t   testing.TB
	hub *mem.Hub
}

func newNetwork(t testing.TB) *network { return &network{t, mem.NewHub(mem.Config{MTU: 4200})} }

// device opens a device with addresses. Its port has the name and the Ethernet address of the first address.
func (n *network) device(c roce.Config, addrs ...string) *roce.Device {
	n.t.Helper()
	for _, a := range addrs {
		c.Addrs = append(c.Addrs, netip.MustParseAddr(a))
	}
	if c.Ports == nil {
		c.Ports = []link.Port{ok(n.hub.Port(addrs[0], roce.DerivedMAC(c.Addrs[0])))(n.t)}
	}
	d := ok(roce.Open(c))(n.t)
	n.t.Cleanup(func() { d.Close() })
	return d
}

// host makes a host of one device.
func (n *network) host(addrs ...string) *rdmacm.Host {
	n.t.Helper()
	return hostOf(n.t, n.device(roce.Config{}, addrs...))
}

func hostOf(t testing.TB, devices ...*roce.Device) *rdmacm.Host {
	t.Helper()
	h := ok(rdmacm.NewHost(devices...))(t)
	t.Cleanup(func() { check(t, h.Close()) })
	return h
}

// within returns a context that bounds the time of a test.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func at(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// smallQP is a queue pair for a few messages.
func smallQP() roce.QPConfig {
	return roce.QPConfig{Caps: roce.Caps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}
}

// next takes the next event, which must have the type want.
func next(t testing.TB, c *rdmacm.Channel, want rdmacm.EventType) *rdmacm.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	ev, err := c.Next(ctx)
	if err != nil {
		t.Fatalf("no event: %v, want %v", err, want)
	}
	if ev.Type != want {
		t.Fatalf("event %v, want %v", ev, want)
	}
	return ev
}

// none fails the test if an event arrives. It works only in a bubble.
func none(t testing.TB, c *rdmacm.Channel) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if ev, err := c.Next(ctx); err == nil {
		t.Errorf("event %v, want none", ev)
	}
}

// resolved makes an asynchronous ID that is ready to connect.
func resolved(t testing.TB, h *rdmacm.Host, c *rdmacm.Channel, ps rdmacm.PortSpace, to string) *rdmacm.ID {
	t.Helper()
	id := ok(h.CreateID(c, ps, nil))(t)
	check(t, id.ResolveAddr(t.Context(), netip.AddrPort{}, at(to), time.Second))
	next(t, c, rdmacm.AddrResolved)
	check(t, id.ResolveRoute(t.Context(), time.Second))
	next(t, c, rdmacm.RouteResolved)
	return id
}

// listener makes an asynchronous ID that listens.
func listener(t testing.TB, h *rdmacm.Host, c *rdmacm.Channel, ps rdmacm.PortSpace, addr string) *rdmacm.ID {
	t.Helper()
	id := ok(h.CreateID(c, ps, "of the listener"))(t)
	check(t, id.Bind(at(addr)))
	check(t, id.Listen(0))
	return id
}

// pair is a connection of asynchronous IDs.
type pair struct {
	client, server   *rdmacm.ID
	cc, sc           *rdmacm.Channel
	listener         *rdmacm.ID
	request, reply   *rdmacm.Event
	clientH, serverH *rdmacm.Host
}

// connected makes a pair of asynchronous IDs on two hosts.
func connected(t testing.TB, ps rdmacm.PortSpace, config roce.QPConfig, cp, ap rdmacm.ConnParam) *pair {
	t.Helper()
	n := newNetwork(t)
	server, client := n.host("10.0.0.1", "fd00::1"), n.host("10.0.0.2", "fd00::2")
	return join(t, ps, server, client, config, cp, func(id *rdmacm.ID) rdmacm.ConnParam {
		check(t, id.CreateQP(nil, config))
		return ap
	})
}

// join makes a pair on two hosts. prepare prepares the ID of the request, and returns the parameters
// with which join accepts the request.
func join(t testing.TB, ps rdmacm.PortSpace, server, client *rdmacm.Host, config roce.QPConfig, cp rdmacm.ConnParam,
	prepare func(*rdmacm.ID) rdmacm.ConnParam) *pair {
	t.Helper()
	p := &pair{serverH: server, clientH: client, cc: client.NewChannel(), sc: server.NewChannel()}
	p.listener = listener(t, p.serverH, p.sc, ps, "10.0.0.1:7471")
	p.client = resolved(t, p.clientH, p.cc, ps, "10.0.0.1:7471")
	check(t, p.client.CreateQP(nil, config))
	check(t, p.client.Connect(t.Context(), cp))
	p.request = next(t, p.sc, rdmacm.ConnectRequest)
	p.server = p.request.ID
	check(t, p.server.Accept(t.Context(), prepare(p.server)))
	p.reply = next(t, p.cc, rdmacm.Established)
	if ps != rdmacm.UDP {
		next(t, p.sc, rdmacm.Established)
	}
	return p
}
