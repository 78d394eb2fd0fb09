// Package mem is a network inside the process: a switch with any number of ports for whole Ethernet
// frames. It delivers frames by destination MAC address, and multicast and broadcast to every other
// port; each port has a bounded receive queue. It drops a frame only if the queue is full, and
// neither reorders nor delays frames; wrap ports in link/fault for a worse network.
//
// Delivery happens in the sender's Flush, in order, so a test that drives both
// ends from one goroutine is deterministic. Waiting uses channels and the
// runtime's timers only: ports work inside testing/synctest bubbles.
package mem

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// Config describes a switch. The zero value is a switch with an MTU of 1500 and
// queues of 1024 frames that drop when full.
type Config struct {
	// MTU is the largest L3 packet in bytes, at least 576; 0 means 1500.
	MTU int

	// Queue is the number of frames that a port holds for its receiver; 0
	// means 1024.
	Queue int

	// Backpressure makes a sender keep its frames while the receiver's queue is
	// full, instead of dropping them: its Flush leaves them queued, its Begin
	// then refuses, and its Wait returns when there is room again. Multicast
	// frames are dropped in any case.
	Backpressure bool
}

// Hub is the switch. Its methods may be called from any goroutine.
type Hub struct {
	cfg  Config
	size int // largest frame: MTU, Ethernet header, VLAN tag
	pool pool

	mu      sync.Mutex // guards changes of table
	table   atomic.Pointer[table]
	starved atomic.Int32 // ports whose frames wait for room
}

// table is the forwarding table, replaced as a whole when ports are added or
// removed.
type table struct {
	byMAC    map[frame.MAC]*station
	stations []*station // in the order they were plugged in
}

// station is the owner of one MAC address: a port, or several ports that are
// the queues of one card.
type station struct {
	mac   frame.MAC
	ports []*Port
	steer func(data []byte) int
}

// port returns the queue for a frame.
func (s *station) port(data []byte) *Port {
	if len(s.ports) == 1 {
		return s.ports[0]
	}
	return s.ports[uint(s.steer(data))%uint(len(s.ports))]
}

// NewHub returns a switch without ports.
func NewHub(c Config) *Hub {
	c.MTU, c.Queue = max(cmp.Or(c.MTU, 1500), 576), max(cmp.Or(c.Queue, 1024), 1)
	h := &Hub{cfg: c, size: c.MTU + 14 + 4}
	h.pool.size = h.size
	h.table.Store(&table{byMAC: map[frame.MAC]*station{}})
	return h
}

// Pair returns two ports on a new switch, with the MAC addresses
// 02:00:00:00:00:01 and 02:00:00:00:00:02.
func Pair(c Config) (a, b *Port) {
	h := NewHub(c)
	// Neither can fail: the addresses are valid and differ.
	a, _ = h.Port("a", frame.MAC{2, 0, 0, 0, 0, 1})
	b, _ = h.Port("b", frame.MAC{2, 0, 0, 0, 0, 2})
	return a, b
}

// Port adds a port. Its MAC address must be unicast, not zero, and not in use
// on this switch. The name is for people.
func (h *Hub) Port(name string, mac frame.MAC) (*Port, error) {
	ports, err := h.Queues(name, mac, 1, nil)
	if err != nil {
		return nil, err
	}
	return ports[0], nil
}

// Queues adds a card with n queues: n ports that share a MAC address. steer
// returns the queue of a frame, modulo n; several senders may call it at the
// same time, and it must not keep the frame. The address is freed when all
// ports are closed; frames for a closed port are dropped.
func (h *Hub) Queues(name string, mac frame.MAC, n int, steer func(data []byte) int) ([]*Port, error) {
	fail := func(format string, a ...any) ([]*Port, error) {
		return nil, link.Fail("mem", "open", name, nil, fmt.Errorf(format, a...), "")
	}
	switch {
	case mac == frame.MAC{} || mac[0]&1 != 0:
		return fail("%v is not a unicast MAC address", mac)
	case n < 1:
		return fail("%d queues asked for, need at least 1", n)
	case n > 1 && steer == nil:
		return fail("%d queues need a steering function", n)
	}
	s := &station{mac: mac, steer: steer}
	for i := range n {
		p := newPort(h, s, name)
		if n > 1 {
			p.info.Mode = fmt.Sprintf("queue %d of %d", i, n)
		}
		s.ports = append(s.ports, p)
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	if h.table.Load().byMAC[mac] != nil {
		return fail("MAC address %v is in use on this switch", mac)
	}
	h.replace(func(old []*station) []*station { return append(old, s) })
	return s.ports, nil
}

// unplug removes a station from the table once all its ports are closed.
func (h *Hub) unplug(s *station) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if slices.ContainsFunc(s.ports, func(p *Port) bool { return !p.closed.Load() }) {
		return
	}
	h.replace(func(old []*station) []*station {
		return slices.DeleteFunc(old, func(o *station) bool { return o == s })
	})
}

// replace installs a changed copy of the table. The caller holds mu.
func (h *Hub) replace(change func([]*station) []*station) {
	old := h.table.Load().stations
	t := &table{byMAC: map[frame.MAC]*station{}, stations: change(slices.Clone(old))}
	for _, s := range t.stations {
		t.byMAC[s.mac] = s
	}
	h.table.Store(t)
}

// feed wakes ports that wait for room, after a queue was drained.
func (h *Hub) feed() {
	if h.starved.Load() == 0 {
		return
	}
	for _, s := range h.table.Load().stations {
		for _, p := range s.ports {
			if p.starved.CompareAndSwap(true, false) {
				h.starved.Add(-1)
				p.Wake()
			}
		}
	}
}
