package verify

import (
	"cmp"
	"slices"
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

// migReqBreaks: an end that has sent M = 1 sends M = 0. (An end that never sends M = 1 shows a departure of rxe.)
var migReqBreaks = []breakage{
	{headerMigReq, active, Config{}, func(s *scene) { s.step("marked").f.BTH.Flags &^= bth.MigReq }},
}

var managementBreaks = []breakage{
	{cmMAD, active, Config{}, func(s *scene) { s.step("sidr-again").f.Payload[3] = 9 }},
	{cmMAD, passive, Config{}, func(s *scene) { s.step("sidr-again").f.Payload = s.step("sidr-again").f.Payload[:128] }},
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
		s.drop("drep")
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

// answerBreaks break further rules about messages of the connection manager, most of them about answers.
var answerBreaks = []breakage{
	{cmReserved, active, Config{}, func(s *scene) { s.step("rtu").f.Payload[4] = 1 }},       // the status of the MAD
	{cmReserved, passive, Config{}, func(s *scene) { s.step("dreq").f.Payload[24+11] = 1 }}, // behind the queue pair
	{cmValue, active, Config{}, func(s *scene) {
		message(s, "rej2", func(m *cm.REJ) { m.Reason = 34 })
	}},
	{cmValue, active, Config{}, func(s *scene) {
		message(s, "apr", func(m *cm.APR) { m.Status = 14 })
	}},
	{cmValue, active, Config{}, func(s *scene) {
		message(s, "sidr-rep", func(m *cm.SIDRREP) { m.Status = 6 })
	}},
	{cmValue, active, Config{}, func(s *scene) {
		message(s, "req2", func(m *cm.REQ) { m.Transport = cm.RD })
	}},
	{cmValue, active, Config{}, func(s *scene) {
		message(s, "rep3", func(m *cm.REP) { m.Failover = 3 })
	}},
	{cmValue, passive, Config{}, func(s *scene) {
		message(s, "rej3", func(m *cm.REJ) { m.InfoLen = 73 })
	}},
	{cmPath, active, Config{}, func(s *scene) {
		message(s, "req2", func(m *cm.REQ) { m.Primary.LocalGID = otherPath().LocalGID })
	}},
	{cmPath, active, Config{}, func(s *scene) {
		message(s, "lap", func(m *cm.LAP) { m.Alternate = cm.Path{LocalGID: addresses[active], RemoteGID: addresses[passive]} })
	}},
	{cmPath, active, Config{}, func(s *scene) {
		message(s, "req2", func(m *cm.REQ) { m.Alternate.LocalGID = addresses[active] })
	}},
	{cmIDs, active, Config{}, func(s *scene) {
		message(s, "lap", func(m *cm.LAP) { m.RemoteQPN = 0x77 })
	}},
	{cmTID, active, Config{}, func(s *scene) {
		message(s, "apr", func(m *cm.APR) { m.TID = 91 })
	}},
	{cmTID, active, Config{}, func(s *scene) {
		message(s, "lap-mra", func(m *cm.MRA) { m.TID = 91 })
	}},
	{cmTID, active, Config{}, func(s *scene) {
		message(s, "mra2", func(m *cm.MRA) { m.TID = 91 })
	}},
	{cmTID, active, Config{}, func(s *scene) {
		message(s, "rej2", func(m *cm.REJ) { m.TID = 91 })
	}},
	{cmTID, active, Config{}, func(s *scene) {
		message(s, "sidr-rep", func(m *cm.SIDRREP) { m.TID = 91 })
	}},
	{cmRepeat, active, Config{}, func(s *scene) {
		message(s, "sidr-again", func(m *cm.SIDRREQ) { m.Private[0] = 1 })
	}},
	{cmRepeat, active, Config{}, func(s *scene) {
		s.again("dreq", "drep", 5*time.Second)
		message(s, "dreq-copy", func(m *cm.DREQ) { m.Private[0] = 1 })
	}},
	{cmRetries, active, Config{}, func(s *scene) {
		message(s, "req4", func(m *cm.REQ) { m.MaxCMRetries = 1 })
		message(s, "req4-again", func(m *cm.REQ) { m.MaxCMRetries = 1 })
		message(s, "req4-last", func(m *cm.REQ) { m.MaxCMRetries = 1 })
	}},
	{cmEarly, passive, Config{}, func(s *scene) {
		s.every(passive, func(p *step) { p.f.BTH.Flags &^= bth.MigReq })
		s.again("rep", "rep", 2*time.Second).lost = true
	}},
	{cmEarly, active, Config{}, func(s *scene) {
		s.drop("lap-mra")
		s.again("lap", "lap", 2*time.Second)
		s.step("apr").at -= 3 * time.Second
	}},
	{cmMRA, active, Config{}, func(s *scene) {
		s.again("req2", "mra2", 4600*time.Millisecond).lost = true
	}},
	{cmLate, passive, Config{}, func(s *scene) { s.drop("mra2") }},
	{cmLate, passive, Config{}, func(s *scene) {
		s.after("mra2", 6*time.Second)
	}},
	{cmLate, passive, Config{}, func(s *scene) {
		s.after("dreq", 5*time.Second)
	}},
	{cmUnasked, active, Config{}, func(s *scene) { s.drop("lap", "lap-mra") }},
	{cmUnasked, active, Config{}, func(s *scene) { s.drop("lap", "apr") }},
	{cmUnasked, active, Config{}, func(s *scene) { s.drop("dreq") }},
	{cmUnasked, active, Config{}, func(s *scene) { s.drop("rep3", "mra3") }},
	{cmUnasked, active, Config{}, func(s *scene) {
		s.drop("rep3", "mra3", "rej3")
		s.datagram("dreq3", active, &cm.DREQ{Header: cm.Header{TID: 80}, LocalID: 0xA4, RemoteID: 0xB4})
	}},
	{cmSide, active, Config{}, func(s *scene) {
		s.datagram("rtu-back", passive, &cm.RTU{Header: cm.Header{TID: 77}, LocalID: 0xB1, RemoteID: 0xA1})
	}},
	{cmSide, active, Config{}, func(s *scene) {
		message(s, "rej2", func(m *cm.REJ) { m.Of = cm.OfREP })
	}},
	{cmSide, active, Config{}, func(s *scene) {
		message(s, "mra3", func(m *cm.MRA) { m.Of = cm.OfREQ })
	}},
	{cmRejected, passive, Config{}, func(s *scene) {
		rep := s.datagram("rep2", passive, &cm.REP{Header: cm.Header{TID: 79}, LocalID: 0xB3, RemoteID: 0xA3, QPN: 0x43, ResponderResources: 4, InitiatorDepth: 4})
		rep.at = s.step("rej2").at + 2*time.Second
		slices.SortStableFunc(s.steps, func(a, b *step) int { return cmp.Compare(a.at, b.at) })
	}},
	{cmReject, active, Config{}, func(s *scene) {
		message(s, "rej4", func(m *cm.REJ) { m.InfoLen = 0 })
	}},
	{cmReject, active, Config{}, func(s *scene) {
		message(s, "rej4", func(m *cm.REJ) { m.Info[7] = 1 })
	}},
	{cmSIDR, active, Config{}, func(s *scene) {
		message(s, "sidr-rep", func(m *cm.SIDRREP) { m.ServiceID++ })
	}},
	{cmSIDR, active, Config{}, func(s *scene) {
		message(s, "sidr-rep", func(m *cm.SIDRREP) { m.QPN = 0 })
	}},
}
