package gsi

import (
	"math/rand/v2"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// twoQueues is the address of a process whose device has two queues, and so two slots.
type twoQueues struct{ neighbours }

func (*twoQueues) Slots() []share.Slot               { return []share.Slot{5, 9} }
func (*twoQueues) NewOut() share.Outlet              { return nil }
func (*twoQueues) Receive(func(*share.Packet)) error { return nil }

// The QPN and communication ID of a connection must show the peer that processes share the address. This is
// so for queue pairs on all shards, not only on the first.
func TestNumbersOfManyQueuesMayDivide(t *testing.T) {
	s := new(twoQueues)
	hub := mem.NewHub(mem.Config{})
	queues, err := hub.Queues("p", frame.MAC{2, 1}, 2, func([]byte) int { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	var ports []link.Port
	for _, p := range queues {
		ports = append(ports, p)
	}
	n, err := nic.New(nic.Config{Ports: ports, Routes: route.New(route.Config{MAC: frame.MAC{2, 1}}), Polled: true, Rand: rand.Uint64, Notify: func(nic.Event) {}, Shared: s})
	if err != nil {
		t.Fatal(err)
	}
	class := idsOf(s)
	id := uint32(class.Residue + 77*class.Modulus) // as cm draws them
	table := mr.NewTable(rand.Uint64)
	for i := range n.Shards() {
		var q nic.QP
		q.Init(n.Shard(i), nil, func(nic.EventType) {})
		c, err := cq.New(16, cq.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Create(&q, qp.Config{Type: qp.RC, Memory: table, PD: mr.NewPD(), SendCQ: c, RecvCQ: c, PortMTU: bth.MTU1024}, nil, false, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		if !share.MayDivide(q.Num(), id) {
			t.Errorf("shard %d: queue pair %v (slot %d) with communication ID %#x (slot %d) looks as if nobody shared the address", i, q.Num(), share.SlotOf(q.Num()), id, id%share.Slots)
		}
	}
}
