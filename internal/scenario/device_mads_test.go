package scenario_test

import (
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link/fault"
)

// TestSplitMADs: a device makes its driver separate management datagrams when it first sends or receives one, once. The
// port may be wrapped.
func TestSplitMADs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		var ports []splitPort
		open := func(addr string) *roce.Device {
			c := n.config(addr)
			p := newSplitPort(c.Ports[0])
			ports = append(ports, p)
			c.Ports[0] = ok(fault.Wrap(p, fault.Config{}))(t)
			return n.open(c)
		}
		server, client := open("10.0.0.1"), open("10.0.0.2")
		want := func(what string, splits int64) {
			t.Helper()
			for i, p := range ports {
				if got := p.splits.Load(); got != splits {
					t.Errorf("%s: port %d was told %d times to separate management datagrams, want %d", what, i, got, splits)
				}
			}
		}
		a, b := newPeer(t, server, 100), newPeer(t, client, 100)
		connect(t, a, b)
		b.recv(0, 100)
		a.post(roce.Send, 0, 100, b, 0)
		a.wait()
		b.wait()
		want("data", 0)
		for range 2 {
			_, err := client.Dial(t.Context(), "10.0.0.1:7174", roce.DialConfig{})
			wantErr(t, "Dial", err, syscall.ECONNREFUSED)
			want("a refused request", 1)
		}
	})
}
