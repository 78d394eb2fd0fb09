package verify

import (
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
)

// TestOvertakenDREP: between the ends, a DREP may overtake a packet that was sent before it.
func TestOvertakenDREP(t *testing.T) {
	for after, want := range map[time.Duration]int{10 * time.Millisecond: 0, 2 * time.Second: 1} {
		s := rightScene(t)
		s.request("late", passive, 1, bth.RCSendOnly, bth.Fields{Payload: bytesOf(3)}).at = s.step("drep").at + after
		if _, byRule := unexplained(s.middle(Config{Complete: true}, nil)); byRule[cmOver] != want || len(byRule) != want {
			t.Errorf("%v after the DREP: found %v", after, byRule)
		}
	}
}

// TestRepeatedACKs: ACKs of repeated requests have the MSN of the latest message. Even many such ACKs must not be taken for evidence of the MSN
// at the repeated request.
func TestRepeatedACKs(t *testing.T) {
	f := newFlood(t, Config{Complete: true})
	send := func(n int) { f.judge(f.request("", active, n, bth.RCSendOnly, bth.Fields{Payload: bytesOf(4)})) }
	send(0)
	f.judge(f.request("", active, 1, bth.RCReadRequest, bth.Fields{RETH: reth(0x1000, 8)}))
	f.judge(f.response("", passive, 1, bth.RCReadResponseOnly, bth.AckNoCredits, 12, bth.Fields{Payload: bytesOf(8)}))
	for range 5 {
		send(0)
		f.judge(f.ack("", 0, bth.AckNoCredits, 12))
	}
	for n := 2; n < 6; n++ {
		send(n)
		f.judge(f.ack("", n, bth.AckNoCredits, 11+n))
	}
	if all, _ := unexplained(f.v.Done()); len(all) > 0 {
		t.Errorf("found %v", all)
	}
	send(6) // a wrong MSN afterwards is found
	f.judge(f.ack("", 6, bth.AckNoCredits, 16))
	if _, byRule := unexplained(f.v.Done()); byRule[msnCount] != 1 {
		t.Errorf("a wrong MSN: found %v", byRule)
	}
}

// TestLateFirst: if a request takes long to the place of the capture, its repetition does not count as early.
func TestLateFirst(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		if v6 {
			overIPv6(t)
		}
		s := rightScene(t)
		s.every(active, func(p *step) { p.f.BTH.Flags &^= bth.MigReq }) // no probes
		s.step("silent").at += 100 * time.Millisecond
		r := s.middle(Config{Complete: true}, nil)
		if _, byRule := unexplained(r); byRule[repeatEarly] > 0 {
			t.Errorf("IPv6 %v: found %v", v6, byRule)
		}
	}
}

// TestSharedWord: if other requesters operate on the same word, it may change as if a repeated atomic was executed twice.
func TestSharedWord(t *testing.T) {
	for at := range 2 {
		for _, written := range []bool{false, true} {
			f := newFlood(t, Config{At: []netip.Addr{addresses[at].Addr()}})
			f.shake(0, numbers[active], numbers[passive])
			add := func(n, msn int, value uint64) {
				q := bth.Fields{AtomicETH: &bth.AtomicETHFields{VA: 0x1000, RKey: 0x4411, Swap: 1}}
				f.judge(f.request("", active, n, bth.RCFetchAdd, q))
				if value == 10 { // the first answer was lost
					f.n += 100_000
					f.judge(f.request("", active, n, bth.RCFetchAdd, q))
				}
				f.judge(f.atomicAck("", n, msn, value))
			}
			n := 1
			add(0, 1, 10)
			if written {
				f.judge(f.request("", active, n, bth.RCWriteOnly, bth.Fields{RETH: reth(0x1000, 8), Payload: bytesOf(8)}))
				n++
				f.judge(f.ack("", 1, bth.AckNoCredits, n))
			}
			add(n, n+1, 12)
			_, byRule := unexplained(f.v.Done())
			want := 0
			if at == passive && !written { // the capture has every request for the word
				want = 1
			}
			if byRule[atomicTwice] != want || len(byRule) != want {
				t.Errorf("at %d, written %v: found %v", at, written, byRule)
			}
		}
	}
}

// TestSecondREP: a REQ that arrives after the passive end has ended the connection makes another one, with another ID of that end.
func TestSecondREP(t *testing.T) {
	rep := func(s *scene, id cm.CommID) {
		s.datagram("", passive, &cm.REP{Header: cm.Header{TID: 77}, LocalID: id, RemoteID: 0xA1, QPN: bth.QPN(id), ResponderResources: 4, InitiatorDepth: 4})
	}
	goodbye := func(s *scene, id cm.CommID) {
		s.datagram("", active, &cm.DREQ{Header: cm.Header{TID: 78}, LocalID: 0xA1, RemoteID: id, RemoteQPN: bth.QPN(id)})
		s.datagram("", passive, &cm.DREP{Header: cm.Header{TID: 78}, LocalID: id, RemoteID: 0xA1})
	}
	rtu := func(s *scene, id cm.CommID) {
		s.datagram("", active, &cm.RTU{Header: cm.Header{TID: 77}, LocalID: 0xA1, RemoteID: id})
	}
	rej := func(s *scene, of cm.Subject) {
		s.datagram("", passive, &cm.REJ{Header: cm.Header{TID: 77}, LocalID: 0xB1, RemoteID: 0xA1, Of: of, Reason: cm.RejectConsumer})
	}
	for _, c := range []struct {
		name  string
		end   func(s *scene) // of the connection with ID 0xB1 of the passive end
		late  func(s *scene) // copies of its messages
		quiet bool           // the REQ is not sent again
		right bool           // the passive end may make another connection
	}{
		{"disconnected", func(s *scene) { rtu(s, 0xB1); goodbye(s, 0xB1) },
			func(s *scene) {
				s.datagram("", passive, &cm.DREP{Header: cm.Header{TID: 78}, LocalID: 0xB1, RemoteID: 0xA1})
			}, false, true},
		{"rejected", func(s *scene) { rej(s, cm.OfOther) },
			func(s *scene) { rej(s, cm.OfOther); s.wait(5 * time.Second); rep(s, 0xB2) }, false, true},
		{"rejected, without another REQ", func(s *scene) { rej(s, cm.OfOther) }, func(*scene) {}, true, false},
		{"alive", func(s *scene) { rtu(s, 0xB1) }, func(*scene) {}, false, false},
		{"waiting", func(*scene) {}, func(*scene) {}, false, false},
	} {
		s := emptyScene(t)
		req := s.connect(77, 0xA1, numbers[active])
		s.datagram("", active, req)
		if c.name == "alive" { // a REJ of the REQ ends no connection
			rej(s, cm.OfREQ)
			s.wait(5 * time.Second)
			s.datagram("", active, req)
		}
		rep(s, 0xB1)
		c.end(s)
		s.wait(5 * time.Second)
		if !c.quiet {
			s.datagram("", active, req)
		}
		rep(s, 0xB2)
		c.late(s)
		rtu(s, 0xB2)
		goodbye(s, 0xB2)
		places := map[string]*Report{"passive": s.judge(passive, Config{}), "middle": s.middle(Config{Complete: true}, nil), "active": s.judge(active, Config{})}
		for place, r := range places {
			all, byRule := unexplained(r)
			// Only where the passive end sends is it certain that no message is missing.
			if c.right && len(all) > 0 || !c.right && place == "passive" && byRule[cmIDs] == 0 {
				t.Errorf("%s, captured at the %s: found %v", c.name, place, all)
			}
		}
	}
}
