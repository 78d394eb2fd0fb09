package verify

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/link/pcap"
)

// judgeBoth judges captures of both ends together. The clock of the passive end is ahead by skew.
func (s *scene) judgeBoth(cfg Config, skew time.Duration) *Report {
	s.t.Helper()
	dir := s.t.TempDir()
	var names []string
	for at := range 2 {
		name := filepath.Join(dir, []string{"a.pcapng", "b.pcapng"}[at])
		for _, p := range s.steps {
			p.at += time.Duration(at) * skew
		}
		if err := os.WriteFile(name, s.capture(at), 0o600); err != nil {
			s.t.Fatal(err)
		}
		names = append(names, name)
	}
	r, err := Files(s.t.Context(), names, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func complain(t *testing.T, what string, r *Report) {
	t.Helper()
	for i := range r.Findings {
		if r.Findings[i].Failure() {
			t.Errorf("%s: %s", what, &r.Findings[i])
		}
	}
}

// TestBothEnds: a right scene that was captured at both ends has no findings, although the network marks packets on the way.
func TestBothEnds(t *testing.T) {
	s := rightScene(t)
	complain(t, "no direction", s.judgeBoth(Config{}, 0))
	complain(t, "directions", rightScene(t).judgeBoth(Config{Directions: true}, 0))
	complain(t, "at passive", rightScene(t).judgeBoth(Config{At: []netip.Addr{addresses[passive].Addr()}}, 0))
}

// TestBothEndsLate: the same with 5 µs between the times at both ends.
func TestBothEndsLate(t *testing.T) {
	complain(t, "no direction", rightScene(t).judgeBoth(Config{}, 5*time.Microsecond))
	complain(t, "directions", rightScene(t).judgeBoth(Config{Directions: true}, 5*time.Microsecond))
}

// TestBothEndsSkew: the same with clocks that differ by less than a millisecond.
func TestBothEndsSkew(t *testing.T) {
	complain(t, "ahead", rightScene(t).judgeBoth(Config{}, 500*time.Microsecond))
	complain(t, "behind", rightScene(t).judgeBoth(Config{}, -500*time.Microsecond))
}

// middle judges the scene as captured between the ends: records have no direction. keep selects packets; nil: all.
func (s *scene) middle(cfg Config, keep func(i int, p *step) bool) *Report {
	s.t.Helper()
	v, err := New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	slices.SortStableFunc(s.steps, func(a, b *step) int { return int(a.at - b.at) })
	n := 0
	var ids [2]uint16
	for i, p := range s.steps {
		ids[p.from]++
		p.id = 1000 + ids[p.from]
		if keep != nil && !keep(i, p) {
			continue
		}
		n++
		v.Add(0, &pcap.Record{Time: time.Unix(1000, 0).Add(p.at), Data: s.frame(p, p.from), LinkType: pcap.Ethernet, Number: n})
	}
	return v.Done()
}

// TestBothEndsOnTheWay: a right scene has no findings if each packet is captured at its sender, and 5 µs later at its receiver.
func TestBothEndsOnTheWay(t *testing.T) {
	for name, cfg := range map[string]Config{"none": {}, "directions": {Directions: true}} {
		s := rightScene(t)
		v, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortStableFunc(s.steps, func(a, b *step) int { return int(a.at - b.at) })
		var ids [2]uint16
		for i, p := range s.steps {
			ids[p.from]++
			p.id = 1000 + ids[p.from]
			v.Add(p.from, &pcap.Record{Time: time.Unix(1000, 0).Add(p.at), Data: s.frame(p, p.from), LinkType: pcap.Ethernet, Direction: pcap.Out, Number: i + 1})
			if !p.lost {
				v.Add(1-p.from, &pcap.Record{Time: time.Unix(1000, 0).Add(p.at + 5*time.Microsecond), Data: s.frame(p, 1-p.from), LinkType: pcap.Ethernet, Direction: pcap.In, Number: i + 1})
			}
		}
		complain(t, name, v.Done())
	}
}

// BenchmarkHostileResponses measures responses without a request while there are very many connections. The time must not depend on the
// number of connections.
func BenchmarkHostileResponses(b *testing.B) {
	v, _ := New(Config{})
	s := emptyScene(b)
	q := s.request("", active, 0, bth.RCSendOnly, bth.Fields{})
	r := s.response("", passive, 5000, bth.RCAck, bth.AckNoCredits, 1, bth.Fields{})
	for i := range maxFlows / 2 {
		q.f.BTH.DestQPN = bth.QPN(0x1000 + i)
		v.Add(0, &pcap.Record{Time: time.Unix(1000, int64(i)), Data: s.frame(q, active), LinkType: pcap.Ethernet, Number: i})
	}
	b.ResetTimer()
	for i := range b.N {
		r.f.BTH.DestQPN = bth.QPN(0x100000 + i/eagerTries%(maxFlows/2))
		v.Add(0, &pcap.Record{Time: time.Unix(1001, int64(i)), Data: s.frame(r, passive), LinkType: pcap.Ethernet, Number: i})
	}
}

// BenchmarkHostileFlows measures packets to one queue pair number from many addresses.
func BenchmarkHostileFlows(b *testing.B) {
	v, _ := New(Config{})
	s := emptyScene(b)
	q := s.request("", active, 0, bth.RCSendOnly, bth.Fields{})
	send := func(i int) {
		path, err := frame.NewPath(frame.PathConfig{Src: bth.GIDFrom(netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)})), Dst: addresses[1], SrcMAC: frame.MAC{2}, DstMAC: frame.MAC{2, 1}, SrcPort: 0xC123})
		if err != nil {
			b.Fatal(err)
		}
		q.path = path
		v.Add(0, &pcap.Record{Time: time.Unix(1000, int64(i)), Data: s.frame(q, active), LinkType: pcap.Ethernet, Number: i})
	}
	for i := range maxFlows {
		send(i)
	}
	b.ResetTimer()
	for i := range b.N {
		send(maxFlows + i)
	}
}

// TestJSONLists: empty lists are [] in JSON, not null, because the example of the command iterates over them.
func TestJSONLists(t *testing.T) {
	v, _ := New(Config{})
	r := v.Done()
	r.Files = []string{"-"}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b, []byte("null")) {
		t.Errorf("%s", b)
	}
}

// TestParts: a right scene has no findings if the capture begins at any of its packets.
func TestParts(t *testing.T) {
	n := len(rightScene(t).steps)
	seen := map[string]bool{}
	for from := range n {
		r := rightScene(t).middle(Config{}, func(i int, p *step) bool { return i >= from })
		for i := range r.Findings {
			f := &r.Findings[i]
			if k := string(f.Rule) + f.Sentence; f.Failure() && !seen[k] {
				seen[k] = true
				t.Errorf("from packet %d (%s) on: %s", from, rightScene(t).steps[from].name, f)
			}
		}
	}
}

// TestDoubled: a right scene has no findings if the network duplicates any one packet.
func TestDoubled(t *testing.T) {
	n := len(rightScene(t).steps)
	seen := map[string]bool{}
	for at := range 2 {
		for k := range n {
			for _, after := range []int{1, 3} {
				s := rightScene(t)
				slices.SortStableFunc(s.steps, func(a, b *step) int { return int(a.at - b.at) })
				v, _ := New(Config{Directions: true})
				var ids [2]uint16
				var late *step
				due := -1
				add := func(p *step, i int) {
					if p.lost && p.from != at {
						return
					}
					d := pcap.In
					if p.from == at {
						d = pcap.Out
					}
					v.Add(0, &pcap.Record{Time: time.Unix(1000, 0).Add(s.steps[i].at), Data: s.frame(p, at), LinkType: pcap.Ethernet, Direction: d, Number: i + 1})
				}
				for i, p := range s.steps {
					ids[p.from]++
					p.id = 1000 + ids[p.from]
					add(p, i)
					if i == k && p.from != at {
						late, due = p, min(i+after, n-1)
					}
					if i == due && late != nil {
						add(late, i)
						late = nil
					}
				}
				r := v.Done()
				for i := range r.Findings {
					f := &r.Findings[i]
					if key := string(f.Rule); f.Failure() && !seen[key] {
						seen[key] = true
						t.Errorf("at %d, %s doubled %d later: %s", at, s.steps[k].name, after, f)
					}
				}
			}
		}
	}
}

// TestSameNumbers: connections of different hosts may have the same queue pair numbers and PSNs. NCCL, for example, begins at PSN 0.
func TestSameNumbers(t *testing.T) {
	s := emptyScene(t)
	var other [2]*frame.Path
	hosts := [2]bth.GID{bth.GIDFrom(netip.MustParseAddr("10.0.0.3")), bth.GIDFrom(netip.MustParseAddr("10.0.0.4"))}
	for i := range other {
		p, err := frame.NewPath(frame.PathConfig{Src: hosts[i], Dst: hosts[1-i], SrcMAC: frame.MAC{2, 0, 0, 0, 1, byte(i)}, DstMAC: frame.MAC{2, 0, 0, 0, 1, byte(1 - i)}, SrcPort: 0xC124})
		if err != nil {
			t.Fatal(err)
		}
		other[i] = p
	}
	msn := [2]int{}
	for i := range 8 {
		for c := range 2 {
			if c == 1 && i%2 == 1 {
				continue // the second connection is slower
			}
			n := msn[c]
			msn[c]++
			a := s.request("", active, n, bth.RCSendOnly, bth.Fields{Payload: bytesOf(8 + 4*c)})
			b := s.response("", passive, n, bth.RCAck, bth.AckNoCredits, n+1, bth.Fields{})
			if c == 1 {
				a.path, b.path = other[active], other[passive]
			}
		}
	}
	r := s.middle(Config{}, nil)
	complain(t, "two connections", r)
	if len(r.Halves) != 2 {
		t.Errorf("%d connections", len(r.Halves))
	}
	for _, h := range r.Halves {
		if h.Responses != h.Requests {
			t.Errorf("%+v", h)
		}
	}
}

// TestReuse: after a disconnect the same queue pairs are connected again.
func TestReuse(t *testing.T) {
	for at := range 2 {
		s := rightScene(t)
		first := s.steps
		s.steps = nil
		s.wait(time.Second)
		s.handshake()
		for _, name := range []string{"req", "req-again", "rep", "rtu"} {
			p := s.step(name)
			p.f.Payload = bytes.Clone(p.f.Payload)
			m, err := cm.DecodeMAD(p.f.Payload)
			if err != nil {
				t.Fatal(err)
			}
			switch m := m.(type) {
			case *cm.REQ:
				m.TID, m.LocalID = 99, 0xA2
			case *cm.REP:
				m.TID, m.LocalID, m.RemoteID = 99, 0xB2, 0xA2
			case *cm.RTU:
				m.TID, m.LocalID, m.RemoteID = 99, 0xA2, 0xB2
			}
			m.Put((*[cm.MADLen]byte)(p.f.Payload))
		}
		s.messages()
		s.steps = append(first, s.steps...)
		complain(t, "reuse", s.judge(at, Config{}))
	}
}

// arrive judges the scene without IPv4 identifications, captured at an end or between the ends (2, or 3 for a complete capture). Packet k
// arrives a second time, this number of packets later (after). With swap, it arrives only then.
func (s *scene) arrive(at, k, after int, swap bool) *Report {
	slices.SortStableFunc(s.steps, func(a, b *step) int { return int(a.at - b.at) })
	n := len(s.steps)
	v, _ := New(Config{Directions: at < 2, Complete: at == 3})
	var late *step
	due := -1
	add := func(p *step, i int) {
		if p.lost && p.from != at && at < 2 {
			return
		}
		var d pcap.Direction
		switch {
		case at >= 2:
		case p.from == at:
			d = pcap.Out
		default:
			d = pcap.In
		}
		p.id = 0
		v.Add(0, &pcap.Record{Time: time.Unix(1000, 0).Add(s.steps[i].at), Data: s.frame(p, at), LinkType: pcap.Ethernet, Direction: d, Number: i + 1})
	}
	for i, p := range s.steps {
		hit := i == k && p.from != at
		if !hit || !swap {
			add(p, i)
		}
		if hit {
			late, due = p, min(i+after, n-1)
		}
		if i == due && late != nil {
			add(late, i)
			late = nil
		}
	}
	return v.Done()
}

func (s *scene) likeRxe() *scene {
	for _, p := range s.steps {
		p.f.BTH.Flags &^= bth.MigReq
	}
	return s
}

// TestNoIdentification: a right scene has no findings if packets have no IPv4 identification, as over IPv6, also with M = 0 as rxe sends it.
func TestNoIdentification(t *testing.T) {
	for at := range 4 {
		for _, rxe := range []bool{false, true} {
			s := rightScene(t)
			if rxe {
				s.likeRxe()
			}
			r := s.arrive(at, -1, 0, false)
			for i := range r.Findings {
				if f := &r.Findings[i]; f.Rule != headerMigReq {
					t.Errorf("at %d, like rxe %v: %s", at, rxe, f)
				}
			}
		}
	}
}
