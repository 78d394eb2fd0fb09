package verify

import (
	"strings"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
)

// TestTap: a test fails when a packet breaks a rule, at the port that sends it and at the port that receives it, and not before.
func TestTap(t *testing.T) {
	hub := mem.NewHub(mem.Config{MTU: 1500})
	var at [2]recorder
	var ports [2]link.Port
	for i := range ports {
		p, err := hub.Port(addresses[i].String(), frame.MAC{2, 0, 0, 0, 0, byte(i)})
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = Tap(&at[i], p, Config{})
		defer ports[i].Close()
	}
	s := emptyScene(t)
	send := func(f bth.Fields) {
		t.Helper()
		body := f.Append(nil)
		room, crc, ok := ports[active].Begin(s.paths[active], len(body)+bth.ICRCLen)
		if !ok {
			t.Fatal("no room to send")
		}
		copy(room, body)
		bth.PutICRC(room[len(body):], crc.UpdateBTH(room).Update(room[bth.BTHLen:len(body)]))
		ports[active].Commit()
		if err := ports[active].Flush(); err != nil {
			t.Fatal(err)
		}
		var fr [4]link.Frame
		if n, err := ports[passive].Recv(fr[:]); n != 1 || err != nil {
			t.Fatalf("received %d frames, %v", n, err)
		}
	}
	send(s.request("first", active, 0, bth.RCSendFirst, bth.Fields{Payload: bytesOf(mtu)}).f)
	if len(at[0].failures)+len(at[1].failures) > 0 {
		t.Fatalf("a right packet: %v, %v", at[0].failures, at[1].failures)
	}
	send(s.request("only", active, 1, bth.RCSendOnly, bth.Fields{}).f)
	for i := range at {
		if f := at[i].failures; len(f) != 1 || !strings.Contains(f[0], "order-message (IBTA 9.7.4.1.2), frame 1, 2, ") {
			t.Errorf("end %d: %q", i, f)
		}
	}
}
