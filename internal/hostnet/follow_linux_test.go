package hostnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/netlab"
)

// setNeighbour writes an entry of the neighbour table.
func setNeighbour(t *testing.T, s *netlab.Side, ip netip.Addr, mac frame.MAC, state int) {
	t.Helper()
	n := &netlink.Neigh{LinkIndex: s.Link().Attrs().Index, IP: ip.AsSlice(), HardwareAddr: mac[:], State: state}
	if err := s.Netlink().NeighSet(n); err != nil {
		t.Fatal(err)
	}
}

// watch sends changes to a channel, from the watcher's goroutine.
func watch(t *testing.T, i *Interface) <-chan Change {
	t.Helper()
	changes := make(chan Change)
	stop := make(chan struct{})
	if err := i.Watch(func(c Change) {
		select {
		case changes <- c:
		case <-stop:
		}
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(stop) })
	return changes
}

// until takes changes until the wanted one comes, and returns how many it took.
func until(t *testing.T, changes <-chan Change, what string, want func(Change) bool) (n int) {
	t.Helper()
	timeout := time.After(10 * time.Second)
	for {
		select {
		case c := <-changes:
			if n++; want(c) {
				return n
			}
		case <-timeout:
			t.Fatalf("%s: the watcher did not report it", what)
		}
	}
}

// TestWatchNeighbours: the watcher reports a neighbour that moves, and a route that changes. Known then returns the
// new next hop.
func TestWatchNeighbours(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	i := open(t, a)
	changes := watch(t, i)
	until(t, changes, "at once", func(c Change) bool { return c.All && c.Interface && c.Routes })
	for _, ip := range []netip.Addr{b.IP4, b.IP6} {
		moved := frame.MAC{2, 9, 9, 9, 9, 9}
		setNeighbour(t, a, ip, moved, netlink.NUD_REACHABLE)
		until(t, changes, "neighbour "+ip.String(), func(c Change) bool { _, ok := c.Neighbours[ip]; return ok })
		if n, usable, err := i.Known(netip.Addr{}, ip); err != nil || !usable || n != (Neighbour{ip, moved, 64}) {
			t.Errorf("then it is %+v, %v, %v", n, usable, err)
		}
	}
	far := netip.MustParsePrefix("192.0.2.0/24")
	if err := a.AddRoute(far, b.IP4); err != nil {
		t.Fatal(err)
	}
	until(t, changes, "route", func(c Change) bool { return c.Routes })
	if n, usable, err := i.Known(a.IP4, far.Addr().Next()); err != nil || !usable || n.Addr != b.IP4 {
		t.Errorf("by a gateway: %+v, %v, %v", n, usable, err)
	}
	nobody := a.IP4.Next().Next().Next()
	if n, usable, err := i.Known(a.IP4, nobody); err != nil || usable || n.Addr != nobody {
		t.Errorf("nobody: %+v, %v, %v", n, usable, err)
	}
}

// TestWatchFlood: the watcher combines changes that come faster than its function handles them. If the kernel has lost
// some, it reports All.
func TestWatchFlood(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	i := open(t, a)
	changes := watch(t, i)
	until(t, changes, "at once", func(c Change) bool { return c.All })
	const flood = 1000
	for k := range flood { // the watcher's function blocks after the first one
		setNeighbour(t, a, b.IP4, frame.MAC{2, 9, 9, 9, byte(k >> 8), byte(k)}, netlink.NUD_REACHABLE)
	}
	last := b.IP4.Next()
	setNeighbour(t, a, last, mac, netlink.NUD_REACHABLE)
	if n := until(t, changes, "the last", func(c Change) bool { _, ok := c.Neighbours[last]; return ok || c.All }); n > 3 {
		t.Errorf("%d calls for %d changes", n, flood)
	}

	// A buffer for few messages.
	conn, err := i.news.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	conn.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 1) })
	for k := range flood {
		setNeighbour(t, a, b.IP4, frame.MAC{2, 9, 9, 8, byte(k >> 8), byte(k)}, netlink.NUD_REACHABLE)
	}
	until(t, changes, "lost", func(c Change) bool { return c.All })
}

// TestOneNeighbour: known asks the kernel for one entry, even if the table has hundreds.
func TestOneNeighbour(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	i := open(t, a)
	setNeighbour(t, a, b.IP4, b.MAC, netlink.NUD_REACHABLE)
	for k := range 300 {
		setNeighbour(t, a, netip.AddrFrom4([4]byte{10, 88, 1, byte(k)}), frame.MAC{2, 9, 5: byte(k)}, netlink.NUD_PERMANENT)
	}
	i.mu.Lock()
	answer, err := i.neighbourRequest(unix.RTM_GETNEIGH, 0, b.IP4, 0, 0)
	i.mu.Unlock()
	if err != nil || len(answer) != 1 {
		t.Errorf("%d entries, %v", len(answer), err)
	}
	one, err := i.known(b.IP4)
	if err != nil || one.mac != b.MAC {
		t.Errorf("%+v, %v", one, err)
	}
	if i.dumps != 0 {
		t.Errorf("the whole table was read %d times for one entry", i.dumps)
	}
	// Kernels before 5.0 only list the whole table.
	i.old = true
	if e, err := i.known(b.IP4); err != nil || e != one {
		t.Errorf("%+v, %v, want %+v", e, err, one)
	}
	if e, err := i.known(b.IP4.Next()); err != nil || e.state != 0 {
		t.Errorf("nobody: %+v, %v", e, err)
	}
}

// TestResolveFirewalled: Resolve finds neighbours behind a firewall that lets nothing out, except RoCE packets of
// other drivers.
func TestResolveFirewalled(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	i, peer := open(t, a), open(t, b)
	a.DropOutput(t)
	if err := i.probeBy(b.IP4); !errors.Is(err, syscall.EPERM) {
		t.Fatalf("the firewall does not work: %v", err)
	}
	if n, err := i.Resolve(t.Context(), a.IP4, b.IP4); err != nil || n.MAC != b.MAC {
		t.Errorf("%+v, %v", n, err)
	}
	// Without the privilege it waits for the kernel to learn it by other traffic.
	for _, x := range []struct{ at, of *netlab.Side }{{a, b}, {b, a}} {
		if err := x.at.Netlink().NeighDel(&netlink.Neigh{LinkIndex: x.at.Link().Attrs().Index, IP: x.of.IP4.AsSlice()}); err != nil {
			t.Fatal(err)
		}
	}
	i.unprivileged = true
	found := make(chan error)
	go func() {
		n, err := i.Resolve(t.Context(), a.IP4, b.IP4)
		if err == nil && n.MAC != b.MAC {
			err = fmt.Errorf("%+v", n)
		}
		found <- err
	}()
	if err := peer.ask(a.IP4); err != nil { // with this request our kernel learns its address
		t.Fatal(err)
	}
	if err := <-found; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := i.Resolve(ctx, a.IP4, b.IP4.Next())
	if !errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), "4791") {
		t.Errorf("nobody: %v", err)
	}
}

// TestProbe: Resolve finds neighbours with an empty datagram to the port of RoCEv2. A firewall that lets RoCE out lets
// the datagram out, too.
func TestProbe(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	i := open(t, a)
	for _, to := range []netip.Addr{b.IP4, b.IP6} {
		var at *net.UDPConn
		b.Do(t, func() {
			var err error
			if at, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, bth.UDPPort))); err != nil {
				t.Fatal(err)
			}
		})
		defer at.Close()
		i.mu.Lock()
		err := i.probeBy(to)
		i.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		at.SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, _, err := at.ReadFromUDPAddrPort(make([]byte, 1)); n != 0 || err != nil {
			t.Errorf("to %v: %d bytes, %v", to, n, err)
		}
	}
}

// TestVerify: a neighbour that has moved without an announcement is found again.
func TestVerify(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	for name, v := range map[string]string{"ucast_solicit": "1", "retrans_time_ms": "20", "mcast_solicit": "20", "locktime": "0"} {
		a.Sysctl(t, "net/ipv4/neigh/"+a.Interface+"/"+name, v)
	}
	i := open(t, a)
	if _, err := i.Resolve(t.Context(), a.IP4, b.IP4); err != nil {
		t.Fatal(err)
	}
	moved := frame.MAC{2, 9, 9, 9, 9, 9}
	if err := b.Netlink().LinkSetHardwareAddr(b.Link(), moved[:]); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if err := i.Verify(b.IP4); err != nil {
			t.Fatal(err)
		}
		e, err := i.known(b.IP4)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%+v, %v", e, err)
		}
		if e.mac == moved && e.usable() {
			break
		}
	}
	permanent := b.IP4.Next()
	setNeighbour(t, a, permanent, mac, netlink.NUD_PERMANENT)
	if err := i.Verify(permanent); err != nil {
		t.Error(err)
	}
	if e, err := i.known(permanent); err != nil || e.state != unix.NUD_PERMANENT {
		t.Errorf("a permanent entry is now %+v, %v", e, err)
	}
}

// TestRenamed: after a rename, queries and joins use the same interface, and its own Ethernet address decides the
// order of addresses.
func TestRenamed(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	i := open(t, a)
	if err := a.Netlink().LinkSetName(a.Link(), "other"); err != nil {
		t.Fatal(err)
	}
	joined := byte(0)
	join := func(n byte) {
		t.Helper()
		a.Do(t, func() {
			for ; joined < n; joined++ { // needs further sockets
				if _, err := i.Join(netip.AddrFrom4([4]byte{239, 9, 9, joined})); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	join(30) // nothing has the old name
	if err := a.Netlink().LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: a.Interface}}); err != nil {
		t.Fatal(err)
	}
	if s, err := i.State(); err != nil || s != (State{"other", a.MAC, 1500, true}) {
		t.Errorf("state %+v, %v", s, err)
	}
	join(60)
	if n, err := i.Resolve(t.Context(), a.IP4, b.IP4); err != nil || n.MAC != b.MAC {
		t.Errorf("%+v, %v", n, err)
	}
	changed := frame.MAC{2, 7, 7, 7, 7, 7}
	if err := a.Netlink().LinkSetHardwareAddr(a.Link(), changed[:]); err != nil {
		t.Fatal(err)
	}
	first := frame.DefaultGID(changed).Addr()
	if err := a.AddAddr(first, 64); err != nil {
		t.Fatal(err)
	}
	if list, err := i.Addrs(); err != nil || list[0] != first {
		t.Errorf("addresses %v, %v", list, err)
	}
}

// TestLoopback: the loopback interface has its addresses, and routes to itself.
func TestLoopback(t *testing.T) {
	a, _ := netlab.Pair(t, netlab.Config{})
	var i *Interface
	a.Do(t, func() {
		var err error
		if i, err = Open("lo"); err != nil {
			t.Fatal(err)
		}
	})
	defer i.Close()
	list, err := i.Addrs()
	if want := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}; err != nil || !slices.Equal(list, want) {
		t.Errorf("addresses %v, %v, want %v", list, err, want)
	}
	if r, err := i.Route(netip.Addr{}, netip.MustParseAddr("127.0.0.2")); err != nil || !r.Src.IsLoopback() {
		t.Errorf("route %+v, %v", r, err)
	}
}
