package share

import (
	"testing"

	"github.com/goroce/roce/link"
)

// A process that is stopped delays no packets to others: what waits for it takes no room of theirs.
func TestPassBesideStopped(t *testing.T) {
	d := new(desk)
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
