package capcheck

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/internal/tools/ladder"
)

// FuzzRead: no file makes the tools panic, and their counts add up.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"host/udp4-client.pcap", "host/raw6-server.pcap", "host/any4-client.pcap", "rping6.pcap"} {
		b, err := os.ReadFile(filepath.Join(pcaps, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := New("")
		d := NewDrawing(&dissect.Selection{})
		dissect.Read(bytes.NewReader(b), func(p *dissect.Packet) error {
			r.Add(p)
			p.Line()
			p.JSON()
			return d.Add(p)
		})
		r.Done()
		var out bytes.Buffer
		if err := r.WriteText(&out); err != nil {
			t.Fatal(err)
		}
		ladder.Draw(&out, d.Steps)
		if r.Packets != r.RoCE+r.Other+r.Malformed+r.Undecoded || r.RoCE != r.ICRCGood+r.ICRCBad+r.Truncated-r.Undecoded ||
			r.Frames > r.Packets || len(d.Steps) != r.RoCE {
			t.Errorf("the counts do not add up: %+v, %d steps", r, len(d.Steps))
		}
	})
}
