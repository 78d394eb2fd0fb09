package link_test

import (
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// TestCheckICRCs: CheckICRCs handles each frame of a list once and marks the right ones as Intact.
func TestCheckICRCs(t *testing.T) {
	path, err := frame.NewPath(frame.PathConfig{Src: bth.GID{10: 0xFF, 11: 0xFF, 12: 10, 15: 1}, Dst: bth.GID{10: 0xFF, 11: 0xFF, 12: 10, 15: 2}})
	if err != nil {
		t.Fatal(err)
	}
	one, other := path.Envelope(), path.Envelope()
	segment := func(e *frame.Envelope, i, n int) link.Frame {
		b := make([]byte, bth.BTHLen+n+bth.ICRCLen)
		body, crc := path.Put(b, frame.LayoutUDP, len(b), uint16(i))
		bth.PutBTH(body, bth.RCSendOnly, 0, 0, bth.DefaultPKey, 0x12, bth.PSN(i))
		bth.PutICRC(body[len(b)-bth.ICRCLen:], crc.UpdateBody(body[:len(b)-bth.ICRCLen]))
		return link.Frame{Data: b, Env: e, Segment: uint16(i), Intact: true} // Intact is left over from an earlier use
	}
	damaged := segment(&one, 5, 64)
	damaged.Data[20] ^= 1
	for _, tt := range []struct {
		name   string
		frames []link.Frame
		intact string
	}{
		{"too few", []link.Frame{segment(&one, 0, 64), segment(&one, 1, 64), segment(&one, 2, 64)}, "---"},
		{"no super-packet", []link.Frame{{Data: []byte{1}, Intact: true}, {}, {}, {}, {}}, "-----"},
		{"a short one at the end", []link.Frame{segment(&one, 0, 64), segment(&one, 1, 64), segment(&one, 2, 64), segment(&one, 3, 64), segment(&one, 4, 8)}, "++++-"},
		{"the end of one and another", []link.Frame{segment(&other, 7, 64), segment(&other, 8, 64),
			segment(&one, 0, 64), segment(&one, 1, 64), segment(&one, 2, 64), segment(&one, 3, 64)}, "--++++"},
		{"one missing", []link.Frame{segment(&one, 0, 64), segment(&one, 2, 64), segment(&one, 3, 64), segment(&one, 4, 64), segment(&one, 5, 64)}, "++++-"},
		{"a damaged one", []link.Frame{segment(&one, 0, 64), segment(&one, 1, 64), segment(&one, 2, 64), segment(&one, 3, 64),
			segment(&one, 4, 64), damaged, segment(&one, 6, 64), segment(&one, 7, 64)}, "++++----"},
		{"no packets", []link.Frame{{Env: &one}, {Env: &one, Segment: 1}, {Env: &one, Segment: 2}, {Env: &one, Segment: 3}}, "----"},
	} {
		for done := 0; done < len(tt.frames); {
			n := link.CheckICRCs(tt.frames[done:])
			if n < 1 || n > len(tt.frames)-done {
				t.Fatalf("%s: %d of %d frames dealt with", tt.name, n, len(tt.frames)-done)
			}
			done += n
		}
		got := ""
		for i := range tt.frames {
			got += map[bool]string{true: "+", false: "-"}[tt.frames[i].Intact]
		}
		if got != tt.intact {
			t.Errorf("%s: intact %s, want %s", tt.name, got, tt.intact)
		}
	}
}
