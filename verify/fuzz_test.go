package verify

import (
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link/pcap"
)

// FuzzDialogue changes packets of a right scene. Each three bytes of input choose a packet, a byte of it, and a number that is added to
// that byte. The ICRC is right, so that the packet is judged with the others. The Verifier must not panic, and the report can be printed.
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
		_, err := json.Marshal(r)
		if err := errors.Join(err, r.WriteText(io.Discard), r.WriteJUnit(io.Discard)); err != nil {
			t.Error(err)
		}
	})
}

// TestBounds: a capture with very many connections takes bounded memory, and the report says that not all were followed.
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
