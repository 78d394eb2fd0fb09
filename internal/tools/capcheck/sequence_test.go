package capcheck

import (
	"testing"

	"github.com/goroce/roce/bth"
)

func TestSequence(t *testing.T) {
	type request struct {
		psn  bth.PSN
		read uint32 // length, or 0 for anything else
		mtu  uint32 // becomes known before this packet
		want verdict
	}
	for _, tt := range []struct {
		name    string
		reqs    []request
		missing int
	}{
		{name: "wraps", reqs: []request{{psn: 0xFFFFFE}, {psn: 0xFFFFFF}, {psn: 0}, {psn: 1}}},
		{name: "gap never filled", reqs: []request{{psn: 5}, {psn: 9, want: jumped}, {psn: 10}}, missing: 3},
		{name: "gap filled", reqs: []request{{psn: 5}, {psn: 8, want: jumped}, {psn: 6, want: late}, {psn: 7, want: late}, {psn: 8, want: again}, {psn: 9}}},
		{name: "gap filled from the middle", reqs: []request{{psn: 5}, {psn: 9, want: jumped}, {psn: 7, want: late}, {psn: 7, want: again}}, missing: 2},
		{name: "goes back", reqs: []request{{psn: 5}, {psn: 6}, {psn: 7}, {psn: 6, want: again}, {psn: 7, want: again}, {psn: 8}}},
		{name: "READ of one packet", reqs: []request{{psn: 5, read: 100}, {psn: 6}}},
		{name: "READ, MTU known", reqs: []request{{psn: 5, read: 4096, mtu: 1024}, {psn: 9}, {psn: 10}}},
		{name: "READ, MTU known, then a gap", reqs: []request{{psn: 5, read: 4096, mtu: 1024}, {psn: 10, want: jumped}}, missing: 1},
		{name: "READ, MTU not known", reqs: []request{{psn: 5, read: 4096}, {psn: 9}, {psn: 10}}},
		{name: "READ repeated from its middle", reqs: []request{{psn: 5, read: 4096, mtu: 1024}, {psn: 7, read: 2048, want: again}, {psn: 9}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s sequence
			for i, r := range tt.reqs {
				ends := onePSN
				if r.mtu != 0 {
					s.mtu = r.mtu
				}
				if r.read != 0 {
					ends = s.readEnds(r.read)
				}
				if got := s.add(r.psn, ends); got != r.want {
					t.Errorf("request %d, psn %v: verdict %d, want %d", i, r.psn, got, r.want)
				}
			}
			if got := s.gaps.Missing(); got != tt.missing {
				t.Errorf("missing = %d, want %d", got, tt.missing)
			}
		})
	}
}

func TestSequenceBoundsMemory(t *testing.T) {
	var s sequence
	for i := range 3 * maxGaps {
		s.add(bth.PSN(2*i), onePSN)
	}
	if s.gaps.Len() > maxGaps {
		t.Errorf("%d gaps kept", s.gaps.Len())
	}
}
