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
	a, _ := netlab.Pair(t, netlab.Config{})
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
	if err := i.Settle(ctx, a.LinkLocal); !errors.Is(err, syscall.EADDRNOTAVAIL) || !errors.Is(err, context.Canceled) {
		t.Errorf("the time is over: %v", err)
	}
	a.Detect(t, 100*time.Millisecond, a.LinkLocal, late)
	if _, err := i.Addrs(); err != nil {
		t.Fatal(err)
	}
	if err := i.Settle(t.Context(), a.LinkLocal); err != nil {
		t.Error(err)
	}
	if addrs, err := i.Addrs(); err != nil || addrs[0] != a.LinkLocal {
		t.Errorf("then addresses %v, %v", addrs, err)
	}
}

// If another host has the address of the default GID, it is no longer in the table, and nobody waits for it.
func TestDuplicate(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	i := open(t, a)
	if err := b.AddAddr(a.LinkLocal, 64); err != nil {
		t.Fatal(err)
	}
	a.Detect(t, 100*time.Millisecond, a.LinkLocal)
	if _, err := i.Addrs(); err != nil {
		t.Fatal(err)
	}
	if err := i.Settle(t.Context(), a.LinkLocal); err != nil {
		t.Error(err)
	}
	if addrs, err := i.Addrs(); err != nil || slices.Contains(addrs, a.LinkLocal) {
		t.Errorf("addresses %v, %v, want them without the duplicate %v", addrs, err, a.LinkLocal)
	}
}

// Without a carrier the kernel does not look for duplicates: nobody waits.
func TestNoCarrier(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	i := open(t, a)
	b.SetUp(t, false)
	a.SetUp(t, false)
	a.SetUp(t, true)
	a.Detect(t, time.Hour, a.LinkLocal)
	if _, err := i.Addrs(); err != nil {
		t.Fatal(err)
	}
	if err := i.Settle(t.Context(), a.LinkLocal); err != nil {
		t.Error(err)
	}
	if err := i.Settle(t.Context(), netip.Addr{}); err != nil {
		t.Errorf("no address: %v", err)
	}
}

// Callers that wait end when the interface is closed or removed.
func TestSettlingEnds(t *testing.T) {
	for what, end := range map[string]func(i *Interface, s *netlab.Side) error{
		"closed":  func(i *Interface, _ *netlab.Side) error { return i.Close() },
		"removed": func(_ *Interface, s *netlab.Side) error { return s.Netlink().LinkDel(s.Link()) },
	} {
		t.Run(what, func(t *testing.T) {
			a, _ := netlab.Pair(t, netlab.Config{})
			i := open(t, a)
			a.Detect(t, time.Hour, a.LinkLocal)
			if _, err := i.Addrs(); err != nil {
				t.Fatal(err)
			}
			done := make(chan error)
			for range 3 {
				go func() { done <- i.Settle(t.Context(), a.LinkLocal) }()
			}
			if err := end(i, a); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		})
	}
}
