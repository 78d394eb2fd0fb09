package machine

import (
	"net/netip"
	"testing"
)

func TestFindInterface(t *testing.T) {
	for _, a := range []string{"127.0.0.1", "192.0.2.77"} {
		if name, err := findInterface(netip.MustParseAddr(a), netip.Addr{}); err == nil {
			t.Errorf("%v is found on interface %s, want an error", a, name)
		}
	}
	if name, err := findInterface(netip.Addr{}, netip.MustParseAddr("127.0.0.1")); err == nil {
		t.Errorf("the route to the loopback is by interface %s, want an error", name)
	}
}
