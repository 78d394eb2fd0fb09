package verify

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link/pcap"
)

// FuzzRead: no file makes the judges panic, and reports of any file can be printed.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"host/udp4-client.pcap", "host/any4-client.pcap", "rping6.pcap", "mckey.pcap"} {
		b, err := os.ReadFile(filepath.Join(pcaps, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(rightScene(f).capture(active))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Read(bytes.NewReader(b), Config{Directions: true, CNPInterval: time.Millisecond})
		if r == nil {
			t.Fatal(err)
		}
		if err := r.WriteText(io.Discard); err != nil {
			t.Error(err)
		}
		if err := r.WriteJUnit(io.Discard); err != nil {
			t.Error(err)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	})
}

// FuzzDialogue changes packets of a right dialogue: each three bytes of input name a packet, a byte of it and what is added to that. The
// ICRC is right, so that the packet is judged among the others.
func FuzzDialogue(f *testing.F) {
	f.Add([]byte{4, 0, 1}, true)
	f.Add([]byte{12, 9, 200, 30, 11, 7}, false)
	f.Fuzz(func(t *testing.T, changes []byte, out bool) {
		s := rightScene(t)
		for ; len(changes) >= 3; changes = changes[3:] {
			p := s.steps[int(changes[0])%len(s.steps)]
			at, add, before := int(changes[1]), changes[2], p.bits
			p.bits = func(b []byte) {
				if before != nil {
					before(b)
				}
				b[at%len(b)] += add
			}
		}
		at := active
		if out {
			at = passive
		}
		r := s.judge(at, Config{})
		if r.Packets == 0 || len(r.Findings) > maxFindings*2*len(rules) {
			t.Errorf("%d packets, %d findings", r.Packets, len(r.Findings))
		}
	})
}

// TestBounds: a capture of very many connections is followed in bounded memory, and the report says so.
func TestBounds(t *testing.T) {
	v, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := emptyScene(t)
	p := s.request("send", active, 0, bth.RCSendOnly, bth.Fields{})
	for i := range maxFlows + 10 {
		p.f.BTH.DestQPN = 0x1000 + bth.QPN(i)
		v.Add(0, &pcap.Record{Time: time.Unix(int64(i), 0), Data: s.frame(p, active), LinkType: pcap.Ethernet, Number: i + 1})
	}
	r := v.Done()
	if len(v.flows) != maxFlows || len(r.Limits) == 0 {
		t.Errorf("%d connections are followed", len(v.flows))
	}
	for _, l := range r.Limits {
		if l.Kind == LimitMany && l.Count == 10 {
			return
		}
	}
	t.Errorf("the report does not say that there are more: %d limits", len(r.Limits))
}
