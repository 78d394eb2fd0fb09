package udp

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// TestEnvelopes: every message gets the envelope of its sender, also if two senders have the same
// slot of the cache, and the messages of a batch do not share a changed envelope.
func TestEnvelopes(t *testing.T) {
	var e envelopes
	sender := func(i int) received {
		r := received{src: mapped([4]byte{10, 0, byte(i % 3), byte(i)}), dst: mapped([4]byte{10, 0, 9, 9}), port: uint16(4791 + 64*(i%2)), hopLimit: 64}
		if i%5 == 0 {
			r.src, r.dst = bth.GID{0: 0xFD, 14: byte(i % 3), 15: byte(i)}, bth.GID{0: 0xFD, 15: 9}
		}
		return r
	}
	for batch := range 3 {
		e.turn()
		seen := map[*frame.Envelope]int{}
		for i := range link.Batch {
			in := sender(i * (1 + 63*(batch%2))) // odd batches have many collisions
			in.trafficClass = uint8(batch)
			env := e.find(&in)
			if first, ok := seen[env]; ok && first != i-1 {
				t.Fatalf("batch %d: messages %d and %d share an envelope", batch, first, i)
			}
			seen[env] = i
			path, err := frame.NewPath(frame.PathConfig{Src: in.src, Dst: in.dst, SrcPort: in.port})
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 64)
			_, crc := path.Put(b, frame.LayoutUDP, len(b), 7)
			bth.PutBTH(b, bth.RCSendOnly, 0, 0, bth.DefaultPKey, 3, 4)
			bth.PutICRC(b[60:], crc.UpdateBTH(b).Update(b[bth.BTHLen:60]))
			var p frame.Packet
			if err := p.ParseBody(b, env, 7); err != nil || !p.CheckICRC() || env.ID != 0 {
				t.Fatalf("batch %d, message %d: %v, ICRC %v with Identification %d", batch, i, err, p.CheckICRC(), env.ID)
			}
			if p.Src != in.src || p.Dst != in.dst || p.SrcPort != in.port || p.TrafficClass != uint8(batch) || p.HopLimit != 64 {
				t.Fatalf("batch %d, message %d: %+v", batch, i, env)
			}
		}
	}
	// The next message of the last sender uses the same envelope.
	e.turn()
	in := sender(1)
	env := e.find(&in)
	env.ID = 99
	if again := e.find(&in); again != env || again.ID != 99 {
		t.Error("the envelope used last is not used again")
	}
	if n := testing.AllocsPerRun(10, func() { e.turn(); e.find(&in) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzControl: control messages of any kind do no harm.
func FuzzControl(f *testing.F) {
	var c control
	var d destination
	p := &Port{v6: true}
	path := frame.PathConfig{Src: bth.GID{0: 0xFD, 15: 1}, Dst: bth.GID{0: 0xFD, 15: 2}, TrafficClass: 3, HopLimit: 4}
	d.set(p, &path)
	f.Add(d.control.bytes()[space16:d.size])
	c.putInt(0, unix.IPPROTO_UDP, unix.UDP_GRO, 1040)
	f.Add(c.bytes()[:24])
	f.Fuzz(func(t *testing.T, b []byte) {
		var c control
		var r received
		n := copy(c.bytes(), b)
		r.take(&unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: 1}, &c, n)
		if r.segment < 0 || r.flowLabel > 0xFFFFF {
			t.Errorf("%+v", r)
		}
	})
}
