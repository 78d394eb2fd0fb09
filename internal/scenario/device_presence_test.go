package scenario_test

import (
	"context"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/qp"
)

// plugged opens a device whose cable the test can unplug.
func (n *network) plugged(addr string, polled bool) (*roce.Device, *mem.Port) {
	n.t.Helper()
	c := n.config(addr)
	c.Polled = polled
	return n.open(c), c.Ports[0].(*mem.Port)
}

// wantEvents takes events, which must be these, and no more.
func wantEvents(t *testing.T, d *roce.Device, want ...roce.Event) {
	t.Helper()
	for _, w := range want {
		if e, err := d.NextEvent(within(t, time.Second)); err != nil || e != w {
			t.Fatalf("event %v, %v, want %v", e, err, w)
		}
	}
	if e, err := d.NextEvent(within(t, time.Second)); err == nil {
		t.Errorf("event %v after the last", e)
	}
}

// TestLinkEvents: the link fails and returns. Queue pairs survive if it returns in time.
func TestLinkEvents(t *testing.T) {
	for _, polled := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			d, port := n.plugged("10.0.0.1", polled)
			a, b := newPeer(t, d, 100), newPeer(t, n.device("10.0.0.2"), 100)
			connect(t, a, b)
			wantEvents(t, d) // a link that is up at Open raises no event
			down, up := roce.Event{Type: roce.EventPortErr, Port: 1}, roce.Event{Type: roce.EventPortActive, Port: 1}
			time.AfterFunc(time.Second/2, func() { port.SetLink(false) })
			wantEvents(t, d, down)
			a.post(roce.Write, 0, 100, b, 0)
			time.Sleep(200 * time.Millisecond)
			port.SetLink(true)
			port.SetLink(true)
			a.wait()
			wantEvents(t, d, up)
			for range 3 {
				port.SetLink(false)
				port.SetLink(true)
			}
			wantEvents(t, d, down, up, down, up, down, up)
			port.SetLink(false)
			a.post(roce.Write, 0, 100, b, 0)
			a.waitFor(cq.RetryExcErr)
			wantEvents(t, d, down)
		})
	}
}

// TestGIDEvents: every added or removed address raises an event.
func TestGIDEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newNetwork(t).device("10.0.0.1")
		change := roce.Event{Type: roce.EventGIDChange, Port: 1}
		a1, a2, a3 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::1")
		check(t, d.SetAddrs([]netip.Addr{a1}))
		wantEvents(t, d)
		check(t, d.SetAddrs([]netip.Addr{a1, a2, a3}))
		wantEvents(t, d, change, change)
		check(t, d.SetAddrs([]netip.Addr{a3, a2}))
		wantEvents(t, d, change)
		check(t, d.SetAddrs(nil))
		wantEvents(t, d, change, change)
	})
}

// TestDeviceRemoved: the interface is removed under the device. No call waits for ever: posted work requests are flushed,
// connections and listeners end, and nothing new starts.
func TestDeviceRemoved(t *testing.T) {
	for _, polled := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			d, port := n.plugged("10.0.0.2", polled)
			other := n.device("10.0.0.1")
			if polled {
				keepBusy(t, d)
			}
			a, b := newPeer(t, d, 100), newPeer(t, other, 100)
			connect(t, a, b)
			a.recv(0, 100)
			idle := ok(a.pd.CreateQP(roce.QPConfig{SendCQ: a.cq}))(t)

			// An established connection, one that is being made, a listener.
			l := ok(other.Listen(context.Background(), ":7471", roce.ListenConfig{}))(t)
			c := &couple{t: t, net: n, server: other, client: d, listener: l}
			_, conn := c.connect(roce.DialConfig{}, roce.AcceptConfig{})
			postMany(t, conn, 3)
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := d.Dial(context.Background(), "10.0.0.1:7471", roce.DialConfig{}) // nobody accepts
				wantErr(t, "Dial in progress", err, syscall.ENODEV)
			})
			wg.Go(func() {
				l := ok(d.Listen(context.Background(), ":7472", roce.ListenConfig{}))(t)
				_, err := l.Accept(context.Background())
				wantErr(t, "Accept", err, syscall.ENODEV)
				wantErr(t, "Close of a listener that is over", l.Close(), roce.ErrClosed)
			})
			wg.Go(func() {
				l := ok(d.ListenUD(context.Background(), ":7472", roce.ListenConfig{}))(t)
				_, err := l.Accept(context.Background())
				wantErr(t, "Accept", err, syscall.ENODEV)
			})
			wg.Go(func() {
				_, err := d.ResolveUD(context.Background(), "10.0.0.77:7174", roce.ResolveConfig{}) // nobody answers
				wantErr(t, "ResolveUD in progress", err, syscall.ENODEV)
			})
			time.Sleep(time.Second)
			synctest.Wait()

			port.Remove()
			wantEvents(t, d, roce.Event{Type: roce.EventPortErr, Port: 1}, roce.Event{Type: roce.EventDeviceFatal})
			wg.Wait()
			a.waitFor(cq.WRFlushErr)
			wantFlushed(t, conn, 3)
			<-conn.Done()
			wantErr(t, "Err of the connection", conn.Err(), syscall.ENODEV)
			wantErr(t, "Err of the connection", conn.Err(), roce.ErrNoDevice)
			if s := a.qp.State(); s != qp.Err {
				t.Errorf("the queue pair is in state %v", s)
			}
			if s := idle.State(); s != qp.Reset {
				t.Errorf("the queue pair in RESET is in state %v", s)
			}
			a.post(roce.Write, 0, 10, b, 0)
			a.waitFor(cq.WRFlushErr)
			_, err := a.pd.CreateQP(roce.QPConfig{SendCQ: a.cq})
			wantErr(t, "CreateQP", err, syscall.ENODEV)
			_, err = d.Dial(context.Background(), "10.0.0.1:7471", roce.DialConfig{})
			wantErr(t, "Dial", err, syscall.ENODEV)
			_, err = d.ResolveUD(context.Background(), "10.0.0.1:7471", roce.ResolveConfig{})
			wantErr(t, "ResolveUD", err, syscall.ENODEV)
			_, err = d.Listen(context.Background(), ":7473", roce.ListenConfig{})
			wantErr(t, "Listen", err, syscall.ENODEV)
			if a := ok(d.QueryPort(1))(t); a.State != roce.PortDown {
				t.Errorf("the port is %v", a.State)
			}
			check(t, conn.Close())
			if manager, ends, paths := remembered(d); ends != 0 || paths != 0 {
				t.Errorf("%d connections, %d ends and %d paths are remembered", manager, ends, paths)
			}
			check(t, d.Close())
		})
	}
}

// TestEventFlood: any number of pending events of queues does not displace events of the port and the device.
func TestEventFlood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		d, port := n.plugged("10.0.0.1", false)
		p := newPeer(t, d, 100)
		small, _ := withCQ(t, p, 1, 1)
		connect(t, p, p)
		const many = 2000
		for range many {
			p.post(roce.Write, 0, 10, p, 0)
		}
		for range 1000 {
			port.SetLink(false)
			port.SetLink(true)
		}
		port.Remove()
		time.Sleep(time.Millisecond)
		count := map[roce.EventType]int{}
		for e, err := d.NextEvent(within(t, time.Second)); err == nil; e, err = d.NextEvent(within(t, time.Second)) {
			if count[e.Type]++; e.CQ != nil && e.CQ != small {
				t.Fatalf("event %v", e)
			}
		}
		lost := int(d.Counters().LostEvents)
		if count[roce.EventCQErr] != 1024 || count[roce.EventPortErr] != 32 || count[roce.EventPortActive] != 32 || count[roce.EventDeviceFatal] != 1 {
			t.Errorf("events %v", count)
		}
		if total := many - small.Cap() + 2001 + 1; lost+1024+65 != total {
			t.Errorf("%d events are lost, of %d", lost, total)
		}
	})
}

// TestEventsOfClosed: a destroyed object has no events.
func TestEventsOfClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		a, b := newPeer(t, n.device("10.0.0.1"), 100), newPeer(t, n.device("10.0.0.2"), 100)
		small, _ := withCQ(t, b, 1, 1)
		connect(t, a, b)
		b.post(roce.Write, 0, 10, a, 0)
		b.post(roce.Write, 0, 10, a, 0)
		time.Sleep(time.Millisecond)
		a.post(roce.Write, 0, 100, b, 50)
		a.waitFor(cq.RemAccessErr)
		other := newPeer(t, b.dev, 100)
		check(t, other.qp.Close())
		want := []roce.Event{{Type: roce.EventCQErr, CQ: small}, {Type: roce.EventAccessErr, QP: b.qp}}
		// Events of other objects stay.
		for _, w := range want {
			e, err := b.dev.NextEventFunc(within(t, time.Second), func(e roce.Event) bool { return e == w })
			if err != nil || e != w {
				t.Fatalf("event %v, %v, want %v", e, err, w)
			}
		}
		wantEvents(t, b.dev)

		small, _ = withCQ(t, b, 1, 1)
		a = newPeer(t, a.dev, 100)
		connect(t, a, b)
		b.post(roce.Write, 0, 10, a, 0)
		b.post(roce.Write, 0, 10, a, 0)
		time.Sleep(time.Millisecond)
		a.post(roce.Write, 0, 100, b, 50)
		a.waitFor(cq.RemAccessErr)
		check(t, b.qp.Close())
		check(t, small.Close())
		wantEvents(t, b.dev)
	})
}

// TestNextEventFunc: several goroutines wait for different events, and each gets its own.
// The match function may call the objects.
func TestNextEventFunc(t *testing.T) {
	for _, polled := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			da := n.device("10.0.0.1")
			config := n.config("10.0.0.2")
			config.Polled = polled
			db := n.open(config)
			var from, to []*peer
			var wg sync.WaitGroup
			for range 4 {
				a, b := newPeer(t, da, 100), newPeer(t, db, 100)
				connect(t, a, b)
				from, to = append(from, a), append(to, b)
				wg.Go(func() {
					e, err := db.NextEventFunc(within(t, time.Minute), func(e roce.Event) bool {
						return e.QP == b.qp && b.qp.State() == qp.Err
					})
					if err != nil || e.Type != roce.EventAccessErr || e.QP != b.qp {
						t.Errorf("event %v, %v", e, err)
					}
				})
			}
			synctest.Wait()
			for _, i := range []int{2, 0, 3, 1} {
				from[i].post(roce.Write, 0, 100, to[i], 50)
			}
			wg.Wait()
			for _, a := range from {
				a.waitFor(cq.RemAccessErr)
			}
			wantEvents(t, db)
		})
	}
}
