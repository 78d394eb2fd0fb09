package live

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/internal/tools/dissect"
)

// Each datagram to port 4791 is captured once, at either end of a link and on the loopback interface. Other datagrams are not
// captured.
func TestCapture(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	loopback := netip.MustParseAddr("127.0.0.1")
	for _, tt := range []struct {
		name  string
		at    *netlab.Side
		iface string
		to    netip.Addr
	}{{"sent", a, a.Interface, b.IP4}, {"received", b, b.Interface, b.IP4}, {"received, IPv6", b, b.Interface, b.IP6}, {"loopback", a, "lo", loopback}} {
		t.Run(tt.name, func(t *testing.T) {
			var c *Capture
			var err error
			tt.at.Do(t, func() { c, err = Open(tt.iface) })
			if err != nil {
				t.Fatal(err)
			}
			const datagrams = 5
			a.Do(t, func() { send(t, tt.to, datagrams) })
			n := 0
			err = c.Run(func(p *dissect.Packet) {
				if p.Kind != dissect.Malformed || p.Time.IsZero() { // a datagram of one byte is no RoCE packet
					t.Errorf("%+v", p)
				}
				if n++; n == datagrams {
					c.Close()
				}
			})
			if err != nil || n != datagrams || c.Lost() != 0 {
				t.Errorf("%d packets, %d lost, %v", n, c.Lost(), err)
			}
		})
	}
}

// send sends datagrams to port 4791, and one to another port before each of them.
func send(t *testing.T, to netip.Addr, n int) {
	t.Helper()
	for range n {
		for _, port := range []uint16{4790, 4791} {
			c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, port)))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write([]byte{1}); err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
				t.Error(err)
			}
			c.Close()
		}
	}
}

func TestOpenErrors(t *testing.T) {
	if _, err := Open("nosuch0"); !errors.Is(err, syscall.ENODEV) {
		t.Errorf("%v", err)
	}
}
