package hostnet

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/netlab"
)

func TestInterface(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	var i *Interface
	a.Do(t, func() {
		var err error
		if i, err = Open(a.Interface); err != nil {
			t.Fatal(err)
		}
		if _, err := Open("nosuch0"); !errors.Is(err, syscall.ENODEV) {
			t.Errorf("interface that does not exist: %v", err)
		}
	})
	defer i.Close()
	addrs, err := i.Addrs()
	if want := []netip.Addr{a.LinkLocal, a.IP4, a.IP6}; err != nil || !slices.Equal(addrs, want) {
		t.Errorf("addresses %v, %v, want %v", addrs, err, want)
	}
	for _, pair := range [][2]netip.Addr{{a.IP4, b.IP4}, {a.IP6, b.IP6}, {a.LinkLocal, b.LinkLocal}} {
		n, err := i.Resolve(t.Context(), pair[0], pair[1])
		if want := (Neighbour{b.MAC, 64}); err != nil || n != want {
			t.Errorf("resolve %v: %v, %v, want %v", pair[1], n, err, want)
		}
	}
	if _, err := i.Resolve(t.Context(), a.IP4, netip.MustParseAddr("203.0.113.1")); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("no route: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := i.Resolve(ctx, a.IP4, a.IP4.Prev().Next().Next().Next().Next()); !errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("dead neighbour: %v", err)
	}
}

func TestGIDOrder(t *testing.T) {
	mac := frame.MAC{0x52, 0x54, 0, 0, 0, 0x0a}
	a := func(s string) netip.Addr { return netip.MustParseAddr(s) }
	got := gidOrder(mac, []netip.Addr{a("10.0.0.1"), a("127.0.0.1"), a("fd00::1"), a("fe80::5054:ff:fe00:a")})
	if want := []netip.Addr{a("fe80::5054:ff:fe00:a"), a("10.0.0.1"), a("fd00::1")}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
