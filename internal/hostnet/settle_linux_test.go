package hostnet

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce/internal/netlab"
)

// The default GID is in the table while the kernel still looks for duplicates of its address; other such addresses are not.
func TestSettling(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	i := open(t, a)
	late := netip.MustParseAddr("fe80::7")
	a.Detect(t, time.Hour, a.LinkLocal, late)
	addrs, err := i.Addrs()
	if err != nil || len(addrs) == 0 || addrs[0] != a.LinkLocal || slices.Contains(addrs, late) {
		t.Errorf("addresses %v, %v, want %v first, and not %v", addrs, err, a.LinkLocal, late)
	}
	if err := i.Settle(t.Context(), a.IP6); err != nil {
		t.Errorf("an address that is not being checked: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := i.Settle(ctx, a.LinkLocal); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("the time is over: %v", err)
	}
	if err := b.AddAddr(late, 64); err != nil { // now it is a duplicate
		t.Fatal(err)
	}
	a.Detect(t, 100*time.Millisecond, a.LinkLocal, late)
	for _, addr := range []netip.Addr{a.LinkLocal, late} {
		if err := i.Settle(t.Context(), addr); err != nil {
			t.Errorf("%v: %v", addr, err)
		}
	}
	if addrs, err := i.Addrs(); err != nil || slices.Contains(addrs, late) || !slices.Contains(addrs, a.LinkLocal) {
		t.Errorf("then addresses %v, %v, want %v, and not the duplicate %v", addrs, err, a.LinkLocal, late)
	}
}
