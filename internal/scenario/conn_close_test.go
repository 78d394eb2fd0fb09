package scenario_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/gsi"
	"github.com/goroce/roce/internal/inside"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
)

// dreqOf returns the connection that a DREQ is about.
func dreqOf(p *bth.Packet) (cm.CommID, bool) {
	if p.Op != bth.UDSendOnly {
		return 0, false
	}
	var d cm.DREQ
	if d.Decode(p.Payload()) != nil {
		return 0, false
	}
	return d.LocalID, true
}

// TestCloseIsHeard: closing a device ends all its connections. Each peer gets a DREQ, although the link loses the
// first DREQs of each connection.
func TestCloseIsHeard(t *testing.T) {
	for _, polled := range []bool{false, true} {
		t.Run(fmt.Sprintf("polled %v", polled), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newNetwork(t)
				heard := map[cm.CommID]int{}
				config := n.config("10.0.0.1")
				config.Polled = polled
				config.Ports[0] = ok(fault.Wrap(config.Ports[0], fault.Config{Rules: []fault.Rule{{Action: fault.Drop, Dir: fault.Tx,
					Func: func(_ fault.Direction, p *bth.Packet) bool {
						id, dreq := dreqOf(p)
						if dreq {
							heard[id]++
						}
						return dreq && heard[id] < 4
					}}}}))(t)
				c := &couple{t: t, net: n, server: n.open(config), client: n.device("10.0.0.2")}
				c.listener = ok(c.server.Listen(t.Context(), ":7471", roce.ListenConfig{}))(t)
				var clients []*roce.Conn
				for range 8 {
					_, client := c.connect(roce.DialConfig{}, roce.AcceptConfig{})
					clients = append(clients, client)
				}
				began := time.Now()
				check(t, c.server.Close())
				if took := time.Since(began); took > 200*time.Millisecond {
					t.Errorf("Close took %v", took)
				}
				synctest.Wait()
				for _, x := range clients {
					wantErr(t, "a client", x.Err(), roce.ErrDisconnected)
				}
				if len(heard) != len(clients) {
					t.Errorf("DREQs were sent for %d connections", len(heard))
				}
			})
		})
	}
}

// TestCloseWithoutAnswer: peers that do not answer delay Close by CloseTimeout, however many they are.
func TestCloseWithoutAnswer(t *testing.T) {
	for _, tt := range []struct{ limit, want time.Duration }{{0, 300 * time.Millisecond}, {20 * time.Millisecond, 20 * time.Millisecond}, {1, 1}} {
		for _, polled := range []bool{false, true} {
			bubble(t, func(t *testing.T) {
				n := newNetwork(t)
				var dead bool
				config := n.config("10.0.0.1")
				config.Polled, config.Limits.CloseTimeout = polled, tt.limit
				config.Ports[0] = ok(fault.Wrap(config.Ports[0], fault.Config{Rules: []fault.Rule{{Action: fault.Drop,
					Func: func(fault.Direction, *bth.Packet) bool { return dead }}}}))(t)
				c := &couple{t: t, net: n, server: n.open(config), client: n.device("10.0.0.2")}
				c.listener = ok(c.server.Listen(t.Context(), ":7471", roce.ListenConfig{}))(t)
				for range 3 {
					c.connect(roce.DialConfig{}, roce.AcceptConfig{})
				}
				synctest.Wait()
				dead = true
				began := time.Now()
				check(t, c.server.Close())
				if took := time.Since(began); took != tt.want {
					t.Errorf("Close took %v, want %v", took, tt.want)
				}
			})
		}
	}
}

// TestCloseOfMany: with more connections than QP 1 has room for datagrams, the device sends each a DREQ before it repeats
// any, although it slept before.
func TestCloseOfMany(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const conns = 1500
		n := newNetwork(t)
		config := n.config("10.0.0.1")
		var began time.Time
		told := map[cm.CommID]bool{}
		config.Ports[0] = ok(fault.Wrap(config.Ports[0], fault.Config{Rules: []fault.Rule{{Action: fault.Pass, Dir: fault.Tx,
			Func: func(_ fault.Direction, p *bth.Packet) bool {
				if id, dreq := dreqOf(p); dreq && time.Since(began) < 10*time.Millisecond {
					told[id] = true
				}
				return false
			}}}}))(t)
		server, client := n.open(config), n.device("10.0.0.2")
		var mu sync.Mutex
		up := 0
		service := cm.Service(cm.PortSpaceTCP, 1)
		ok(inside.Agent(server).Listen(cm.ListenParam{ServiceID: service, Backlog: conns}, gsi.ListenHandler{Conn: func(c *gsi.Conn, _ cm.Event) {
			c.Handle(gsi.Handler{})
			check(t, c.Accept(cm.AcceptParam{QPN: c.Offer().QPN + conns}))
		}}))(t)
		dst := netip.MustParseAddrPort("10.0.0.1:1")
		route := ok(inside.Agent(client).Route(t.Context(), netip.Addr{}, dst.Addr(), 0))(t)
		for i := range conns {
			var c *gsi.Conn
			c = inside.Agent(client).NewConn(gsi.Handler{Event: func(ev cm.Event) {
				if ev.Kind == cm.ConnectResponse {
					check(t, c.ReadyToUse(nil))
					mu.Lock()
					up++
					mu.Unlock()
				}
			}})
			// Each end has a different QPN, but no end has a queue pair.
			check(t, c.Connect(route, cm.ConnectParam{ServiceID: service, Dst: dst, QPN: bth.QPN(100 + i), Transport: cm.RC}))
			if i%50 == 49 {
				synctest.Wait()
			}
		}
		time.Sleep(time.Second) // the device sleeps
		began = time.Now()
		check(t, server.Close())
		synctest.Wait()
		if up != conns || len(told) != conns {
			t.Errorf("%d connected, %d were told of the end, want %d", up, len(told), conns)
		}
	})
}

// TestListenContext: Listen and ListenUD fail if their context has ended.
func TestListenContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := newNetwork(t).device("10.0.0.1")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := d.Listen(ctx, ":1", roce.ListenConfig{})
		wantErr(t, "Listen", err, context.Canceled)
		_, err = d.ListenUD(ctx, ":1", roce.ListenConfig{})
		wantErr(t, "ListenUD", err, context.Canceled)
		ok(d.Listen(t.Context(), ":1", roce.ListenConfig{}))(t)
	})
}

// withoutMAC is a port whose Ethernet address only the kernel knows.
type withoutMAC struct{ link.Port }

func (p *withoutMAC) Info() link.Info {
	i := p.Port.Info()
	i.MAC = frame.MAC{}
	return i
}

// TestGUID: two devices without an Ethernet address are two nodes, though they may
// have the same private address; a GUID may be given.
func TestGUID(t *testing.T) {
	bubble(t, func(t *testing.T) {
		guid := func(want uint64) uint64 {
			n := newNetwork(t)
			c := n.config("10.0.0.1")
			c.Ports[0] = &withoutMAC{c.Ports[0]}
			c.GUID = want
			return n.open(c).Query().GUID
		}
		a, b := guid(0), guid(0)
		if a == b || a == 0 || b == 0 {
			t.Errorf("GUIDs %x and %x", a, b)
		}
		if got := guid(5); got != 5 {
			t.Errorf("GUID %x, want 5", got)
		}
	})
}
