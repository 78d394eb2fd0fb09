package hostnet

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/netlab"
)

// TestForgottenNeighbour: if the kernel forgets a neighbour that it is looking for, as when the carrier is lost for a
// moment, Resolve asks again.
func TestForgottenNeighbour(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	i := open(t, a)
	addrs, err := b.Netlink().AddrList(b.Link(), netlink.FAMILY_V4)
	if err != nil || len(addrs) != 1 {
		t.Fatalf("%v, %v", addrs, err)
	}
	if err := b.Netlink().AddrDel(b.Link(), &addrs[0]); err != nil { // so that it does not answer
		t.Fatal(err)
	}
	found := make(chan error, 1)
	go func() {
		n, err := i.Resolve(t.Context(), a.IP4, b.IP4)
		if err == nil && n.MAC != b.MAC {
			t.Errorf("resolved to %v", n.MAC)
		}
		found <- err
	}()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		e, err := i.known(b.IP4)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the kernel does not look for the neighbour: %+v, %v", e, err)
		}
		if e.state == netlink.NUD_INCOMPLETE {
			break
		}
	}
	if err := a.Netlink().LinkSetDown(a.Link()); err != nil { // forgets all
		t.Fatal(err)
	}
	if err := a.Netlink().LinkSetUp(a.Link()); err != nil {
		t.Fatal(err)
	}
	if err := b.AddAddr(b.IP4, 24); err != nil {
		t.Fatal(err)
	}
	if err := <-found; err != nil {
		t.Error(err)
	}
}

// TestRefusingRoute: the error of a route that refuses packets says so.
func TestRefusingRoute(t *testing.T) {
	a, _ := netlab.Pair(t, netlab.Config{})
	i := open(t, a)
	for n, c := range []struct {
		kind int
		want error
		text string
	}{
		{unix.RTN_BLACKHOLE, syscall.EINVAL, "dropped by a blackhole route of this host"},
		{unix.RTN_PROHIBIT, syscall.EACCES, "prohibited by a route of this host"},
		{unix.RTN_UNREACHABLE, syscall.EHOSTUNREACH, "unreachable by a route of this host"},
	} {
		to := netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + n)})
		r := &netlink.Route{Dst: &net.IPNet{IP: to.AsSlice(), Mask: net.CIDRMask(32, 32)}, Type: c.kind}
		if err := a.Netlink().RouteAdd(r); err != nil {
			t.Fatal(err)
		}
		_, err := i.Route(a.IP4, to)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v, want %v and %q", err, c.want, c.text)
		}
	}
}
