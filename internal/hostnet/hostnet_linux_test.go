package hostnet

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/netlab"
)

// open opens the interface of a lab.
func open(t *testing.T, s *netlab.Side) (i *Interface) {
	t.Helper()
	s.Do(t, func() {
		var err error
		if i, err = Open(s.Interface); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { i.Close() })
	return i
}

func TestInterface(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{MTU: 4200})
	i := open(t, a)
	addrs, err := i.Addrs()
	if want := []netip.Addr{a.LinkLocal, a.IP4, a.IP6}; err != nil || !slices.Equal(addrs, want) {
		t.Errorf("addresses %v, %v, want %v", addrs, err, want)
	}
	if s, err := i.State(); err != nil || s != (State{a.Interface, a.MAC, 4200, true}) {
		t.Errorf("state %+v, %v", s, err)
	}
	b.SetUp(t, false) // no carrier at a
	if s, err := i.State(); err != nil || s.Up {
		t.Errorf("state %+v, %v without a carrier", s, err)
	}
	if err := a.Netlink().LinkDel(a.Link()); err != nil {
		t.Fatal(err)
	}
	if _, err := i.State(); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("state of a removed interface: %v", err)
	}
	if _, err := i.Addrs(); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("addresses of a removed interface: %v", err)
	}
	a.Do(t, func() {
		if _, err := Open("nosuch0"); !errors.Is(err, syscall.ENODEV) {
			t.Errorf("interface that does not exist: %v", err)
		}
	})
}

// TestWatch: the watcher reports all changes of the interface, and none of others.
func TestWatch(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	i, other := open(t, a), open(t, b)
	calls := make(chan struct{}, 1000)
	if err := i.Watch(func(Change) { calls <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	if err := i.Watch(func(Change) {}); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("second Watch: %v", err)
	}
	// await checks now after every call of the watcher.
	await := func(what string, now func() bool) {
		t.Helper()
		timeout := time.After(10 * time.Second)
		for {
			select {
			case <-calls:
				if now() {
					return
				}
			case <-timeout:
				t.Fatalf("%s: the watcher did not report it", what)
			}
		}
	}
	has := func(addr netip.Addr) bool {
		list, err := i.Addrs()
		return err == nil && slices.Contains(list, addr)
	}
	up := func() bool { s, err := i.State(); return err == nil && s.Up }
	await("at once", func() bool { return true })
	extra := netip.MustParseAddr("fd88::99")
	if err := a.AddAddr(extra, 64); err != nil {
		t.Fatal(err)
	}
	await("address added", func() bool { return has(extra) })
	if err := a.Netlink().AddrDel(a.Link(), &netlink.Addr{IPNet: &net.IPNet{IP: extra.AsSlice(), Mask: net.CIDRMask(64, 128)}}); err != nil {
		t.Fatal(err)
	}
	await("address removed", func() bool { return !has(extra) })
	b.SetUp(t, false)
	await("carrier lost", func() bool { return !up() })
	b.SetUp(t, true)
	await("carrier back", up)
	a.SetUp(t, false)
	await("down", func() bool { return !up() })
	if err := a.Netlink().LinkDel(a.Link()); err != nil {
		t.Fatal(err)
	}
	await("removed", func() bool { _, err := i.State(); return errors.Is(err, syscall.ENODEV) })

	// Closing waits for the watcher.
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	n := len(calls)
	if err := other.Close(); err != nil { // an interface without a watcher
		t.Fatal(err)
	}
	if len(calls) != n {
		t.Error("told after Close")
	}
}

func TestClosed(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	i := open(t, a)
	leave, err := i.Join(netip.MustParseAddr("239.1.2.3"))
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]func() error{
		"Close":   i.Close,
		"Addrs":   func() error { _, err := i.Addrs(); return err },
		"Watch":   func() error { return i.Watch(func(Change) {}) },
		"State":   func() error { _, err := i.State(); return err },
		"Route":   func() error { _, err := i.Route(a.IP4, b.IP4); return err },
		"Resolve": func() error { _, err := i.Resolve(t.Context(), a.IP4, b.IP4); return err },
		"Join":    func() error { _, err := i.Join(netip.MustParseAddr("239.1.2.3")); return err },
		"leave":   leave,
	} {
		if err := f(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
}

func TestRoute(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	i := open(t, a)
	addr := netip.MustParseAddr
	add := func(dst string, gw netip.Addr, hops int) {
		t.Helper()
		_, ipnet, _ := net.ParseCIDR(dst)
		r := &netlink.Route{LinkIndex: a.Link().Attrs().Index, Dst: ipnet, Gw: gw.AsSlice(), Hoplimit: hops}
		if err := a.Netlink().RouteAdd(r); err != nil {
			t.Fatalf("route to %s: %v", dst, err)
		}
	}
	add("192.0.2.0/24", b.IP4, 17)
	add("2001:db8::/32", b.LinkLocal, 0)
	for _, test := range []struct {
		src, dst netip.Addr
		want     Route
	}{
		{a.IP4, b.IP4, Route{a.IP4, b.IP4, 64}},
		{netip.Addr{}, b.IP4, Route{a.IP4, b.IP4, 64}},
		{netip.Addr{}, b.IP6, Route{a.IP6, b.IP6, 64}},
		{netip.Addr{}, b.LinkLocal, Route{a.LinkLocal, b.LinkLocal, 64}},
		{a.IP4, addr("192.0.2.9"), Route{a.IP4, b.IP4, 17}},
		{netip.Addr{}, addr("2001:db8::9"), Route{a.IP6, b.LinkLocal, 64}},
	} {
		if got, err := i.Route(test.src, test.dst); err != nil || got != test.want {
			t.Errorf("from %v to %v: %+v, %v, want %+v", test.src, test.dst, got, err, test.want)
		}
	}
	for _, dst := range []netip.Addr{addr("203.0.113.1"), addr("2001:db9::1"), a.IP4, addr("127.0.0.1")} {
		if r, err := i.Route(netip.Addr{}, dst); !errors.Is(err, syscall.ENETUNREACH) {
			t.Errorf("to %v: %+v, %v, want ENETUNREACH", dst, r, err)
		}
	}
	// Through the gateway, and a group, which needs no request.
	for dst, want := range map[netip.Addr]Neighbour{
		addr("192.0.2.9"):   {b.IP4, b.MAC, 17},
		addr("2001:db8::9"): {b.LinkLocal, b.MAC, 64},
		addr("239.1.2.3"):   {addr("239.1.2.3"), frame.MAC{1, 0, 0x5E, 1, 2, 3}, 64},
		addr("ff0e::7"):     {addr("ff0e::7"), frame.MAC{0x33, 0x33, 5: 7}, 64},
	} {
		if n, err := i.Resolve(t.Context(), netip.Addr{}, dst); err != nil || n != want {
			t.Errorf("resolve %v: %+v, %v, want %+v", dst, n, err, want)
		}
	}
}

func TestResolve(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	i := open(t, a)
	pairs := [][2]netip.Addr{{a.IP4, b.IP4}, {a.IP6, b.IP6}, {a.LinkLocal, b.LinkLocal}}
	for range 2 { // first by a request, then from the table
		for _, pair := range pairs {
			n, err := i.Resolve(t.Context(), pair[0], pair[1])
			if want := (Neighbour{pair[1], b.MAC, 64}); err != nil || n != want {
				t.Errorf("resolve %v: %v, %v, want %v", pair[1], n, err, want)
			}
		}
	}
	// The kernel uses a stale entry while it verifies it.
	stale := &netlink.Neigh{LinkIndex: a.Link().Attrs().Index, IP: b.IP4.AsSlice(), HardwareAddr: b.MAC[:], State: netlink.NUD_STALE}
	if err := a.Netlink().NeighSet(stale); err != nil {
		t.Fatal(err)
	}
	if n, err := i.Resolve(t.Context(), a.IP4, b.IP4); err != nil || n.MAC != b.MAC {
		t.Errorf("stale: %v, %v", n, err)
	}
	if e, err := i.known(b.IP4); err != nil || e.state == netlink.NUD_STALE {
		t.Errorf("then the entry is %+v, %v", e, err)
	}
	// Resolve of an unknown neighbour fails if its context has ended. It finds a permanent entry without a
	// request.
	dead := a.IP4.Next().Next()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := i.Resolve(ctx, a.IP4, dead); !errors.Is(err, syscall.ETIMEDOUT) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	failed := &netlink.Neigh{LinkIndex: a.Link().Attrs().Index, IP: dead.Next().AsSlice(), HardwareAddr: b.MAC[:], State: netlink.NUD_PERMANENT}
	if err := a.Netlink().NeighSet(failed); err != nil {
		t.Fatal(err)
	}
	if n, err := i.Resolve(t.Context(), a.IP4, dead.Next()); err != nil || n.MAC != b.MAC {
		t.Errorf("permanent: %v, %v", n, err)
	}
}

// TestDeadNeighbour: the wait ends when the kernel gives up.
func TestDeadNeighbour(t *testing.T) {
	a, _ := netlab.Pair(t, netlab.Config{})
	i := open(t, a)
	a.Do(t, func() { // the kernel asks once, for a short time
		for name, v := range map[string]string{"mcast_solicit": "1", "retrans_time_ms": "20"} {
			if err := os.WriteFile("/proc/sys/net/ipv4/neigh/"+a.Interface+"/"+name, []byte(v), 0); err != nil {
				t.Skipf("cannot shorten the kernel's patience: %v", err)
			}
		}
	})
	start := time.Now()
	_, err := i.Resolve(t.Context(), a.IP4, a.IP4.Next().Next())
	if !errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dead neighbour: %v", err)
	}
	if took := time.Since(start); took > neighbourWait/2 {
		t.Errorf("it took %v", took)
	}
}

// member reports whether the kernel of a side has joined a group.
func member(t *testing.T, s *netlab.Side, group netip.Addr) bool {
	t.Helper()
	file, want := "/proc/thread-self/net/igmp", fmt.Sprintf("%08X", binary.NativeEndian.Uint32(group.AsSlice()))
	if group.Is6() {
		file, want = "/proc/thread-self/net/igmp6", hex.EncodeToString(group.AsSlice())
	}
	var b []byte
	s.Do(t, func() {
		var err error
		if b, err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	})
	return strings.Contains(string(b), want)
}

func TestJoin(t *testing.T) {
	a, _ := netlab.Pair(t, netlab.Config{})
	i := open(t, a)
	for _, group := range []netip.Addr{netip.MustParseAddr("239.1.2.3"), netip.MustParseAddr("ff0e::7")} {
		one, err := i.Join(group)
		if err != nil {
			t.Fatal(err)
		}
		two, err := i.Join(group)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			leave func() error
			want  bool
		}{{one, true}, {one, true}, {two, false}, {two, false}} {
			if err := step.leave(); err != nil {
				t.Errorf("leave %v: %v", group, err)
			}
			if got := member(t, a, group); got != step.want {
				t.Errorf("%v: member: %v, want %v", group, got, step.want)
			}
		}
	}
	if _, err := i.Join(a.IP4); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("join a unicast address: %v", err)
	}
	var err error
	for n := byte(1); n > 0 && err == nil; n++ {
		_, err = i.Join(netip.AddrFrom4([4]byte{239, 9, 9, n}))
	}
	if !errors.Is(err, syscall.ENOBUFS) || !strings.Contains(err.Error(), "igmp_max_memberships") {
		t.Errorf("too many groups: %v", err)
	}
}

// TestLeaveRemoved: leaving a group on a removed interface succeeds, because the kernel has left it.
func TestLeaveRemoved(t *testing.T) {
	a, _ := netlab.Pair(t, netlab.Config{})
	i := open(t, a)
	var leave []func() error
	for _, group := range []string{"239.1.2.3", "ff0e::7"} {
		l, err := i.Join(netip.MustParseAddr(group))
		if err != nil {
			t.Fatal(err)
		}
		leave = append(leave, l)
	}
	if err := a.Netlink().LinkDel(a.Link()); err != nil {
		t.Fatal(err)
	}
	for _, l := range leave {
		if err := l(); err != nil {
			t.Error(err)
		}
	}
}

// TestJoinMany: Join opens further sockets for more groups than the kernel allows one socket.
func TestJoinMany(t *testing.T) {
	a, _ := netlab.Pair(t, netlab.Config{})
	i := open(t, a)
	leave := map[netip.Addr]func() error{}
	a.Do(t, func() {
		for n := range byte(100) {
			for _, group := range []netip.Addr{netip.AddrFrom4([4]byte{239, 9, 9, n}), netip.AddrFrom16([16]byte{0xFF, 0x0E, 14: 9, 15: n})} {
				var err error
				if leave[group], err = i.Join(group); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	for group, l := range leave {
		if !member(t, a, group) {
			t.Errorf("not in %v", group)
		}
		if err := l(); err != nil {
			t.Error(err)
		}
		if member(t, a, group) {
			t.Errorf("still in %v", group)
		}
	}
}

func TestGIDOrder(t *testing.T) {
	mac := frame.MAC{0x52, 0x54, 0, 0, 0, 0x0a}
	a := func(s string) netip.Addr { return netip.MustParseAddr(s) }
	got := gidOrder(mac, []netip.Addr{a("10.0.0.1"), a("127.0.0.1"), a("fd00::1"), a("fe80::5054:ff:fe00:a")}, false)
	if want := []netip.Addr{a("fe80::5054:ff:fe00:a"), a("10.0.0.1"), a("fd00::1")}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestManyWait: any number of calls that wait for silent neighbours together poll the kernel at a limited rate. A
// single waiting call polls soon.
func TestManyWait(t *testing.T) {
	for waiting := 1; waiting <= 1<<12; waiting *= 4 {
		looks := 0
		for at, pause := time.Duration(0), time.Duration(0); at < neighbourWait; at += pause {
			pause = nextLook(pause, waiting)
			looks++
		}
		if rate := float64(looks*waiting) / neighbourWait.Seconds(); rate > 1e4 {
			t.Errorf("%d look %.0f times a second, %d times each", waiting, rate, looks)
		}
	}
	if pause := nextLook(0, 1); pause != neighbourFirst {
		t.Errorf("the first look after %v", pause)
	}
	if pause := nextLook(neighbourLook, 1); pause != neighbourLook {
		t.Errorf("later looks after %v", pause)
	}
}
