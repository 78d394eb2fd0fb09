package scenario_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
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

// TestSplitMADsStrange: packets to QP 1 that the device drops before it looks at the queue pair make it separate management
// datagrams, too: the kernel takes them for such, so a flood of them must not fill the queue of the data.
func TestSplitMADsStrange(t *testing.T) {
	for _, c := range []struct {
		name, from string
		op         bth.Opcode
		bytes      int
	}{
		{"unknown operation", "10.0.0.66", 0xBF, 64},
		{"too short", "10.0.0.66", bth.UDSendOnly, bth.BTHLen + bth.ICRCLen},
		{"own address", "10.0.0.1", bth.UDSendOnly, 64},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newNetwork(t)
				config := n.config("10.0.0.1")
				p := newSplitPort(config.Ports[0])
				config.Ports[0] = p
				d := n.open(config)
				evil := newAttacker(n, d)
				evil.send(evil.path(c.from), c.bytes, func(b []byte) { bth.PutBTH(b, c.op, 0, 0, bth.DefaultPKey, bth.QPNGSI, 1) })
				time.Sleep(time.Millisecond)
				if got := p.splits.Load(); got != 1 {
					t.Errorf("after %+v the port was told %d times to separate management datagrams, want 1", d.Counters().Drops, got)
				}
			})
		})
	}
}
