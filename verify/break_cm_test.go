package verify

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
)

// message changes a message of the connection manager.
func message[M cm.Message](s *scene, name string, change func(M)) {
	p := s.step(name)
	m, err := cm.DecodeMAD(p.f.Payload)
	if err != nil {
		s.t.Fatal(err)
	}
	change(m.(M))
	var mad [cm.MADLen]byte
	m.Put(&mad)
	p.f.Payload = mad[:]
}

// migReqBreaks: an end goes back to M = 0. That it never sends M = 1 is a departure of rxe.
var migReqBreaks = []breakage{
	{headerMigReq, active, Config{}, func(s *scene) { s.step("marked").f.BTH.Flags &^= bth.MigReq }},
}

var managementBreaks = []breakage{
	{cmMAD, active, Config{}, func(s *scene) { s.step("dreq").f.Payload[3] = 9 }},
	{cmMAD, passive, Config{}, func(s *scene) { s.step("dreq").f.Payload = s.step("dreq").f.Payload[:128] }},
	{cmRepeat, active, Config{}, func(s *scene) {
		message(s, "req-again", func(m *cm.REQ) { m.RetryCount = 1 })
	}},
	{cmRetries, active, Config{}, func(s *scene) {
		for i := range 2 {
			s.again("req", "req", time.Duration(i+1)*5*time.Second)
		}
		s.after("req-again", 15*time.Second)
		s.step("req-again").at += 15 * time.Second
	}},
	{cmEarly, active, Config{}, func(s *scene) { s.step("req-again").at -= 3 * time.Second }},
	{cmIDs, active, Config{}, func(s *scene) {
		message(s, "dreq", func(m *cm.DREQ) { m.RemoteID = 0xB7 })
	}},
	{cmIDs, active, Config{}, func(s *scene) {
		message(s, "dreq", func(m *cm.DREQ) { m.RemoteQPN = 0x77 })
	}},
	{cmTID, active, Config{}, func(s *scene) {
		message(s, "rep", func(m *cm.REP) { m.TID = 99 })
	}},
	{cmTID, active, Config{}, func(s *scene) {
		message(s, "drep", func(m *cm.DREP) { m.TID = 99 })
	}},
	{cmDepth, active, Config{}, func(s *scene) {
		message(s, "rep", func(m *cm.REP) { m.InitiatorDepth = 9 })
	}},
	{cmMTU, active, Config{}, func(s *scene) {
		for _, n := range []string{"req", "req-again"} {
			message(s, n, func(m *cm.REQ) { m.MTU = 7 })
		}
	}},
	{cmAddresses, active, Config{}, func(s *scene) {
		for _, n := range []string{"req", "req-again"} {
			message(s, n, func(m *cm.REQ) { m.Private[35] = 77 })
		}
	}},
	{cmReady, active, Config{}, func(s *scene) {
		p := s.again("reply", "rep", 5*time.Microsecond)
		p.name = "too-early"
		s.drop("reply")
		a := s.again("reply-ack", "too-early", time.Microsecond)
		a.name = "early-ack"
		s.drop("reply-ack")
	}},
	{cmOver, passive, Config{}, func(s *scene) {
		s.request("late", passive, 1, bth.RCSendOnly, bth.Fields{Payload: bytesOf(3)})
	}},
}

var congestionBreaks = []breakage{
	{cnpFormat, active, Config{}, func(s *scene) { s.step("cnp").f.BTH.Flags = 0 }},
	{cnpFormat, active, Config{}, func(s *scene) { s.step("cnp").f.BTH.PSN = 4 }},
	{cnpUnmarked, passive, Config{}, func(s *scene) { s.step("marked-2").ce = false }},
	{cnpPacing, active, Config{CNPInterval: 2 * time.Millisecond}, func(*scene) {}},
	{cnpPacing, active, Config{CNPInterval: 2 * time.Millisecond, CNPScope: ByDestination}, func(*scene) {}},
}
