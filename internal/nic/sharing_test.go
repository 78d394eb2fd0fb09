package nic

import (
	"math/rand/v2"
	"runtime"
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

// shared returns a NIC on an address that it shares, and the neighbours.
func shared(t *testing.T) (*NIC, *neighbours) {
	t.Helper()
	port, err := mem.NewHub(mem.Config{}).Port("p", frame.MAC{2, 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { port.Close() })
	s := new(neighbours)
	n, err := New(Config{Ports: []link.Port{port}, Routes: route.New(route.Config{MAC: port.Info().MAC}), Polled: true, Rand: rand.Uint64, Notify: func(Event) {}, Shared: s})
	if err != nil {
		t.Fatal(err)
	}
	n.startSharing()
	return n, s
}

// Packets that arrived from the network at another process and found no room are counted like those from
// other shards.
func TestSharedOverrun(t *testing.T) {
	n, s := shared(t)
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

// Packets that other processes have sent wait for room, until the device is closed.
func TestSharedWaits(t *testing.T) {
	n, s := shared(t)
	taken := make(chan bool)
	take := func(packets int) {
		for range packets {
			s.take(&share.Packet{Slot: 5, Frame: link.Frame{Data: []byte("no packet")}})
		}
		taken <- true
	}
	const all = 3*inboxLimit + 1
	go take(all)
	for drained := 0; drained < all; {
		n.shards[0].Lock()
		drained += n.shards[0].drainInbox(0)
		n.shards[0].Unlock()
		runtime.Gosched()
	}
	<-taken
	if d := n.Counters(func() {}).Drops; d.Malformed != all || d.Overrun != 0 {
		t.Errorf("%d packets were looked at and %d dropped, want %d and none", d.Malformed, d.Overrun, all)
	}
	go take(inboxLimit + 1)
	close(n.done)
	<-taken
}
