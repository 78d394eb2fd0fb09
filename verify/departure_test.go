package verify

import (
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

func addrs(s ...string) (all []netip.Addr) {
	for _, a := range s {
		all = append(all, netip.MustParseAddr(a))
	}
	return all
}

// likeRxe makes all packets of an end have M = 0.
func likeRxe(s *scene, from int) {
	s.every(from, func(p *step) { p.f.BTH.Flags &^= bth.MigReq })
}

// known has all departures, each with a change of the right scene that shows it. The changed scene may also show the departure that rxe
// has M = 0.
var known = []struct {
	departure Departure
	at        int
	depart    func(*scene)
}{
	{rxeMigReq, active, func(s *scene) { likeRxe(s, passive) }},
	{rxeFlush, active, func(s *scene) {
		p := s.step("awrite")
		p.f.BTH.Op, p.f.RETH, p.f.FETH, p.f.Payload = bth.RCFlush, reth(0x40000, 8), &bth.FETHFields{Type: bth.FlushGlobal}, nil
		p.quirk = true
	}},
	{rxeGSIAck, active, func(s *scene) { s.step("rtu").f.BTH.Flags |= bth.AckReq }},
	{rxeMiddle, passive, func(s *scene) {
		likeRxe(s, passive)
		p := s.step("read2-2-again")
		p.f.BTH.Op, p.f.AETH = bth.RCReadResponseMiddle, nil
	}},
	{rxeHeld, active, func(s *scene) {
		likeRxe(s, active)
		s.step("silent").at = s.step("rnr").at + 5*time.Millisecond
		s.step("silent").lost = true
	}},
	{rxeEarly, active, func(s *scene) {
		likeRxe(s, active)
		s.step("unready-again").at -= 5 * time.Millisecond
		s.step("ready").at -= 5 * time.Millisecond
	}},
	{rxeSilent, active, func(s *scene) {
		likeRxe(s, passive)
		s.again("rnr", "rnr", 50*time.Microsecond).f.AETH = &bth.AETHFields{Syndrome: bth.NAKSequence, MSN: 8}
	}},
	{rxeForever, active, func(s *scene) {
		likeRxe(s, active)
		s.retries(7)
		s.after("silent-again", 500*time.Millisecond)
		s.step("silent-again").at += 500 * time.Millisecond
		for i := range 7 {
			s.again("silent", "silent", time.Duration(i+1)*70*time.Millisecond).lost = true
		}
	}},
	{rxeReadACK, active, func(s *scene) {
		s.until("read")
		s.ack("read-ack", 7, bth.AckNoCredits, 3)
		likeRxe(s, passive)
	}},
	{rxeJiffies, active, func(s *scene) {
		likeRxe(s, active)
		s.step("silent-again").at = s.step("silent").at + 60*time.Millisecond
	}},
	{rxeDepth, active, func(s *scene) {
		s.depth(3)
		s.until("rtu")
		for i := range 4 {
			s.atomic("add", i)
		}
		likeRxe(s, active)
	}},
	{stackSingle, active, func(s *scene) { s.drop("behind-again", "behind-2-again", "recovered") }},
	{stackPart, passive, func(s *scene) {
		s.step("read2-again").f.RETH.DMALen = mtu
		s.step("read2-2-again").f.BTH.Op = bth.RCReadResponseOnly
		s.drop("read2-3-again")
	}},
	{stackNAK, active, func(s *scene) { s.again("nak", "nak", 5*time.Microsecond) }},
	{stackProbe, active, func(s *scene) {
		s.step("silent-again").at -= 130 * time.Millisecond
		s.step("heard").at -= 130 * time.Millisecond
	}},
	{stackDREQ, active, func(s *scene) {
		for i := range 3 {
			s.again("dreq", "dreq", time.Duration(i+1)*4200*time.Millisecond)
		}
	}},
	{stackDREQSoon, active, func(s *scene) { s.again("dreq", "dreq", 100*time.Millisecond).lost = true }},
	{stackREP, passive, func(s *scene) { s.again("rep", "rep", 500*time.Millisecond).lost = true }},
	{stackFlush, active, func(s *scene) {
		p := s.step("awrite")
		p.f.BTH.Op, p.f.RETH, p.f.FETH, p.f.Payload = bth.RCFlush, reth(0x40000, 8), &bth.FETHFields{Type: bth.FlushGlobal}, nil
		s.drop("awrite-ack")
		for _, q := range []struct {
			name string
			n    int
			op   bth.Opcode
			f    bth.Fields
		}{
			{"probe", 19, bth.RCWriteOnly, bth.Fields{RETH: reth(0, 0)}},
			{"flush-again", 20, bth.RCFlush, p.f},
		} {
			at := s.step("awrite").at + 100*time.Millisecond + time.Duration(q.n)*time.Microsecond
			s.request(q.name, active, q.n, q.op, q.f).at = at
		}
		s.response("flush-ack", passive, 20, bth.RCReadResponseOnly, bth.AckNoCredits, 14, bth.Fields{}).at = s.step("flush-again").at + time.Microsecond
		for _, name := range []string{"reply", "reply-ack", "marked", "cnp", "marked-ack", "marked-2", "cnp-2", "marked-2-ack", "uc-1", "uc-2", "uc-3", "ud", "lap", "lap-mra", "apr", "dreq", "drep"} {
			s.step(name).at += 200 * time.Millisecond
		}
	}},
}

// TestMigration: the Verifier follows a connection that migrates to other addresses.
func TestMigration(t *testing.T) {
	s := rightScene(t)
	other, err := frame.NewPath(frame.PathConfig{Src: bth.GIDFrom(addrs("10.0.1.1")[0]), Dst: bth.GIDFrom(addrs("10.0.1.2")[0]),
		SrcMAC: frame.MAC{2, 0, 0, 0, 1, 0}, DstMAC: frame.MAC{2, 0, 0, 0, 1, 1}, SrcPort: 0xC123})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"awrite", "marked", "marked-2"} {
		s.step(name).path = other
	}
	for at := range 2 {
		if all, _ := unexplained(s.judge(at, Config{Ignore: []RuleID{cnpUnmarked}})); len(all) > 0 {
			t.Errorf("%v", all)
		}
	}
}

// TestDepartures: each departure is recognised, and nothing else is found.
func TestDepartures(t *testing.T) {
	tested := map[string]bool{}
	for _, k := range known {
		tested[k.departure.ID] = true
		t.Run(k.departure.ID, func(t *testing.T) {
			s := rightScene(t)
			k.depart(s)
			r := s.judge(k.at, Config{})
			found := 0
			for i := range r.Findings {
				f := &r.Findings[i]
				switch {
				case f.Departure == nil || f.Departure.ID != k.departure.ID && f.Departure.ID != rxeMigReq.ID:
					t.Errorf("found also: %s", f)
				case f.Departure.ID == k.departure.ID:
					found++
					if f.Rule != k.departure.Rule {
						t.Errorf("a finding of %s is a departure from %s", f.Rule, k.departure.Rule)
					}
				}
			}
			if found == 0 {
				t.Error("was not recognised")
			}
			if _, any := s.judge(k.at, Config{Strict: true}).Worst(); !any {
				t.Error("does not count with Strict")
			}
			if worst, any := r.Worst(); any {
				t.Errorf("counts as %v without Strict", worst)
			}
		})
	}
	for _, d := range Departures() {
		if !tested[d.ID] {
			t.Errorf("nothing shows the departure %s", d.ID)
		}
	}
}
