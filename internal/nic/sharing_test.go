package nic

import (
	"math/rand/v2"
	"testing"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
)

// neighbours stands for other processes on the address of the device.
type neighbours struct {
	share.Shared // no other method is called
	take         func(*share.Packet)
}

func (*neighbours) Slots() []share.Slot    { return []share.Slot{5} }
func (*neighbours) NewOut() share.Outlet   { return nil }
func (*neighbours) Stats() (s share.Stats) { return s }
func (s *neighbours) Receive(take func(*share.Packet)) error {
	s.take = take
	return nil
}

// Packets from other processes that find no room are counted like those from other shards.
func TestSharedOverrun(t *testing.T) {
	port, err := mem.NewHub(mem.Config{}).Port("p", frame.MAC{2, 1})
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	s := new(neighbours)
	n, err := New(Config{Ports: []link.Port{port}, Routes: route.New(route.Config{MAC: port.Info().MAC}), Polled: true, Rand: rand.Uint64, Notify: func(Event) {}, Shared: s})
	if err != nil {
		t.Fatal(err)
	}
	n.startSharing()
	const lost = 3
	for range inboxLimit + lost {
		s.take(&share.Packet{Slot: 5, Frame: link.Frame{Data: []byte("no packet")}, Network: true})
	}
	n.shards[0].drainInbox(0)
	d := n.Counters(func() {}).Drops
	if d.Malformed != inboxLimit || d.Overrun != lost {
		t.Errorf("%d packets were looked at and %d dropped, want %d and %d", d.Malformed, d.Overrun, inboxLimit, lost)
	}
}
