package share

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/goroce/roce/link"
)

// A stopped process does not delay packets to others: the packets that wait for it take no room of other
// sockets.
func TestPassBesideStopped(t *testing.T) {
	d := new(fakeMedium)
	k := key(t)
	a, b, stopped := join(t, k, 1, d), join(t, k, 1, d), join(t, k, 2, d)
	if err := a.Receive(func(*Packet) {}); err != nil {
		t.Fatal(err)
	}
	packets := make(chan struct{}, 1)
	if err := b.Receive(func(p *Packet) { packets <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	out := a.NewOut()
	for range maxParcels {
		for _, s := range stopped.Slots() {
			out.Add(s, &link.Frame{Data: make([]byte, maxDatagram/2)}, false)
			out.Flush()
		}
	}
	out.Add(b.Slots()[0], &link.Frame{Data: []byte("x")}, false)
	out.Flush()
	eventually(t, "the packet arrives", func() bool {
		select {
		case <-packets:
			return true
		default:
			return false
		}
	})
}

// A burst of small packets to a process that does not read for a while is not lost, and keeps its order.
func TestPassBurst(t *testing.T) {
	d := new(fakeMedium)
	k := key(t)
	a, b := join(t, k, 1, d), join(t, k, 1, d)
	a.courier.patience = time.Hour
	if err := a.Receive(func(*Packet) {}); err != nil {
		t.Fatal(err)
	}
	out, to := a.NewOut(), b.Slots()[0]
	const burst = 5000
	data := make([]byte, 100)
	for i := range uint32(burst) {
		binary.BigEndian.PutUint32(data, i)
		out.Add(to, &link.Frame{Data: data}, false)
		out.Flush() // one by one, as a program posts them
	}
	got := make(chan uint32, burst)
	if err := b.Receive(func(p *Packet) { got <- binary.BigEndian.Uint32(p.Frame.Data) }); err != nil {
		t.Fatal(err)
	}
	for i := range uint32(burst) {
		if n := <-got; n != i {
			t.Fatalf("packet %d is %d", i, n)
		}
	}
	eventually(t, "all packets are counted", func() bool { return a.Stats() == Stats{Sent: burst} })
}

// The courier keeps a bounded number of packets for a process that never reads, and drops the rest.
func TestPassBound(t *testing.T) {
	d := new(fakeMedium)
	k := key(t)
	a, b := join(t, k, 1, d), join(t, k, 1, d)
	a.courier.patience = time.Hour
	out, to := a.NewOut(), b.Slots()[0]
	const size = 1000
	sent := uint64(3 * maxParcels * maxDatagram / size)
	for range sent {
		out.Add(to, &link.Frame{Data: make([]byte, size)}, false)
		out.Flush()
	}
	kept := 0
	for _, p := range a.courier.queues[to] {
		kept += len(p.data)
	}
	if limit := maxParcels * maxDatagram; kept > limit || kept < limit*9/10 {
		t.Errorf("%d bytes wait, want nearly %d", kept, limit)
	}
	if s := a.Stats(); s.Dropped == 0 || s.Dropped >= sent {
		t.Errorf("%+v of %d", s, sent)
	}
}

// Crowded is true for a process that reads slowly, until it has caught up. It is false for a process
// that reads nothing for some time.
func TestPassCrowded(t *testing.T) {
	d := new(fakeMedium)
	k := key(t)
	a, b := join(t, k, 1, d), join(t, k, 1, d)
	a.courier.patience = time.Hour
	if err := a.Receive(func(*Packet) {}); err != nil {
		t.Fatal(err)
	}
	out, to := a.NewOut(), b.Slots()[0]
	sent := 0
	add := func() {
		out.Add(to, &link.Frame{Data: make([]byte, maxDatagram/2)}, false)
		out.Flush()
		sent++
	}
	for i := 0; !out.Crowded(to); i++ {
		if i > 3*maxParcels {
			t.Fatal("it is never crowded")
		}
		add()
	}
	if s := a.Stats(); s.Dropped != 0 {
		t.Errorf("Crowded was false until %d packets were dropped", s.Dropped)
	}
	eventually(t, "it is stalled", func() bool { return !out.Crowded(to) })
	add()
	got := make(chan struct{}, 10*maxParcels)
	if err := b.Receive(func(*Packet) { got <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	for range sent {
		<-got
	}
	eventually(t, "it is no longer stalled", func() bool { return !a.courier.stalled[to].Load() })
	eventually(t, "it is not crowded, for everything has arrived", func() bool { return !out.Crowded(to) })
}

// Packets that were sent before Close arrive.
func TestPassClosing(t *testing.T) {
	d := new(fakeMedium)
	k := key(t)
	a, b := join(t, k, 1, d), join(t, k, 1, d)
	if err := a.Receive(func(*Packet) {}); err != nil {
		t.Fatal(err)
	}
	out, to := a.NewOut(), b.Slots()[0]
	const burst = 1000
	for range burst {
		out.Add(to, &link.Frame{Data: make([]byte, 100)}, false)
		out.Flush()
	}
	got := make(chan struct{}, burst)
	if err := b.Receive(func(*Packet) { got <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	for range burst {
		<-got
	}
}
