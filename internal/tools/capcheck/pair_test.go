package capcheck

import (
	"testing"
	"time"
)

// The two directions of each connection of a capture are paired with each other, and with no other flow.
func TestPairs(t *testing.T) {
	for file, connections := range map[string]int{"rping": 1, "rping6": 1, "loss_rping": 1, "read_bw": 1, "write_bw": 1, "atomic_fa": 1, "rc_pingpong": 1} {
		r := New("../../../testdata/pcaps/" + file + ".pcap")
		if err := r.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		pairs, inFlight := 0, 0
		for _, f := range r.Flows {
			p := f.Peer()
			if p == nil {
				if f.Transport == "RC" {
					t.Errorf("%s: %s > %s qpn %#x has no peer", file, f.Src, f.Dst, f.DestQPN)
				}
				continue
			}
			pairs++
			if p.Peer() != f || p.Src != f.Dst || p.Dst != f.Src || p == f {
				t.Errorf("%s: %+v is the peer of %+v", file, p, f)
			}
			if f.Requests > 0 && (f.RTT() <= 0 || f.RTT() > time.Second) {
				t.Errorf("%s: round trip %v", file, f.RTT())
			}
			inFlight += f.InFlight()
		}
		if want := map[string]int{"loss_rping": 4}[file]; inFlight != want { // this capture ends in the middle of a READ
			t.Errorf("%s: %d in flight at the end, want %d", file, inFlight, want)
		}
		if pairs != 2*connections {
			t.Errorf("%s: %d flows have peers, want %d", file, pairs, 2*connections)
		}
	}
}
