package rdmacm_test

import (
	"context"
	"flag"
	"net/netip"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/rdmacm"
)

var connections = flag.Int("connections", 1000, "connections of TestConnections")

// TestConnections makes many connections at once and ends them. No goroutine, connection, queue
// pair or port is left, and memory does not grow from round to round.
func TestConnections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		devices := []*roce.Device{n.device(roce.Config{}, "10.0.0.1"), n.device(roce.Config{}, "10.0.0.2")}
		sh, ch := hostOf(t, devices[0]), hostOf(t, devices[1])
		ctx := t.Context()
		storm(ctx, t, sh, ch, *connections) // grows maps and queues, which keep their capacity
		time.Sleep(time.Minute)             // simulated time: timewait ends
		goroutines, heap := runtime.NumGoroutine(), inUse()
		// Maps and queues keep the capacity of their largest size, which depends on
		// the scheduler. A leak takes more memory in every round.
		grown := true
		for round := 0; round < 6 && grown; round++ {
			storm(ctx, t, sh, ch, *connections)
			time.Sleep(time.Minute)
			now := inUse()
			grown = !raceDetector && now > heap+uint64(*connections)*64+1<<17
			heap = max(heap, now)
		}
		if grown {
			t.Errorf("every round takes more memory, %d bytes now", heap)
		}
		if now := runtime.NumGoroutine(); now > goroutines {
			t.Errorf("%d goroutines, there were %d", now, goroutines)
		}
		for i, h := range []*rdmacm.Host{sh, ch} {
			if ids, ports := h.Remembered(); ids != 0 || ports != 0 {
				t.Errorf("host %d: %d identifiers and %d ports are left", i, ids, ports)
			}
		}
	})
}

func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// storm makes n connections and ends them.
func storm(ctx context.Context, t *testing.T, sh, ch *rdmacm.Host, n int) {
	t.Helper()
	sc, cc := sh.NewChannel(), ch.NewChannel()
	l := listener(t, sh, sc, rdmacm.TCP, "10.0.0.1:7471")
	served := make(chan error, 1)
	go func() { served <- stormServer(ctx, sc, n) }()
	ids := make([]*rdmacm.ID, n)
	for i := range ids {
		ids[i] = resolved(t, ch, cc, rdmacm.TCP, "10.0.0.1:7471")
		check(t, ids[i].CreateQP(nil, smallQP()))
	}
	for _, id := range ids {
		check(t, id.Connect(ctx, rdmacm.ConnParam{}))
	}
	for range ids {
		next(t, cc, rdmacm.Established)
	}
	for _, id := range ids {
		check(t, id.Disconnect(ctx))
	}
	for over := 0; over < n; {
		if ev := ok(cc.Next(ctx))(t); ev.Type == rdmacm.Disconnected {
			over++
		}
	}
	check(t, <-served)
	for _, id := range ids {
		check(t, id.DestroyEP())
	}
	check(t, l.Destroy())
	check(t, sc.Close())
	check(t, cc.Close())
}

func stormServer(ctx context.Context, c *rdmacm.Channel, n int) error {
	for over := 0; over < n; {
		ev, err := c.Next(ctx)
		if err != nil {
			return err
		}
		switch ev.Type {
		case rdmacm.ConnectRequest:
			if err = ev.ID.CreateQP(nil, smallQP()); err == nil {
				err = ev.ID.Accept(ctx, rdmacm.ConnParam{})
			}
		case rdmacm.Disconnected:
			over++
			if err = ev.ID.Disconnect(ctx); err == nil {
				err = ev.ID.DestroyEP()
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// TestFlood: the program does not answer a flood of requests. No more requests than the backlog
// wait, connections continue to work, and when there is room the next requests are served.
func TestFlood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := connected(t, rdmacm.TCP, smallQP(), rdmacm.ConnParam{}, rdmacm.ConnParam{})
		const backlog = 8
		fc := p.serverH.NewChannel()
		l := ok(p.serverH.CreateID(fc, rdmacm.TCP, nil))(t)
		check(t, l.Bind(at("10.0.0.1:9999")))
		check(t, l.Listen(backlog))
		for i := range 20 * backlog {
			id := resolved(t, p.clientH, p.cc, rdmacm.TCP, "10.0.0.1:9999")
			check(t, id.Connect(t.Context(), rdmacm.ConnParam{QPN: roce.QPN(1000 + i)}))
		}
		time.Sleep(time.Second)
		counters := p.serverH.Devices()[0].Counters().CM
		if counters.RequestsFull != 19*backlog {
			t.Errorf("%d requests did not fit, want %d", counters.RequestsFull, 19*backlog)
		}
		transfer(t, p.client, p.server)
		for range backlog {
			check(t, next(t, fc, rdmacm.ConnectRequest).ID.Destroy())
		}
		for range backlog { // requests that their senders repeat
			check(t, next(t, fc, rdmacm.ConnectRequest).ID.Destroy())
		}
		transfer(t, p.server, p.client)
	})
}

// TestRestart: a client restarts without its connections and connects with the same queue pair
// number. The server rejects the request as stale and ends the old connection. The next attempt
// succeeds.
func TestRestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		sh := n.host("10.0.0.1")
		sc := sh.NewChannel()
		listener(t, sh, sc, rdmacm.TCP, "10.0.0.1:7471")
		plug := func() link.Port {
			return ok(n.hub.Port("client", roce.DerivedMAC(netip.MustParseAddr("10.0.0.2"))))(t)
		}
		port := plug()
		client := n.device(roce.Config{Ports: []link.Port{port}, Options: roce.Options{GUID: 5}}, "10.0.0.2")
		ch := hostOf(t, client)
		cc := ch.NewChannel()
		old := resolved(t, ch, cc, rdmacm.TCP, "10.0.0.1:7471")
		check(t, old.Connect(t.Context(), rdmacm.ConnParam{QPN: 77}))
		req := next(t, sc, rdmacm.ConnectRequest)
		check(t, req.ID.CreateQP(nil, smallQP()))
		check(t, req.ID.Accept(t.Context(), rdmacm.ConnParam{}))
		next(t, cc, rdmacm.ConnectResponse)
		check(t, old.Establish(t.Context()))
		next(t, sc, rdmacm.Established)
		// The same node after a restart: same address and GUID, but without its connections.
		check(t, port.Close())
		again := hostOf(t, n.device(roce.Config{Ports: []link.Port{plug()}, Options: roce.Options{GUID: 5}}, "10.0.0.2"))
		ac := again.NewChannel()
		id := resolved(t, again, ac, rdmacm.TCP, "10.0.0.1:7471")
		check(t, id.Connect(t.Context(), rdmacm.ConnParam{QPN: 77}))
		if ev := next(t, ac, rdmacm.Rejected); ev.Status != int(cm.RejectStaleConn) {
			t.Errorf("%v", ev)
		}
		next(t, sc, rdmacm.Disconnected) // the server has sent a DREQ for the old connection, and the new client has confirmed it
		id = resolved(t, again, ac, rdmacm.TCP, "10.0.0.1:7471")
		check(t, id.Connect(t.Context(), rdmacm.ConnParam{QPN: 77}))
		next(t, sc, rdmacm.ConnectRequest)
	})
}

// TestRequestsThatAreOver: while the program takes no events, its peers give up their requests. The
// IDs of these requests are destroyed, and the program does not get their events.
func TestRequestsThatAreOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		sh, ch := n.host("10.0.0.1"), n.host("10.0.0.2")
		cc := ch.NewChannel()
		for name, ps := range map[string]rdmacm.PortSpace{"RC": rdmacm.TCP, "UD": rdmacm.UDP} {
			sc := sh.NewChannel()
			l := ok(sh.CreateID(sc, ps, nil))(t)
			check(t, l.Bind(at("10.0.0.1:7471")))
			check(t, l.Listen(4))
			before, _ := sh.Remembered()
			for i := range 100 {
				id := resolved(t, ch, cc, ps, "10.0.0.1:7471")
				check(t, id.Connect(t.Context(), rdmacm.ConnParam{QPN: roce.QPN(1000 + i)}))
				synctest.Wait()
				check(t, id.Destroy())
			}
			time.Sleep(2 * time.Minute)
			if ids, _ := sh.Remembered(); ids != before {
				t.Errorf("%s: %d IDs are left of requests that are over", name, ids-before)
			}
			none(t, sc)
			check(t, l.Destroy())
		}
	})
}
