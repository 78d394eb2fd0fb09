package netlab

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// Detect replaces IPv6 addresses of the interface by equal ones for which the kernel looks for duplicates, for about as long as d. Until
// then they are tentative, as those of an interface that has just come up.
func (s *Side) Detect(t testing.TB, d time.Duration, addrs ...netip.Addr) {
	t.Helper()
	for _, set := range [][2]string{
		{"conf/%s/accept_dad", "1"}, {"conf/%s/dad_transmits", "1"}, {"conf/%s/router_solicitation_delay", "0"}, {"neigh/%s/retrans_time_ms", fmt.Sprint(d.Milliseconds())},
	} {
		s.Sysctl(t, "net/ipv6/"+fmt.Sprintf(set[0], s.Interface), set[1])
	}
	for _, addr := range addrs {
		at := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(addr, 64))}
		s.nl.AddrDel(s.link, at) // unless it is new
		if err := s.nl.AddrAdd(s.link, at); err != nil {
			t.Fatalf("netlab: add address %v: %v", addr, err)
		}
	}
}
