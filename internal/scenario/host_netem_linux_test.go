package scenario_test

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/goroce/roce/internal/netlab"
)

// TestNetem: data arrive whole over a network in which the kernel delays, loses, reorders and duplicates
// packets, in both directions.
func TestNetem(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		t.Parallel() // it waits most of the time
		net := netlab.NewSwitch(t, netlab.Config{})
		x, ports := net.Host(t, 1, 1)
		y, more := net.Host(t, 2, 1)
		d := openTwo(t, driver, x[0], y[0])
		for _, n := range []struct {
			name string
			netlink.NetemQdiscAttrs
		}{
			{"delay", netlink.NetemQdiscAttrs{Latency: 2000, Jitter: 1000}},
			{"loss", netlink.NetemQdiscAttrs{Loss: 3}},
			{"reorder", netlink.NetemQdiscAttrs{Latency: 2000, ReorderProb: 70}},
			{"copies", netlink.NetemQdiscAttrs{Duplicate: 20}},
			{"all", netlink.NetemQdiscAttrs{Latency: 1000, Jitter: 1000, Loss: 1, ReorderProb: 50, Duplicate: 5}},
		} {
			t.Run(n.name, func(t *testing.T) {
				for _, p := range append(ports, more...) {
					p.Netem(t, n.NetemQdiscAttrs)
				}
				d.through(t, func(*busyPairs) {})
			})
		}
	})
}
