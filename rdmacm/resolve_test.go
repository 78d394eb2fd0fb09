package rdmacm_test

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/rdmacm"
)

// once is a resolver whose neighbours answer the first request at once, and later ones slowly.
type once struct {
	mu    sync.Mutex
	asked map[netip.Addr]bool
}

func (o *once) Resolve(_ context.Context, _, dst netip.Addr) (roce.Neighbour, error) {
	o.mu.Lock()
	slow := o.asked[dst]
	o.asked[dst] = true
	o.mu.Unlock()
	if slow {
		time.Sleep(5 * time.Second)
	}
	return roce.Neighbour{MAC: roce.DerivedMAC(dst)}, nil
}

// TestNextDoesNotResolve: Next does not resolve again a neighbour that the ID has already found.
// Otherwise the events of all other IDs of the channel would have to wait.
func TestNextDoesNotResolve(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		server := n.device(roce.Config{}, "10.0.0.1")
		h := hostOf(t, n.device(roce.Config{Options: roce.Options{Resolver: &once{asked: map[netip.Addr]bool{}}}}, "10.0.0.2"))
		l := ok(server.Listen(t.Context(), ":7471", roce.ListenConfig{}))(t)
		c := h.NewChannel()
		began := time.Now()
		id := resolved(t, h, c, rdmacm.TCP, "10.0.0.1:7471")
		check(t, id.CreateQP(nil, smallQP()))
		check(t, id.Connect(t.Context(), rdmacm.ConnParam{}))
		go func() {
			if r, err := l.Accept(t.Context()); err == nil {
				r.Accept(t.Context(), roce.AcceptConfig{})
			}
		}()
		next(t, c, rdmacm.Established)
		if took := time.Since(began); took >= time.Second { // simulated time
			t.Errorf("the event took %v", took)
		}
	})
}

// TestBindLoopback: a loopback address that no device has means a wildcard. A loopback address of a device is an
// ordinary address.
func TestBindLoopback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		for _, c := range []struct {
			device, addr string
			bound        bool
		}{{"10.0.0.1", "127.0.0.1:7471", false}, {"fd00::1", "[::1]:7471", false}, {"127.0.0.5", "127.0.0.5:7471", true}} {
			h := n.host(c.device)
			id := ok(h.CreateID(h.NewChannel(), rdmacm.TCP, nil))(t)
			check(t, id.Bind(at(c.addr)))
			if got := id.LocalAddr(); (id.Device() != nil) != c.bound || got.Addr().IsUnspecified() == c.bound || got.Port() != 7471 {
				t.Errorf("%s at %s: bound to %v, device %v", c.device, c.addr, got, id.Device() != nil)
			}
			check(t, id.Listen(0))
		}
	})
}

// TestResolveLoopback: a device with a loopback address reaches another one.
func TestResolveLoopback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		server, client := n.host("127.0.0.5"), n.host("127.0.0.6")
		l := ok(server.CreateID(nil, rdmacm.TCP, nil))(t)
		check(t, l.Bind(at("127.0.0.5:7471")))
		check(t, l.Listen(0))
		id := ok(client.CreateID(nil, rdmacm.TCP, nil))(t)
		check(t, id.ResolveAddr(t.Context(), netip.AddrPort{}, at("127.0.0.5:7471"), time.Second))
		if id.PeerAddr() != at("127.0.0.5:7471") {
			t.Errorf("the peer is %v", id.PeerAddr())
		}
	})
}
