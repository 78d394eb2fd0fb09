package udp

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
)

// portableOn opens the Port of other systems than Linux, on a loopback address.
func portableOn(t testing.TB, last byte) link.Port {
	t.Helper()
	a := linktest.Loopback(last)
	p, err := openPortable(Config{Addr: a}.withDefaults(), owner(a), []netip.Addr{a})
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Skipf("the system has no address %v", a)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return linktest.At(p, a, netip.Addr{})
}

func TestPortable(t *testing.T) {
	linktest.TestPort(t, func(t *testing.T) (link.Port, link.Port) {
		return portableOn(t, 7), portableOn(t, 8)
	})
}

// TestPortableBacklog: packets that arrive faster than Recv is called are not lost.
func TestPortableBacklog(t *testing.T) {
	a, b := portableOn(t, 9), portableOn(t, 10)
	path := linktest.Between(t, false, a, b)
	const n = 2 * inboxLimit
	for i := range n {
		linktest.Send(t, a, path, 0, nil)
		if i%link.Batch == 0 {
			if err := a.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := a.Flush(); err != nil {
		t.Fatal(err)
	}
	linktest.Collect(t, b, n)
}

// TestPortableAddresses: a Port with several addresses sends and receives with each.
func TestPortableAddresses(t *testing.T) {
	addrs := []netip.Addr{linktest.Loopback(14), linktest.Loopback(15)}
	p, err := openPortable(Config{Addr: addrs[0]}.withDefaults(), owner(addrs[0]), addrs)
	if err != nil {
		t.Skip(err)
	}
	defer p.Close()
	peer := portableOn(t, 16)
	for _, a := range addrs {
		near, far := linktest.At(p, a, netip.Addr{}), peer
		linktest.Send(t, near, linktest.Between(t, false, near, far), 1, nil)
		if err := near.Flush(); err != nil {
			t.Fatal(err)
		}
		linktest.Collect(t, far, 1)
		linktest.Send(t, far, linktest.Between(t, false, far, near), 2, nil)
		if err := far.Flush(); err != nil {
			t.Fatal(err)
		}
		fr := make([]link.Frame, 1)
		if err := p.Wait(linktest.Patience); err != nil {
			t.Fatal(err)
		}
		if n, err := p.Recv(fr); n != 1 || err != nil || fr[0].Env.Dst != bth.GIDFrom(a) {
			t.Fatalf("%d packets, %v, to %v, want one to %v", n, err, fr[0].Env.Dst, a)
		}
	}
	// A Port cannot send from an address that it does not have.
	foreign := linktest.At(p, linktest.Loopback(17), netip.Addr{})
	linktest.Send(t, p, linktest.Between(t, false, foreign, peer), 3, nil)
	if err := p.Flush(); err != nil || p.Stats().TxErrors != 1 {
		t.Errorf("%v, %+v", err, p.Stats())
	}
}

func TestOpenErrors(t *testing.T) {
	addr := netip.MustParseAddr
	taken := portableOn(t, 11)
	defer taken.Close()
	for _, test := range []struct {
		c    Config
		n    int
		want error
	}{
		{Config{}, 1, syscall.EINVAL},
		{Config{Interface: "lo", Addr: addr("127.0.0.1")}, 1, syscall.EINVAL},
		{Config{Addr: addr("0.0.0.0")}, 1, syscall.EINVAL},
		{Config{Addr: addr("::ffff:0.0.0.0")}, 1, syscall.EINVAL},
		{Config{Addr: addr("ff02::1")}, 1, syscall.EINVAL},
		{Config{Addr: addr("192.0.2.1")}, 1, syscall.EADDRNOTAVAIL},
		{Config{Addr: linktest.Loopback(11)}, 1, syscall.EADDRINUSE},
		{Config{Interface: "nosuch0"}, 1, link.ErrNoDevice},
	} {
		var e *errs.Error
		if p, err := Open(test.c); !errors.Is(err, test.want) || !errors.As(err, &e) {
			t.Errorf("%+v: %v, %v, want %v", test.c, p, err, test.want)
		}
	}
	if _, err := OpenQueues(Config{Addr: linktest.Loopback(12)}, 0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("no queue: %v", err)
	}
}
