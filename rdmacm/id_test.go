package rdmacm_test

import (
	"context"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/rdmacm"
)

// TestEventNames: numbers and names are those of rdma_event_str.
func TestEventNames(t *testing.T) {
	for i, want := range []string{"ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST", "CONNECT_RESPONSE",
		"CONNECT_ERROR", "UNREACHABLE", "REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL", "MULTICAST_JOIN", "MULTICAST_ERROR",
		"ADDR_CHANGE", "TIMEWAIT_EXIT"} {
		if got := rdmacm.EventType(i).String(); got != "RDMA_CM_EVENT_"+want {
			t.Errorf("event %d is %s, want %s", i, got, want)
		}
	}
	if got := rdmacm.EventType(16).String(); got != "UNKNOWN EVENT" {
		t.Errorf("event 16 is %s", got)
	}
}

// TestPortSpaces: the port spaces TCP, UDP and IB are accepted, others are EINVAL.
func TestPortSpaces(t *testing.T) {
	h := newNetwork(t).host("10.0.0.1")
	for ps, want := range map[rdmacm.PortSpace]error{rdmacm.TCP: nil, rdmacm.UDP: nil, rdmacm.IB: nil, cm.PortSpaceIPoIB: syscall.EINVAL, 0: syscall.EINVAL} {
		_, err := h.CreateID(nil, ps, nil)
		wantErr(t, ps.String(), err, want)
	}
	_, err := rdmacm.NewHost()
	wantErr(t, "no devices", err, syscall.ENODEV)
}

// TestBind: the rules for two IDs that bind to the same port. Each row binds first, then second.
func TestBind(t *testing.T) {
	type bind struct {
		ps    rdmacm.PortSpace
		addr  string
		reuse bool
		only  bool
	}
	const tcp, udp = rdmacm.TCP, rdmacm.UDP
	for _, c := range []struct {
		name          string
		first, second bind
		want          error
		listen        error // of the second, when both listen
	}{
		{name: "same address", first: bind{ps: tcp, addr: "10.0.0.1:7"}, second: bind{ps: tcp, addr: "10.0.0.1:7"}, want: syscall.EADDRINUSE},
		{name: "another port", first: bind{ps: tcp, addr: "10.0.0.1:7"}, second: bind{ps: tcp, addr: "10.0.0.1:8"}},
		{name: "another address", first: bind{ps: tcp, addr: "10.0.0.1:7"}, second: bind{ps: tcp, addr: "10.0.0.3:7"}},
		{name: "another port space", first: bind{ps: tcp, addr: "10.0.0.1:7"}, second: bind{ps: udp, addr: "10.0.0.1:7"}},
		{name: "wildcard second", first: bind{ps: tcp, addr: "10.0.0.1:7"}, second: bind{ps: tcp, addr: "0.0.0.0:7"}, want: syscall.EADDRNOTAVAIL},
		{name: "wildcard first", first: bind{ps: tcp, addr: "0.0.0.0:7"}, second: bind{ps: tcp, addr: "10.0.0.1:7"}, want: syscall.EADDRNOTAVAIL},
		{name: "two wildcards", first: bind{ps: tcp, addr: "0.0.0.0:7"}, second: bind{ps: tcp, addr: "0.0.0.0:7"}, want: syscall.EADDRNOTAVAIL},
		{name: "wildcards of two families", first: bind{ps: tcp, addr: "0.0.0.0:7"}, second: bind{ps: tcp, addr: "[::]:7"}, want: syscall.EADDRNOTAVAIL},
		{name: "afonly", first: bind{ps: tcp, addr: "0.0.0.0:7", only: true}, second: bind{ps: tcp, addr: "[::]:7", only: true}},
		{name: "afonly of one", first: bind{ps: tcp, addr: "0.0.0.0:7"}, second: bind{ps: tcp, addr: "[::]:7", only: true}, want: syscall.EADDRNOTAVAIL},
		{name: "reuse", first: bind{ps: tcp, addr: "10.0.0.1:7", reuse: true}, second: bind{ps: tcp, addr: "10.0.0.1:7", reuse: true}, listen: syscall.EADDRINUSE},
		{name: "reuse of one", first: bind{ps: tcp, addr: "10.0.0.1:7"}, second: bind{ps: tcp, addr: "10.0.0.1:7", reuse: true}, want: syscall.EADDRINUSE},
		{name: "privileged", first: bind{ps: tcp, addr: "10.0.0.1:80"}, second: bind{ps: tcp, addr: "[fd00::1]:80"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newNetwork(t).host("10.0.0.1", "10.0.0.3", "fd00::1")
			make := func(b bind) (*rdmacm.ID, error) {
				id := ok(h.CreateID(nil, b.ps, nil))(t)
				check(t, id.SetReuseAddr(b.reuse))
				check(t, id.SetAFOnly(b.only))
				return id, id.Bind(at(b.addr))
			}
			first, err := make(c.first)
			check(t, err)
			second, err := make(c.second)
			wantErr(t, "second bind", err, c.want)
			if err == nil && !c.first.reuse {
				check(t, first.Listen(0))
			}
			if err == nil {
				wantErr(t, "second listen", second.Listen(0), c.listen)
			}
			check(t, first.Destroy())
			check(t, second.Destroy())
			again, err := make(c.second) // the port is free
			check(t, err)
			check(t, again.Listen(0))
		})
	}
}

// TestBindAddresses: an ID binds to a wildcard or to an address of a device; port 0 chooses a port.
// Other addresses are refused.
func TestBindAddresses(t *testing.T) {
	h := newNetwork(t).host("10.0.0.1", "fd00::1")
	for addr, want := range map[string]error{"10.0.0.9:1": syscall.EADDRNOTAVAIL, "224.0.0.5:1": syscall.EADDRNOTAVAIL,
		"10.0.0.1:0": nil, "0.0.0.0:0": nil, "[::]:0": nil, "[fd00::1]:5": nil, "[::ffff:10.0.0.1]:6": nil} {
		id := ok(h.CreateID(nil, rdmacm.TCP, nil))(t)
		wantErr(t, addr, id.Bind(at(addr)), want)
		if want != nil {
			continue
		}
		bound := id.Device() != nil
		if bound == at(addr).Addr().IsUnspecified() || id.SrcPort() == 0 {
			t.Errorf("%s: device %v, port %d", addr, id.Device(), id.SrcPort())
		}
		wantErr(t, "bind again", id.Bind(at("0.0.0.0:0")), syscall.EINVAL)
	}
	wantErr(t, "no address", ok(h.CreateID(nil, rdmacm.TCP, nil))(t).Bind(netip.AddrPort{}), syscall.EAFNOSUPPORT)
}

// TestListenUnbound: an ID without an address listens on a wildcard and a chosen port. Listening
// twice is EINVAL. If the device itself listens on the port, Listen fails with EADDRINUSE.
func TestListenUnbound(t *testing.T) {
	h := newNetwork(t).host("10.0.0.1")
	id := ok(h.CreateID(nil, rdmacm.TCP, nil))(t)
	check(t, id.Listen(5))
	if a := id.LocalAddr(); a.Addr() != netip.IPv4Unspecified() || a.Port() == 0 {
		t.Errorf("listens at %v", a)
	}
	wantErr(t, "listen again", id.Listen(5), syscall.EINVAL)
	l := ok(h.Devices()[0].Listen(t.Context(), "10.0.0.1:7471", roce.ListenConfig{}))(t)
	other := ok(h.CreateID(nil, rdmacm.TCP, nil))(t)
	check(t, other.Bind(at("0.0.0.0:7471")))
	wantErr(t, "listen beside the device's", other.Listen(0), syscall.EADDRINUSE)
	check(t, l.Close())
	check(t, other.Listen(0))
}

// TestWrongState: a call that does not fit the state of the ID is EINVAL.
func TestWrongState(t *testing.T) {
	n := newNetwork(t)
	h := n.host("10.0.0.1")
	ctx := t.Context()
	calls := map[string]func(*rdmacm.ID) error{
		"listen":        func(id *rdmacm.ID) error { return id.Listen(0) },
		"bind":          func(id *rdmacm.ID) error { return id.Bind(at("0.0.0.0:0")) },
		"resolve addr":  func(id *rdmacm.ID) error { return id.ResolveAddr(ctx, netip.AddrPort{}, at("10.0.0.1:9"), 0) },
		"resolve route": func(id *rdmacm.ID) error { return id.ResolveRoute(ctx, 0) },
		"connect":       func(id *rdmacm.ID) error { return id.Connect(ctx, rdmacm.ConnParam{QPN: 5}) },
		"accept":        func(id *rdmacm.ID) error { return id.Accept(ctx, rdmacm.ConnParam{QPN: 5}) },
		"reject":        func(id *rdmacm.ID) error { return id.Reject(nil) },
		"establish":     func(id *rdmacm.ID) error { return id.Establish(ctx) },
		"disconnect":    func(id *rdmacm.ID) error { return id.Disconnect(ctx) },
		"notify":        func(id *rdmacm.ID) error { return id.Notify(roce.EventCommEst) },
		"get request":   func(id *rdmacm.ID) error { _, err := id.GetRequest(ctx); return err },
		"create qp":     func(id *rdmacm.ID) error { return id.CreateQP(nil, smallQP()) },
		"create srq":    func(id *rdmacm.ID) error { return id.CreateSRQ(nil, roce.SRQConfig{MaxWR: 4}) },
		"join":          func(id *rdmacm.ID) error { return id.JoinMulticast(ctx, netip.MustParseAddr("239.1.1.1"), nil) },
		"post send":     func(id *rdmacm.ID) error { return id.PostSend(1, 0) },
		"post recv":     func(id *rdmacm.ID) error { return id.PostRecv(1) },
		"reg msgs":      func(id *rdmacm.ID) error { _, err := id.RegMsgs(make([]byte, 8)); return err },
	}
	fits := map[string][]string{
		"idle":      {"listen", "bind", "resolve addr"},
		"wildcard":  {"listen", "resolve addr"},
		"bound":     {"listen", "resolve addr", "create qp", "create srq", "reg msgs"},
		"resolved":  {"resolve route", "create qp", "create srq", "reg msgs"},
		"routed":    {"connect", "create qp", "create srq", "reg msgs"},
		"listening": {"create qp", "create srq", "reg msgs", "get request"}, // which waits
		"destroyed": {},
	}
	states := map[string]func(*rdmacm.ID) error{
		"idle":     func(*rdmacm.ID) error { return nil },
		"wildcard": func(id *rdmacm.ID) error { return id.Bind(at("0.0.0.0:0")) },
		"bound":    func(id *rdmacm.ID) error { return id.Bind(at("10.0.0.1:0")) },
		"resolved": func(id *rdmacm.ID) error { return calls["resolve addr"](id) },
		"routed": func(id *rdmacm.ID) error {
			if err := calls["resolve addr"](id); err != nil {
				return err
			}
			return id.ResolveRoute(ctx, 0)
		},
		"listening": func(id *rdmacm.ID) error {
			if err := id.Bind(at("10.0.0.1:0")); err != nil {
				return err
			}
			return id.Listen(0)
		},
		"destroyed": func(id *rdmacm.ID) error { return id.Destroy() },
	}
	for state, prepare := range states {
		for call, f := range calls {
			fit := false
			for _, c := range fits[state] {
				fit = fit || c == call
			}
			if fit {
				continue
			}
			id := ok(h.CreateID(nil, rdmacm.TCP, nil))(t)
			check(t, prepare(id))
			err := f(id)
			if state == "destroyed" && err != nil {
				continue // EINVAL or closed
			}
			wantErr(t, state+": "+call, err, syscall.EINVAL)
		}
	}
}

// TestResolveErrors: without a route ResolveAddr fails at once. If the neighbour does not answer,
// the event AddrError follows, after which ResolveAddr may be called again.
func TestResolveErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.device(roce.Config{Options: roce.Options{Resolver: roce.Neighbours{netip.MustParseAddr("10.0.0.1"): {2, 0, 10, 0, 0, 1}}}}, "10.0.0.2")
		h := hostOf(t, d)
		c := h.NewChannel()
		id := ok(h.CreateID(c, rdmacm.TCP, nil))(t)
		var nowhere netip.AddrPort
		wantErr(t, "IPv6", id.ResolveAddr(t.Context(), nowhere, at("[fd00::1]:1"), 0), syscall.ENETUNREACH)
		wantErr(t, "two families", id.ResolveAddr(t.Context(), at("10.0.0.2:0"), at("[fd00::1]:1"), 0), syscall.EINVAL)
		id = ok(h.CreateID(c, rdmacm.TCP, nil))(t)
		wantErr(t, "foreign source", id.ResolveAddr(t.Context(), at("10.0.0.3:0"), at("10.0.0.1:1"), 0), syscall.EADDRNOTAVAIL)
		wantErr(t, "no destination", id.ResolveAddr(t.Context(), nowhere, nowhere, 0), syscall.EAFNOSUPPORT)
		check(t, id.ResolveAddr(t.Context(), nowhere, at("10.0.0.9:1"), time.Second))
		if ev := next(t, c, rdmacm.AddrError); ev.Status != -110 {
			t.Errorf("dead neighbour: %v", ev)
		}
		check(t, id.ResolveAddr(t.Context(), nowhere, at("10.0.0.1:1"), time.Second))
		next(t, c, rdmacm.AddrResolved)
		if id.Device() != d || id.LocalAddr().Addr() != netip.MustParseAddr("10.0.0.2") {
			t.Errorf("resolved to %v of %p", id.LocalAddr(), id.Device())
		}
		sync := ok(h.CreateID(nil, rdmacm.TCP, nil))(t)
		wantErr(t, "synchronous", sync.ResolveAddr(t.Context(), nowhere, at("10.0.0.9:1"), time.Second), syscall.EHOSTUNREACH)
		self := ok(h.CreateID(nil, rdmacm.TCP, nil))(t)
		check(t, self.ResolveAddr(t.Context(), nowhere, at("127.0.0.1:1"), time.Second))
		if self.PeerAddr() != at("10.0.0.2:1") {
			t.Errorf("loopback is %v", self.PeerAddr())
		}
	})
}

// stuck is a resolver that never answers.
type stuck struct{}

func (stuck) Resolve(ctx context.Context, _, _ netip.Addr) (roce.Neighbour, error) {
	<-ctx.Done()
	return roce.Neighbour{}, ctx.Err()
}

// TestResolveTimeout: AddrError arrives when the timeout has passed. Destroy does not wait for it.
func TestResolveTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := hostOf(t, newNetwork(t).device(roce.Config{Options: roce.Options{Resolver: stuck{}}}, "10.0.0.2"))
		c := h.NewChannel()
		id := ok(h.CreateID(c, rdmacm.TCP, nil))(t)
		began := time.Now()
		check(t, id.ResolveAddr(t.Context(), netip.AddrPort{}, at("10.0.0.1:1"), 2*time.Second))
		if ev := next(t, c, rdmacm.AddrError); ev.Status != -110 || time.Since(began) != 2*time.Second {
			t.Errorf("%v after %v", ev, time.Since(began))
		}
		check(t, id.ResolveAddr(t.Context(), netip.AddrPort{}, at("10.0.0.1:1"), time.Hour))
		began = time.Now()
		check(t, id.Destroy())
		if d := time.Since(began); d != 0 {
			t.Errorf("Destroy took %v", d)
		}
		none(t, c)
	})
}

// TestDestroy: destroying a listener drops its pending events, rejects the requests among them, and
// frees the port.
func TestDestroy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		sh, ch := n.host("10.0.0.1"), n.host("10.0.0.2")
		sc, cc := sh.NewChannel(), ch.NewChannel()
		for _, ps := range []rdmacm.PortSpace{rdmacm.TCP, rdmacm.UDP} {
			l := listener(t, sh, sc, ps, "10.0.0.1:7471")
			id := resolved(t, ch, cc, ps, "10.0.0.1:7471")
			check(t, id.CreateQP(nil, smallQP()))
			check(t, id.Connect(t.Context(), rdmacm.ConnParam{}))
			time.Sleep(time.Millisecond) // the request arrives
			check(t, l.Destroy())
			wantErr(t, "destroy again", l.Destroy(), roce.ErrClosed)
			checkRefusal(t, ps, ok(cc.Next(within(t)))(t), make([]byte, map[rdmacm.PortSpace]int{rdmacm.TCP: 148, rdmacm.UDP: 136}[ps]))
			none(t, sc)
			check(t, listener(t, sh, sc, ps, "10.0.0.1:7471").Destroy())
			check(t, id.DestroyEP())
		}
	})
}

// TestDestroyConnecting: if an ID is destroyed while it connects, the server gets Rejected with
// reason timeout.
func TestDestroyConnecting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		sh, ch := n.host("10.0.0.1"), n.host("10.0.0.2")
		sc, cc := sh.NewChannel(), ch.NewChannel()
		listener(t, sh, sc, rdmacm.TCP, "10.0.0.1:7471")
		id := resolved(t, ch, cc, rdmacm.TCP, "10.0.0.1:7471")
		check(t, id.CreateQP(nil, smallQP()))
		check(t, id.Connect(t.Context(), rdmacm.ConnParam{}))
		req := next(t, sc, rdmacm.ConnectRequest)
		check(t, id.DestroyEP())
		if ev := next(t, sc, rdmacm.Rejected); ev.ID != req.ID || ev.Status != int(cm.RejectTimeout) {
			t.Errorf("%v", ev)
		}
		check(t, req.ID.CreateQP(nil, smallQP()))
		wantErr(t, "accept what is gone", req.ID.Accept(t.Context(), rdmacm.ConnParam{}), syscall.EINVAL)
	})
}

// TestMigrate: pending events move to the new channel. With a nil channel the ID becomes
// synchronous.
func TestMigrate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		n.host("10.0.0.1")
		h := n.host("10.0.0.2")
		a, b := h.NewChannel(), h.NewChannel()
		id := ok(h.CreateID(a, rdmacm.TCP, nil))(t)
		check(t, id.ResolveAddr(t.Context(), netip.AddrPort{}, at("10.0.0.1:1"), 0))
		time.Sleep(time.Millisecond)
		check(t, id.Migrate(b))
		none(t, a)
		next(t, b, rdmacm.AddrResolved)
		check(t, id.Migrate(nil))
		if id.Channel() != nil {
			t.Error("a synchronous ID has a channel")
		}
		check(t, id.ResolveRoute(t.Context(), 0))
		if ev := id.Event(); ev == nil || ev.Type != rdmacm.RouteResolved {
			t.Errorf("last event %v", ev)
		}
		check(t, a.Close())
		wantErr(t, "close again", a.Close(), roce.ErrClosed)
		_, err := a.Next(t.Context())
		wantErr(t, "next of a closed channel", err, roce.ErrClosed)
	})
}

// TestDeviceRemoval: when a device is closed, its IDs get DeviceRemoval; IDs of another device, or
// of no device, do not.
func TestDeviceRemoval(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		one, two := n.device(roce.Config{}, "10.0.0.1"), n.device(roce.Config{}, "10.0.1.1")
		h := hostOf(t, one, two)
		c := h.NewChannel()
		bound := func(addr string) *rdmacm.ID {
			id := ok(h.CreateID(c, rdmacm.TCP, nil))(t)
			check(t, id.Bind(at(addr)))
			return id
		}
		id, other, any := bound("10.0.0.1:7"), bound("10.0.1.1:7"), bound("0.0.0.0:8")
		check(t, one.Close())
		if ev := next(t, c, rdmacm.DeviceRemoval); ev.ID != id {
			t.Errorf("event of %v", ev.ID.LocalAddr())
		}
		none(t, c)
		wantErr(t, "listen", id.Listen(0), syscall.EINVAL)
		check(t, other.Listen(0))
		wantErr(t, "wildcard", any.Listen(0), roce.ErrClosed)
	})
}

// TestTwoDevices: the local address or the peer's address determines the device of an ID. A wildcard
// listener receives requests on both devices.
func TestTwoDevices(t *testing.T) {
	bubble(t, func(t *testing.T) {
		left, right := newNetwork(t), newNetwork(t)
		one := left.device(roce.Config{Options: roce.Options{Resolver: roce.Neighbours{netip.MustParseAddr("10.0.0.2"): {2, 0, 10, 0, 0, 2}}}}, "10.0.0.1")
		two := right.device(roce.Config{}, "10.0.1.1")
		h := hostOf(t, one, two)
		c := h.NewChannel()
		l := listener(t, h, c, rdmacm.TCP, "0.0.0.0:7471")
		for _, peer := range []struct {
			net       *network
			addr, ask string
			dev       *roce.Device
		}{{left, "10.0.0.2", "10.0.0.1:7471", one}, {right, "10.0.1.2", "10.0.1.1:7471", two}} {
			ph := peer.net.host(peer.addr)
			id := resolved(t, ph, ph.NewChannel(), rdmacm.TCP, peer.ask)
			check(t, id.CreateQP(nil, smallQP()))
			check(t, id.Connect(t.Context(), rdmacm.ConnParam{}))
			req := next(t, c, rdmacm.ConnectRequest)
			if req.ID.Device() != peer.dev || req.ListenID != l {
				t.Errorf("%s came to %v", peer.addr, req.ID.LocalAddr())
			}
			check(t, req.ID.Destroy())
			out := resolved(t, h, h.NewChannel(), rdmacm.TCP, peer.addr+":1")
			if out.Device() != peer.dev {
				t.Errorf("to %s from %v", peer.addr, out.LocalAddr())
			}
		}
	})
}

// TestHostClose: Close does not close the regions of a default domain. The domain is freed with the
// last of them.
func TestHostClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.device(roce.Config{}, "10.0.0.1")
		h := ok(rdmacm.NewHost(d))(t)
		id := ok(h.CreateID(h.NewChannel(), rdmacm.TCP, nil))(t)
		check(t, id.Bind(at("10.0.0.1:7")))
		m := ok(id.RegMsgs(make([]byte, 8)))(t)
		check(t, h.Close())
		wantErr(t, "close again", h.Close(), roce.ErrClosed)
		check(t, m.Close())
	})
}

// TestCreateQPUntilItFits requests queue pairs with fewer and fewer work requests until one is accepted, as the driver
// of LNet does. A refused CreateQP does not change the ID, which then connects with the accepted queue pair.
func TestCreateQPUntilItFits(t *testing.T) {
	n := newNetwork(t)
	a, b := n.host("10.0.0.1"), n.host("10.0.0.2")
	c := a.NewChannel()
	listener := ok(a.CreateID(c, rdmacm.TCP, nil))(t)
	check(t, listener.Bind(at("10.0.0.1:987")))
	check(t, listener.Listen(0))
	limit := b.Devices()[0].Query().MaxQPWR
	id := ok(b.CreateID(nil, rdmacm.TCP, nil))(t)
	check(t, id.ResolveAddr(t.Context(), netip.AddrPort{}, at("10.0.0.1:987"), 0))
	check(t, id.ResolveRoute(t.Context(), 0))
	refused := 0
	for wr := limit + 3; ; wr-- {
		qp := smallQP()
		qp.Caps.MaxSendWR = wr
		err := id.CreateQP(nil, qp)
		if err == nil {
			break
		}
		wantErr(t, "create a queue pair that is too large", err, syscall.EINVAL)
		if refused++; refused > 3 {
			t.Fatalf("%d work requests are refused, and the limit is %d", wr, limit)
		}
	}
	if refused != 3 {
		t.Errorf("%d queue pairs were refused, want 3", refused)
	}
	served := make(chan error, 1)
	go func() {
		request, err := c.Next(t.Context())
		if err == nil {
			err = request.ID.CreateQP(nil, smallQP())
		}
		if err == nil {
			err = request.ID.Accept(t.Context(), rdmacm.ConnParam{})
		}
		served <- err
	}()
	check(t, id.Connect(t.Context(), rdmacm.ConnParam{}))
	check(t, <-served)
}
