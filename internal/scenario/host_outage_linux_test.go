package scenario_test

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link/raw"
)

// outages are temporary failures of a network: each begins on one side of a lab and returns a function that ends it.
var outages = []struct {
	name    string
	drivers []roce.InterfaceConfig
	begin   func(t *testing.T, x, y *netlab.Side) (end func())
}{
	{"interface down", []roce.InterfaceConfig{{Driver: "udp"}, {Driver: "raw"}, {Driver: "xdp"}}, func(t *testing.T, x, y *netlab.Side) func() {
		x.SetUp(t, false)
		return func() { x.SetUp(t, true) }
	}},
	{"cable out", []roce.InterfaceConfig{{Driver: "udp"}, {Driver: "xdp"}}, func(t *testing.T, x, y *netlab.Side) func() {
		y.SetUp(t, false)
		return func() { y.SetUp(t, true) }
	}},
	{"refused", []roce.InterfaceConfig{{Driver: "udp"}}, func(t *testing.T, x, y *netlab.Side) func() {
		route := &netlink.Route{Dst: &net.IPNet{IP: y.IP4.AsSlice(), Mask: net.CIDRMask(32, 32)}, Type: unix.RTN_PROHIBIT}
		check(t, x.Netlink().RouteAdd(route))
		return func() { check(t, x.Netlink().RouteDel(route)) }
	}},
	{"no room", []roce.InterfaceConfig{{Driver: "udp"}, {Driver: "raw", Raw: raw.Config{Qdisc: true}}}, func(t *testing.T, x, y *netlab.Side) func() {
		slow := &netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: x.Link().Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)},
			Rate: 2000, Limit: 20_000, Buffer: 100_000}
		if err := x.Netlink().QdiscAdd(slow); err != nil {
			t.Skipf("no slow queueing discipline: %v", err)
		}
		return func() { check(t, x.Netlink().QdiscDel(slow)) }
	}},
}

// cpuTime is the processor time that this process has used.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	check(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestOutage: a busy connection, an idle one, and one that is being made survive a temporary failure. Meanwhile no core is
// busy.
func TestOutage(t *testing.T) {
	for _, o := range outages {
		for _, c := range o.drivers {
			t.Run(o.name+"/"+c.Driver, func(t *testing.T) { testOutage(t, c, o.begin) })
		}
	}
}

func testOutage(t *testing.T, c roce.InterfaceConfig, begin func(t *testing.T, x, y *netlab.Side) func()) {
	x, y := netlab.Pair(t, netlab.Config{})
	da, db := openOn(t, x, c), openOn(t, y, roce.InterfaceConfig{Driver: c.Driver})
	goroutines := runtime.NumGoroutine()
	const size = 64 << 10
	pair := func() (a, b *peer) {
		a, b = newPeer(t, da, size), newPeer(t, db, size)
		connectFrom(t, a, ofAddr(t, da, x.IP4), b, ofAddr(t, db, y.IP4), 17)
		a.post(roce.Write, 0, size, b, 0)
		a.wait()
		return a, b
	}
	busy, busyPeer := pair()
	idle, idlePeer := pair()
	l := ok(db.Listen(patient(t), ":7471", roce.ListenConfig{}))(t)
	go func() {
		for {
			request, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			go request.Accept(context.Background(), roce.AcceptConfig{})
		}
	}()
	dial := func(ctx context.Context) error {
		conn, err := da.Dial(ctx, net.JoinHostPort(y.IP4.String(), "7471"), roce.DialConfig{})
		if err == nil {
			conn.Close()
		}
		return err
	}

	const posts = 8
	for range posts {
		busy.post(roce.Write, 0, size, busyPeer, 0)
	}
	end := begin(t, x, y)
	busy.post(roce.Write, 0, size, busyPeer, 0)
	connecting := make(chan error, 1)
	ctx, giveUp := context.WithCancel(patient(t))
	defer giveUp()
	go func() { connecting <- dial(ctx) }()
	time.Sleep(100 * time.Millisecond) // the immediate reactions are over
	began, used := time.Now(), cpuTime(t)
	time.Sleep(250 * time.Millisecond)
	used = cpuTime(t) - used
	if took := time.Since(began); used > took/2 {
		t.Errorf("%v of processor time in %v", used, took)
	}
	end()
	for range posts + 1 {
		busy.wait()
	}
	idle.post(roce.Write, 0, size, idlePeer, 0)
	idle.wait()
	giveUp() // if it has not succeeded yet: its next repetition is seconds away
	<-connecting
	check(t, dial(patient(t)))
	l.Close()
	check(t, da.Close())
	check(t, db.Close())
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > goroutines && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
}
