package hostnet

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/netlab"
)

// TestHasRoute: HasRoute returns false for exactly those addresses that the kernel would look for on the link although it has no
// route to them.
func TestHasRoute(t *testing.T) {
	client, gateway, server := netlab.Routed(t, netlab.Config{})
	addr := netip.MustParseAddr
	for n, kind := range []int{unix.RTN_BLACKHOLE, unix.RTN_PROHIBIT, unix.RTN_UNREACHABLE} {
		to := &net.IPNet{IP: net.IPv4(192, 0, 2, byte(1+n)).To4(), Mask: net.CIDRMask(32, 32)}
		if err := client.Netlink().RouteAdd(&netlink.Route{Dst: to, Type: kind}); err != nil {
			t.Fatal(err)
		}
	}
	i, g := open(t, client), open(t, gateway)
	// Two routes to one network: the better one leads through the router's other interface.
	for metric, by := range map[int]netip.Addr{100: server.IP4, 200: client.IP4} {
		r := &netlink.Route{Dst: &net.IPNet{IP: net.IPv4(198, 51, 100, 0).To4(), Mask: net.CIDRMask(24, 32)}, Gw: by.AsSlice(), Priority: metric}
		if err := gateway.Netlink().RouteAdd(r); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name     string
		i        *Interface
		src, dst netip.Addr
		want     bool
	}{
		{"neighbour", i, client.IP4, gateway.IP4, true},
		{"absent neighbour", i, client.IP4, gateway.IP4.Next(), true},
		{"through the gateway", i, client.IP4, server.IP4, true},
		{"the host itself", i, client.IP4, client.IP4, true},
		{"no route", i, client.IP4, addr("203.0.113.1"), false},
		{"blackhole", i, client.IP4, addr("192.0.2.1"), false},
		{"prohibited", i, client.IP4, addr("192.0.2.2"), false},
		{"unreachable", i, client.IP4, addr("192.0.2.3"), false},
		{"through another interface", g, gateway.IP4, server.IP4, false},
		{"better through another interface", g, gateway.IP4, addr("198.51.100.1"), true},
		{"IPv6 without a route", i, client.IP6, addr("2001:db8::1"), true}, // the kernel drops it
	} {
		for range 2 { // the second result is the stored one
			if got := c.i.HasRoute(c.src, c.dst); got != c.want {
				t.Errorf("%s: %v", c.name, got)
			}
		}
		if c.dst.Is6() || c.dst == c.src {
			continue
		}
		if err := c.i.probeBy(c.dst); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		e, err := c.i.known(c.dst)
		neighbour := strings.Contains(c.name, "neighbour")
		if searched := e.state != 0; err != nil || searched != (neighbour || !c.want) {
			t.Errorf("%s: the kernel looks for it: %v, %v", c.name, searched, err)
		}
	}
}

// TestHasRouteClosed: after Close HasRoute returns true. Calls beside Close and beside other requests do no harm.
func TestHasRouteClosed(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	i := open(t, a)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for k := range byte(4) {
		running.Go(func() {
			nowhere := netip.AddrFrom4([4]byte{203, 0, 113, k})
			for n := byte(0); ; n++ {
				closed := ctx.Err() != nil
				if !i.HasRoute(a.IP4, b.IP4) {
					t.Error("no route to a neighbour")
				}
				if !closed && i.HasRoute(a.IP4, nowhere) && ctx.Err() == nil {
					t.Error("a route to nowhere")
				}
				i.HasRoute(a.IP4, netip.AddrFrom4([4]byte{203, 0, k, n}))
				i.Route(a.IP4, b.IP4)
				if closed {
					return
				}
			}
		})
	}
	for range 200 {
		i.Route(a.IP4, b.IP4)
	}
	stop()
	i.Close()
	running.Wait()
	if fresh := netip.MustParseAddr("203.0.113.99"); !i.HasRoute(a.IP4, fresh) {
		t.Error("after Close there is no route to an address")
	}
}
