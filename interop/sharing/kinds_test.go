//go:build linux

package sharing

import (
	"net/netip"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/rdmacm"
)

// Processes whose devices have several queues, or are polled by the program, share an address with
// others.
func TestKinds(t *testing.T) {
	each(t, func(t *testing.T, a, b side) {
		var all []*process
		for _, s := range []side{a, b} {
			all = append(all, s.member(t), s.member(t, func(o *Open) { o.Queues = 3 }), s.member(t, func(o *Open) { o.Polled = true }),
				s.member(t, func(o *Open) { o.Queues, o.Polled = 2, true }))
		}
		for i, p := range all {
			p.echo(firstPort + uint16(i))
		}
		report(t, all, func(int, *process) (to []string) {
			for _, q := range all {
				to = append(to, q.at())
			}
			return to
		}, 2)
		all[1].kill() // its device has several queues
		q := a.member(t, func(o *Open) { o.Queues = 3 })
		q.echo(firstPort + 100)
		all[4].exchange(Exchange{To: []string{q.at()}, Conns: 6, Messages: 5, Size: 5000})
	})
}

// Pick asks for ports of rdma_cm.
type Pick struct {
	Addr  netip.Addr // of the listeners; unspecified: any
	Count int
}

// Picked is the result of Pick.
type Picked struct {
	Failure
	Ports []uint16
}

// Pick makes listeners of rdma_cm with port 0, for which rdmacm picks ports.
func (m *Member) Pick(a Pick, r *Picked) error {
	r.Failure = failure(func() error {
		if m.host == nil {
			h, err := rdmacm.NewHost(m.dev)
			if err != nil {
				return err
			}
			m.host = h
		}
		for range a.Count {
			id, err := m.host.CreateID(nil, rdmacm.TCP, nil)
			if err != nil {
				return err
			}
			if err := id.Bind(netip.AddrPortFrom(a.Addr, 0)); err != nil {
				return err
			}
			if err := id.Listen(1); err != nil {
				return err
			}
			r.Ports = append(r.Ports, id.SrcPort())
		}
		return nil
	}())
	return nil
}

// Package rdmacm picks different ports in different processes.
func TestPickedPorts(t *testing.T) {
	t.Parallel()
	a := loopback()
	taken := map[uint16]int{}
	for _, p := range a.members(t, 4) {
		for _, addr := range []netip.Addr{a.open.Addr, netip.IPv4Unspecified()} {
			var r Picked
			if p.call("Pick", Pick{addr, 100}, &r); r.Text != "" {
				t.Fatalf("process %d: %s", p.pid, r.Text)
			}
			for _, port := range r.Ports {
				if taken[port] != 0 && taken[port] != p.pid {
					t.Errorf("processes %d and %d both picked port %d", taken[port], p.pid, port)
				}
				taken[port] = p.pid
			}
		}
	}
}

// Register registers memory n times, and returns the keys.
func (m *Member) Register(n int, keys *[]roce.RKey) error {
	pd, b := m.dev.AllocPD(), make([]byte, 1)
	for range n {
		r, err := pd.RegMR(b, roce.RemoteRead)
		if err != nil {
			return err
		}
		*keys = append(*keys, r.RKey())
	}
	return nil
}

// No two processes on an address have the same memory keys. Independent random keys would collide
// about a hundred times.
func TestKeys(t *testing.T) {
	each(t, func(t *testing.T, a, _ side) {
		owner := map[roce.RKey]int{}
		for _, p := range a.members(t, 3) {
			var keys []roce.RKey
			p.call("Register", 20000, &keys)
			for _, k := range keys {
				const variant = 1<<8 - 1
				if other, taken := owner[k&^variant]; taken {
					t.Fatalf("key %v of process %d: process %d has one of the same number", k, p.pid, other)
				}
				owner[k&^variant] = p.pid
			}
		}
	})
}
