package verify

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/link/pcap"
)

// overIPv6 lets the scenes of a test have IPv6 packets, which have no identification.
func overIPv6(t *testing.T) {
	was := addresses
	t.Cleanup(func() { addresses = was })
	addresses = [2]bth.GID{bth.GIDFrom(netip.MustParseAddr("fd00::1")), bth.GIDFrom(netip.MustParseAddr("fd00::2"))}
}

// TestForwarded: a host that forwards packets captures each of them twice, as it arrives and as it leaves. Both captures count as one packet,
// also without an identification. A retransmission counts as another packet.
func TestForwarded(t *testing.T) {
	for name, hops := range map[string]byte{"bridge": 0, "router": 1} {
		t.Run(name, func(t *testing.T) { forwarded(t, hops, false) })
		t.Run(name+" IPv6", func(t *testing.T) {
			overIPv6(t)
			forwarded(t, hops, true)
		})
	}
}

func forwarded(t *testing.T, hops byte, v6 bool) {
	once := rightScene(t).middle(Config{}, nil)
	s := rightScene(t)
	slices.SortStableFunc(s.steps, func(a, b *step) int { return int(a.at - b.at) })
	v, _ := New(Config{})
	var ids [2]uint16
	for i, p := range s.steps {
		ids[p.from]++
		p.id = 1000 + ids[p.from]
		for k, d := range []pcap.Direction{pcap.In, pcap.Out} {
			b := s.frame(p, p.from)
			if v6 {
				b[ethernetLen+7] -= hops * byte(k)
			} else {
				b[ethernetLen+8] -= hops * byte(k)
				b = checksum(b)
			}
			v.Add(0, &pcap.Record{Time: time.Unix(1000, 0).Add(p.at + time.Duration(k)*5*time.Microsecond), Data: b, LinkType: pcap.Ethernet, Direction: d, Number: 2*i + k + 1})
		}
	}
	r := v.Done()
	complain(t, "forwarded", r)
	if r.Doubles != len(s.steps) || len(r.Halves) != len(once.Halves) || r.Halves[0].Repeated != once.Halves[0].Repeated {
		t.Errorf("%d packets, %d of them twice, repeated %+v; want %+v", r.Packets, r.Doubles, r.Halves[0].Repeated, once.Halves[0].Repeated)
	}
}

// TestDoubledIPv6: the network may duplicate any packet. Without an identification the copy looks like a retransmission, so there must be
// no finding.
func TestDoubledIPv6(t *testing.T) {
	overIPv6(t)
	n := len(rightScene(t).steps)
	seen := map[RuleID]bool{}
	for at := range 4 {
		for k := range n {
			for _, after := range []int{0, 1, 3} {
				for _, rxe := range []bool{false, true} {
					s := rightScene(t)
					if rxe {
						s.likeRxe()
					}
					if last := s.steps[min(k+after, n-1)]; last.at-s.steps[k].at >= copyTime {
						continue // copies that come later than copyTime are not expected
					}
					r := s.arrive(at, k, after, false)
					for i := range r.Findings {
						if f := &r.Findings[i]; f.Failure() && !seen[f.Rule] {
							seen[f.Rule] = true
							t.Errorf("at %d, %s doubled %d later: %s", at, s.steps[k].name, after, f)
						}
					}
				}
			}
		}
	}
}

// TestRejectedAgain: an end that has sent a REJ does not remember the REQ. If the network duplicates the REQ, the copy is a new REQ for
// this end.
func TestRejectedAgain(t *testing.T) {
	for _, again := range []bool{false, true} {
		s := rightScene(t)
		if again {
			s.again("req2", "rej2", time.Millisecond)
		}
		s.wait(time.Second)
		s.datagram("rep2", passive, &cm.REP{Header: cm.Header{TID: 79}, LocalID: 0xB5, RemoteID: 0xA3, QPN: 0x43, ResponderResources: 4, InitiatorDepth: 4})
		v, _ := New(Config{Directions: true})
		slices.SortStableFunc(s.steps, func(a, b *step) int { return int(a.at - b.at) })
		for i, p := range s.steps {
			if p.id = uint16(1000 + i); p.name == "req2-copy" {
				p.id = s.step("req2").id
			}
			if d := [2]pcap.Direction{pcap.In, pcap.Out}[p.from]; !p.lost || d == pcap.Out {
				v.Add(0, &pcap.Record{Time: time.Unix(1000, 0).Add(p.at), Data: s.frame(p, passive), LinkType: pcap.Ethernet, Direction: d, Number: i + 1})
			}
		}
		if _, byRule := unexplained(v.Done()); byRule[cmRejected] > 0 == again {
			t.Errorf("REQ again: %v, found %v", again, byRule)
		}
	}
}
