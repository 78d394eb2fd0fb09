package frame_test

import (
	"bytes"
	"testing"

	"github.com/goroce/roce/bth/frame"
)

// TestHop: paths with a Hop, and paths derived from them, have its present addresses; otherwise
// they are like paths without a Hop.
func TestHop(t *testing.T) {
	type owner struct{ int }
	us := &owner{1}
	hop := frame.NewHop(us, macA, macB)
	if hop.Owner() != us {
		t.Errorf("owner %v", hop.Owner())
	}
	tagged := config4(t)
	tagged.VLAN = 100
	for _, c := range []frame.PathConfig{config4(t), config6(t), tagged} {
		plain := newPath(t, c)
		c.Hop = hop
		c.SrcMAC, c.DstMAC = frame.MAC{1}, frame.MAC{2} // ignored with a Hop
		p := newPath(t, c)
		for _, macs := range [][2]frame.MAC{{macA, macB}, {{0xFF, 1, 2, 3, 4, 5}, {6, 7, 8, 9, 10, 0xFE}}} {
			hop.Set(macs[0], macs[1])
			want := plain.Config()
			want.SrcMAC, want.DstMAC = macs[0], macs[1]
			derived := newPath(t, want).WithTrafficClass(8)
			for _, x := range []struct{ got, want *frame.Path }{{p, newPath(t, want)}, {p.WithTrafficClass(8), derived}} {
				for _, l := range []frame.Layout{frame.LayoutEthernet, frame.LayoutIP, frame.LayoutUDP} {
					a, b := make([]byte, x.got.HeaderLen(l)+20), make([]byte, x.want.HeaderLen(l)+20)
					_, crcA := x.got.Put(a, l, 20, 7)
					_, crcB := x.want.Put(b, l, 20, 7)
					if !bytes.Equal(a, b) || crcA != crcB {
						t.Errorf("%v:\n%x, want\n%x", l, a, b)
					}
				}
			}
			if g := p.Config(); g.SrcMAC != macs[0] || g.DstMAC != macs[1] || g.Hop != hop || p.Hop() != hop {
				t.Errorf("config %+v", g)
			}
			if e := p.Envelope(); e.SrcMAC != macs[0] || e.DstMAC != macs[1] {
				t.Errorf("envelope %+v", e)
			}
		}
		hop.Set(macA, macB)
		if q := newPath(t, c); !p.Equal(q) || p.Equal(plain) {
			t.Error("paths of one Hop are equal, and not to those of none")
		}
	}
	if n := testing.AllocsPerRun(10, func() { hop.Set(macB, macA) }); n != 0 {
		t.Errorf("Set allocates %v times", n)
	}
}
