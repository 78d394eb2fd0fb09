package scenario_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
)

// TestVLANs: packets of another VLAN, or of none, do not reach a device, not even its connection manager, which answers
// every sender.
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
			c.listener = ok(c.server.Listen(context.Background(), ":7471", roce.ListenConfig{}))(t)
			if test.meet {
				c.connect(roce.DialConfig{}, roce.AcceptConfig{})
				return
			}
			_, err := c.client.Dial(within(t, 10*time.Second), serverAddr, roce.DialConfig{})
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
