package raw

import (
	"bytes"
	"testing"

	"github.com/goroce/roce/bth/frame"
)

func TestSegment(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, vlan := range []uint16{0, 7} {
			const size, last, count = 100, 36, 5
			super := packet(t, v6, vlan, (count-1)*size+last)
			e, ok := look(super)
			if !ok {
				t.Fatal("look does not know the frame")
			}
			var body []byte
			for i := range count {
				dst := make([]byte, 1500)
				n, bad := segment(dst, super, e, size, i)
				want := size
				if i == count-1 {
					want = last
				}
				if bad || n != e.body+want {
					t.Fatalf("segment %d has %d bytes, want %d", i, n, e.body+want)
				}
				single := packet(t, v6, vlan, want) // as a sender makes it
				if !v6 {
					single[e.ip+5] += byte(i)
					setLengths(single, e, want)
				}
				if !bytes.Equal(dst[:e.body], single[:e.body]) {
					t.Errorf("headers of segment %d\n% x, want\n% x", i, dst[:e.body], single[:e.body])
				}
				body = append(body, dst[e.body:n]...)
			}
			if !bytes.Equal(body, super[e.body:]) {
				t.Errorf("the segments together are not the payload")
			}
			if n, bad := segment(make([]byte, 1500), super, e, size, count); n != 0 || bad {
				t.Errorf("segment %d of %d has %d bytes", count, count, n)
			}
			if n, bad := segment(make([]byte, e.body+size-1), super, e, size, 0); n != 0 || !bad {
				t.Errorf("a segment fits into too little room: %d", n)
			}
		}
	}
}

func TestClearChecksum(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		b := packet(t, v6, 3, 20)
		e, _ := look(b)
		want := append([]byte(nil), b...)
		b[e.udp+6], b[e.udp+7] = 0x12, 0x34
		clearChecksum(b)
		if !bytes.Equal(b, want) {
			t.Errorf("v6=%v: after clearChecksum\n% x, want\n% x", v6, b, want)
		}
		var p frame.Packet
		p.Parse(b, frame.LayoutEthernet)
		if p.UDPChecksum != 0 {
			t.Errorf("checksum %#x", p.UDPChecksum)
		}
	}
	clearChecksum(nil)
	clearChecksum(make([]byte, 60))
}

// FuzzLook: what the kernel hands us was made by others.
func FuzzLook(f *testing.F) {
	for _, v6 := range []bool{false, true} {
		f.Add(packet(f, v6, 0, 100), 24)
		f.Add(packet(f, v6, 9, 30), 7)
	}
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		e, ok := look(b)
		if !ok {
			return
		}
		if e.ip < 14 || e.body > len(b) {
			t.Fatalf("look: %+v in %d bytes", e, len(b))
		}
		clearChecksum(b)
		dst := make([]byte, 300)
		sum := 0
		for i := 0; ; i++ {
			n, bad := segment(dst, b, e, size, i)
			if bad || n == 0 {
				break
			}
			sum += n - e.body
		}
		if sum > len(b)-e.body {
			t.Fatalf("segments have %d bytes of %d", sum, len(b)-e.body)
		}
	})
}
