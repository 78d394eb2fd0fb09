//go:build linux

// Package links opens the drivers that the benchmark measures.
package links

import (
	"fmt"
	"net/netip"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/result"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/raw"
	"github.com/goroce/roce/link/udp"
	"github.com/goroce/roce/xdp"
)

var openers = map[string]func(harness.Spec) (link.Port, error){
	"raw": func(s harness.Spec) (link.Port, error) {
		c := raw.Config{Interface: s.Interface}
		if s.Kind == result.Scaling {
			c.SrcPort = onePort
		}
		return raw.Open(c)
	},
	"udp": func(s harness.Spec) (link.Port, error) {
		return udp.Open(udp.Config{Interface: s.Interface, Shared: s.Shared})
	},
	"xdp": func(s harness.Spec) (link.Port, error) {
		c := xdp.Config{Interface: s.Interface, Addrs: []netip.Addr{s.Local.IP}}
		if s.Kind == result.Scaling {
			c.RingSize = manyRing
		}
		return xdp.Open(c)
	},
}

// onePort is the source port of all queue pairs if there are many. Packets of different queue pairs then share
// super-packets, as on UDP sockets.
const onePort = 0xC000

// manyRing is the size of the AF_XDP rings for many queue pairs, which together have more packets
// in flight than the default size allows.
const manyRing = 4096

// OpenShards opens a Port for each shard of a Spec's device.
func OpenShards(s harness.Spec) ([]link.Port, error) {
	if s.Shards > 1 {
		return udp.OpenQueues(udp.Config{Interface: s.Interface, Shared: s.Shared}, s.Shards)
	}
	p, err := Open(s)
	return []link.Port{p}, err
}

// Open opens the driver of a Spec on its interface. For measurements of loss it wraps the driver, even if the loss is 0;
// the wrapper drops sent packets.
func Open(s harness.Spec) (link.Port, error) {
	open := openers[s.Link]
	if open == nil {
		return nil, fmt.Errorf("unknown link %q", s.Link)
	}
	p, err := open(s)
	if err != nil || s.Kind != result.Loss {
		return p, err
	}
	seed := uint64(1)
	if s.Active {
		seed = 2
	}
	return fault.Wrap(p, fault.Config{Seed: seed, Tx: fault.Rates{Loss: s.Loss}})
}
