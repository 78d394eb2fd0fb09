package link_test

import (
	"net/netip"
	"testing"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/link/pcap"
)

// choosy is a Port that can select the addresses that it receives.
type choosy struct {
	link.Port
	addrs []netip.Addr
}

func (c *choosy) SetAddrs(addrs []netip.Addr) error { c.addrs = addrs; return nil }

// TestAs: As finds an ability of the driver behind all wrappers.
func TestAs(t *testing.T) {
	hub := mem.NewHub(mem.Config{})
	plain, err := hub.Port("a", frame.MAC{2, 5: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, ok := link.As[link.Addressed](plain); ok {
		t.Error("a port in the process is Addressed")
	}
	driver := &choosy{Port: plain}
	file, err := pcap.Create(t.TempDir()+"/x.pcap", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p := link.Port(driver)
	for range 2 {
		captured, err := pcap.Wrap(p, file, pcap.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if p, err = fault.Wrap(captured, fault.Config{}); err != nil {
			t.Fatal(err)
		}
	}
	a, ok := link.As[link.Addressed](p)
	if !ok {
		t.Fatal("not found")
	}
	a.SetAddrs([]netip.Addr{{}})
	if len(driver.addrs) != 1 {
		t.Error("found something else")
	}
	if q, ok := link.As[*choosy](p); !ok || q != driver {
		t.Error("the type itself is not found")
	}
}
