package frame_test

import (
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

// segments encodes packets as a sender with segmentation offload does: packet i
// has the identification first+i.
func segments(path *frame.Path, first uint16, count int) (bodies [][]byte) {
	for i := range count {
		payload := make([]byte, 64)
		payload[0] = byte(i)
		n := bth.BTHLen + len(payload) + bth.ICRCLen
		b := make([]byte, path.HeaderLen(frame.LayoutUDP)+n)
		body, crc := path.Put(b, frame.LayoutUDP, n, first+uint16(i))
		bth.PutBTH(body, bth.RCSendOnly, 0, 0, bth.DefaultPKey, 0x12, bth.PSN(i))
		crc = crc.UpdateBTH(body).Copy(body[bth.BTHLen:], payload)
		bth.PutICRC(body[n-bth.ICRCLen:], crc)
		bodies = append(bodies, body)
	}
	return bodies
}

func TestEnvelope(t *testing.T) {
	for _, c := range []struct{ name, src, dst string }{
		{"IPv4", "10.0.0.1", "10.0.0.2"},
		{"IPv6", "fd00::1", "fd00::2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path, err := frame.NewPath(frame.PathConfig{Src: gid(t, c.src), Dst: gid(t, c.dst), SrcPort: 0xC123, TrafficClass: 0x2A, HopLimit: 9, FlowLabel: 0x12345})
			if err != nil {
				t.Fatal(err)
			}
			const first = 0xFFFE // the identification wraps
			bodies := segments(path, first, 5)
			for _, seen := range []bool{true, false} {
				e := frame.Envelope{Src: gid(t, c.src), Dst: gid(t, c.dst), SrcPort: 0xC123, TrafficClass: 0x2A, HopLimit: 9, ID: first, IDSeen: seen}
				e.Seal()
				if path.Is4() != (path.Envelope().FlowLabel == 0) {
					t.Errorf("flow label %#x", path.Envelope().FlowLabel)
				}
				var p frame.Packet
				for i, body := range bodies {
					if err := p.ParseBody(body, &e, uint16(i)); err != nil || !p.CheckICRC() {
						t.Errorf("segment %d, identification seen %v: %v, or a wrong ICRC", i, seen, err)
					}
					if p.Src != e.Src || p.Dst != e.Dst || p.SrcPort != 0xC123 || p.TrafficClass != 0x2A || p.HopLimit != 9 || p.IP != nil {
						t.Errorf("segment %d: %+v", i, p)
					}
					for _, bit := range []int{0, 8 * 20, 8*len(body) - 1} {
						body[bit/8] ^= 1
						if p.ParseBody(body, &e, uint16(i)) == nil && p.CheckICRC() {
							t.Errorf("segment %d passes with bit %d flipped", i, bit)
						}
						body[bit/8] ^= 1
					}
				}
				// The same packet as another segment should have another identification.
				_ = p.ParseBody(bodies[1], &e, 3)
				if ok := p.CheckICRC(); ok != (!path.Is4() || !seen) {
					t.Errorf("wrong identification, seen %v: CheckICRC %v", seen, ok)
				}
			}
		})
	}
}

// TestEnvelopeLearns: after one packet with an unexpected identification
// the envelope expects this identification.
func TestEnvelopeLearns(t *testing.T) {
	path, err := frame.NewPath(frame.PathConfig{Src: gid(t, "10.0.0.1"), Dst: gid(t, "10.0.0.2")})
	if err != nil {
		t.Fatal(err)
	}
	e := path.Envelope()
	var p frame.Packet
	for i, body := range segments(path, 777, 3) {
		if err := p.ParseBody(body, &e, uint16(i)); err != nil || !p.CheckICRC() || e.ID != 777 {
			t.Errorf("segment %d: %v, guess %d, want 777", i, err, e.ID)
		}
	}
	// Parse without the envelope does not use that guess.
	if err := p.Parse(segments(path, 0, 1)[0], frame.LayoutUDP); err != nil || !p.CheckICRC() || e.ID != 777 {
		t.Errorf("Parse after ParseBody: %v, guess %d", err, e.ID)
	}
}

// TestEnvelopeMerged: datagrams that the receiver's kernel has joined may have identifications with
// gaps, or all the same one, but no others. The identification of the first datagram was read and
// must be right.
func TestEnvelopeMerged(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		c := frame.PathConfig{Src: gid(t, "10.0.0.1"), Dst: gid(t, "10.0.0.2")}
		if v6 {
			c.Src, c.Dst = gid(t, "fd00::1"), gid(t, "fd00::2")
		}
		path, err := frame.NewPath(c)
		if err != nil {
			t.Fatal(err)
		}
		first := uint16(0xFFF0)
		for _, test := range []struct {
			segment, id uint16
			want        bool
		}{
			{0, first, true}, {0, first + 1, false}, {1, first + 1, true}, {1, first, true}, {9, first, true},
			{1, first + 2, true}, {9, first + 9 + 255, true}, {9, first + 9 + 256, false},
			{9, first + 9 - 64, true}, {9, first + 9 - 65, false}, {9, 0x8000, false},
		} {
			e := path.Envelope()
			e.ID, e.IDSeen, e.IDMerged = first, true, true
			body := segments(path, test.id, 1)[0]
			var p frame.Packet
			if err := p.ParseBody(body, &e, test.segment); err != nil {
				t.Fatal(err)
			}
			if got := p.CheckICRC(); got != (test.want || v6) || e.ID != first {
				t.Errorf("v6=%v: segment %d with identification %#x: %v, want %v; envelope has %#x", v6, test.segment, test.id, got, test.want, e.ID)
			}
			body[20] ^= 1
			if p.CheckICRC() {
				t.Errorf("v6=%v: segment %d with identification %#x passes with a bit flipped", v6, test.segment, test.id)
			}
		}
	}
}

// TestEnvelopeFlushQuirk: a FLUSH of rxe is recognised without the headers too.
func TestEnvelopeFlushQuirk(t *testing.T) {
	path, err := frame.NewPath(frame.PathConfig{Src: gid(t, "10.0.0.1"), Dst: gid(t, "10.0.0.2")})
	if err != nil {
		t.Fatal(err)
	}
	const n = bth.BTHLen + bth.FETHLen + bth.RETHLen + bth.ICRCLen
	b := make([]byte, n)
	body, crc := path.Put(b, frame.LayoutUDP, n, 4711)
	bth.PutBTH(body, bth.RCFlush, 0, 0, bth.DefaultPKey, 0x12, 1)
	crc = crc.UpdateBTH(body).UpdateShort(body[bth.BTHLen : n-bth.ICRCLen])
	bth.PutICRC(body[n-bth.ICRCLen:], crc.UpdateFlushQuirk(body))
	e := path.Envelope()
	var p frame.Packet
	if err := p.ParseBody(body, &e, 0); err != nil || !p.CheckICRCFlushQuirk() || e.ID != 4711 {
		t.Errorf("%v, or wrong ICRC; identification %d", err, e.ID)
	}
	if e.IDSeen = true; p.CheckICRC() {
		t.Error("it passes the check without the quirk")
	}
}

// TestCheckFour: CheckFour accepts intact packets, and rejects every packet with damage that
// CheckICRC would detect.
func TestCheckFour(t *testing.T) {
	for _, c := range []struct{ name, src, dst string }{
		{"IPv4", "10.0.0.1", "10.0.0.2"},
		{"IPv6", "fd00::1", "fd00::2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path, err := frame.NewPath(frame.PathConfig{Src: gid(t, c.src), Dst: gid(t, c.dst), SrcPort: 0xC123})
			if err != nil {
				t.Fatal(err)
			}
			const first = 0xFFFE // the identification wraps
			e := path.Envelope()
			e.ID = first
			bodies := segments(path, first, 5)
			b, at := [4][]byte{bodies[1], bodies[4], bodies[2], bodies[3]}, [4]uint16{1, 4, 2, 3} // in any order
			if !e.CheckFour(&b, &at) {
				t.Fatal("intact packets are refused")
			}
			if ok := e.CheckFour(&b, &[4]uint16{2, 3, 4, 5}); ok != !path.Is4() {
				t.Errorf("with other numbers: %v", ok)
			}
			for i := range b {
				for bit := range 8 * len(b[i]) {
					b[i][bit/8] ^= 1 << (bit % 8)
					if masked := bit/8 == 4; e.CheckFour(&b, &at) != masked {
						t.Errorf("packet %d with bit %d flipped: %v", i, bit, !masked)
					}
					b[i][bit/8] ^= 1 << (bit % 8)
				}
			}
			for n := range bth.BTHLen + bth.ICRCLen { // too short to be packets
				if e.CheckFour(&[4][]byte{b[0][:n], b[1][:n], b[2][:n], b[3][:n]}, &at) {
					t.Errorf("%d bytes pass", n)
				}
			}
		})
	}
}

// TestNext: Next accepts a packet only if it has the same length and the same first eight bytes as
// the previous one: Parse and the search for the queue pair depend only on these.
func TestNext(t *testing.T) {
	path, err := frame.NewPath(frame.PathConfig{Src: gid(t, "10.0.0.1"), Dst: gid(t, "10.0.0.2")})
	if err != nil {
		t.Fatal(err)
	}
	e := path.Envelope()
	e.ID = 7
	bodies := segments(path, 7, 2)
	var p frame.Packet
	if p.Next(bodies[1], &e, 1) {
		t.Error("next to nothing")
	}
	start := func() {
		t.Helper()
		if err := p.ParseBody(bodies[0], &e, 0); err != nil {
			t.Fatal(err)
		}
		p.SetIntact()
	}
	start()
	if !p.Next(bodies[1], &e, 1) || &p.Data[0] != &bodies[1][0] || p.PSN() != 1 || p.Src != e.Src {
		t.Fatal("a packet like the one before is not taken")
	}
	if !p.CheckICRC() {
		t.Error("wrong ICRC")
	}
	for i, b := range bodies[1] {
		bodies[1][i] ^= 0x10
		start()
		same := i >= 8 // these may differ: AckReq and PSN of the BTH, payload and ICRC
		if p.Next(bodies[1], &e, 1) != same {
			t.Errorf("with another byte %d: %v", i, !same)
		} else if same && p.CheckICRC() {
			t.Errorf("with another byte %d the ICRC is right, or taken for that of the packet before", i)
		} else if !same && (&p.Data[0] != &bodies[0][0] || !p.CheckICRC()) {
			t.Errorf("with another byte %d the packet before is gone", i)
		}
		bodies[1][i] = b
	}
	start()
	if p.Next(bodies[1][:len(bodies[1])-4], &e, 1) {
		t.Error("a shorter one is taken")
	}
	if err := p.Parse(bodies[0], frame.LayoutUDP); err != nil || p.Next(bodies[1], &e, 1) {
		t.Errorf("next to a packet without an envelope: %v", err)
	}
	start()
	other := e
	if p.Next(bodies[1], &other, 1) {
		t.Error("one of another envelope is taken")
	}
	if p.Next(bodies[1], nil, 1) {
		t.Error("one without an envelope is taken")
	}
	bodies[0][1] |= 1 // transport version
	bodies[1][1] |= 1
	if err := p.ParseBody(bodies[0], &e, 0); err == nil || p.Next(bodies[1], &e, 1) {
		t.Errorf("next to a packet that is none: %v", err)
	}
}
