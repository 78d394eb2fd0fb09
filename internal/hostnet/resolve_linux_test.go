package hostnet

import (
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/goroce/roce/internal/netlab"
)

// TestForgottenNeighbour: when the kernel forgets a neighbour that it is looking for, as it
// does when the carrier goes for a moment, it is asked again.
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
			t.Fatalf("nobody is looked for: %+v, %v", e, err)
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
