package roce_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/netlab"
)

// TestVLANs: devices hear those of their VLAN, and nobody else: not those in none, and
// not by the connection manager, which answers whoever asks.
func TestVLANs(t *testing.T) {
	for _, test := range []struct {
		a, b uint16
		meet bool
	}{{0, 0, true}, {100, 100, true}, {0, 100, false}, {100, 0, false}, {100, 101, false}} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			open := func(addr string, vlan uint16) *roce.Device {
				c := n.config(addr)
				c.VLAN = vlan
				return n.open(c)
			}
			c := &couple{t: t, net: n, server: open("10.0.0.1", test.a), client: open("10.0.0.2", test.b)}
			c.listener = ok(c.server.Listen(context.Background(), ":7471", nil))(t)
			if test.meet {
				c.connect(nil, nil)
				return
			}
			_, err := c.client.Dial(within(t, 10*time.Second), serverAddr, nil)
			wantErr(t, "Dial into another VLAN", err, context.DeadlineExceeded)
			if d := c.server.Counters().Drops; d.NotForUs == 0 {
				t.Errorf("nothing was dropped: %+v", d)
			}
		})
	}
	n := newNetwork(t)
	c := n.config("10.0.0.1")
	c.VLAN = 4095
	_, err := roce.Open(c)
	wantErr(t, "VLAN 4095", err, syscall.EINVAL)
}

// TestInterfaceVLAN: a peer that tags its frames does not reach a device on the untagged
// interface.
func TestInterfaceVLAN(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		a, b := netlab.Pair(t, netlab.Config{})
		if driver == "udp" {
			a.Do(t, func() {
				_, err := roce.OpenInterface(a.Interface, &roce.InterfaceConfig{Driver: driver, VLAN: 100})
				wantErr(t, "sockets in a VLAN", err, syscall.EINVAL)
			})
			return
		}
		server, tagged := openOn(t, b, roce.InterfaceConfig{Driver: driver}), openOn(t, a, roce.InterfaceConfig{Driver: driver, VLAN: 100})
		ok(server.Listen(patient(t), ":7471", nil))(t)
		_, err := tagged.Dial(within(t, 300*time.Millisecond), b.IP4.String()+":7471", nil)
		wantErr(t, "Dial from a VLAN", err, context.DeadlineExceeded)
		if c := server.Counters(); c.RcvdPkts != 0 {
			t.Errorf("%d packets were taken", c.RcvdPkts)
		}
	})
}
