package hostnet

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/netlab"
)

// TestAnnounce: neighbours that know an address of ours learn its new Ethernet address, even if their entry is
// fresh.
func TestAnnounce(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	i, peer := open(t, a), open(t, b)
	second := netip.MustParseAddr("10.88.0.77")
	if err := a.AddAddr(second, 24); err != nil {
		t.Fatal(err)
	}
	ours := []netip.Addr{a.IP4, second, a.IP6, a.LinkLocal}
	for _, addr := range ours {
		setNeighbour(t, b, addr, a.MAC, netlink.NUD_REACHABLE)
	}
	moved := frame.MAC{2, 9, 9, 9, 9, 9}
	if err := a.Netlink().LinkSetHardwareAddr(a.Link(), moved[:]); err != nil {
		t.Fatal(err)
	}
	if err := i.Announce(); err != nil {
		t.Fatal(err)
	}
	for _, addr := range ours {
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			e, err := peer.known(addr)
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("%v: %+v, %v", addr, e, err)
			}
			if e.mac == moved {
				break
			}
		}
	}
}
