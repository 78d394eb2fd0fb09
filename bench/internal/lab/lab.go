//go:build linux

// Package lab makes the network of a benchmark: two network namespaces with the process id in
// their names. A veth pair for each contender joins them, so that no contender sees the packets of
// another. The processes at either end run on one processor each.
//
//	namespace roce-<pid>-a (core 0)           namespace roce-<pid>-b (core 1)
//	  10.88.n.1  raw1500  <---- veth ---->  raw1500  10.88.n.2
package lab

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/ethtool"
	"github.com/goroce/roce/interop/netns"
)

// Lab is the two namespaces and their veth pairs.
type Lab struct {
	Cores [2]int
	sides netns.Pair
	pairs map[string]*Pair
}

// Pair is a veth pair, one end of it in each namespace.
type Pair struct {
	Name string // of either interface
	Ends [2]End
}

// End is an end of a pair.
type End struct {
	IP  netip.Addr
	MAC frame.MAC
}

// New makes the namespaces. It removes namespaces of earlier runs that were killed.
func New(ctx context.Context) (*Lab, error) {
	netns.Sweep(ctx)
	cores, err := ChooseCores()
	if err != nil {
		return nil, err
	}
	l := &Lab{Cores: cores, pairs: make(map[string]*Pair)}
	for i, name := range []string{"a", "b"} {
		if l.sides[i], err = netns.New(ctx, "bench-"+name); err != nil {
			l.Close()
			return nil, err
		}
	}
	return l, nil
}

// Close removes the namespaces and the veth pairs in them.
func (l *Lab) Close() { l.sides.Remove() }

// Pair returns the pair with that name and MTU. It makes the pair if there is none. Without
// offloads its interfaces do not segment, merge, or omit checksums.
func (l *Lab) Pair(ctx context.Context, name string, mtu int, offloads bool) (*Pair, error) {
	key := fmt.Sprintf("%s%d", name, mtu)
	if p := l.pairs[key]; p != nil {
		return p, nil
	}
	n := byte(len(l.pairs))
	p := &Pair{Name: key}
	for i := range p.Ends {
		p.Ends[i] = End{IP: netip.AddrFrom4([4]byte{10, 88, n, byte(i + 1)}), MAC: frame.MAC{2, 0x88, 0, 0, n, byte(i + 1)}}
	}
	a, b := l.sides[0], l.sides[1]
	err := a.IP(ctx, fmt.Sprintf("link add %s mtu %d address %v type veth peer name %s mtu %d address %v netns %s",
		key, mtu, p.Ends[0].MAC, key, mtu, p.Ends[1].MAC, b))
	if err != nil {
		return nil, err
	}
	for i, side := range l.sides {
		peer := p.Ends[1-i]
		if err := side.IP(ctx, fmt.Sprintf("addr add %v/24 dev %s", p.Ends[i].IP, key), fmt.Sprintf("link set %s up", key),
			fmt.Sprintf("neigh replace %v lladdr %v dev %s nud permanent", peer.IP, peer.MAC, key)); err != nil {
			return nil, err
		}
		if !offloads {
			if err := side.Do(func() error { return ethtool.DisableOffloads(key) }); err != nil {
				return nil, err
			}
		}
	}
	if err := l.sides.AwaitCarrier(ctx, key); err != nil {
		return nil, err
	}
	l.pairs[key] = p
	return p, nil
}
