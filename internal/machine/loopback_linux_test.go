package machine

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/goroce/roce/internal/netlab"
)

// The loopback interface itself is a device, with both its addresses.
func TestOpenLoopback(t *testing.T) {
	a, _ := netlab.Pair(t, netlab.Config{}) // no other program uses the loopback there
	a.Do(t, func() {
		m := New(EnvFlags{Devs: []string{"lo"}, Flags: Flags{Link: linkUDP}})
		list, err := m.List()
		if err != nil || !slices.Contains(list[0].Addrs, netip.MustParseAddr("127.0.0.1")) {
			t.Fatalf("%+v, %v", list, err)
		}
		d, err := m.Open("roce0", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		for i, g := range d.GIDs() {
			if g.Addr() != list[0].Addrs[i] {
				t.Errorf("GID %d is %v, the list says %v", i, g.Addr(), list[0].Addrs[i])
			}
		}
	})
}
