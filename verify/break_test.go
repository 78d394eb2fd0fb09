package verify

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
)

// breakage changes the right scene so that a capture at one end breaks one rule.
type breakage struct {
	rule  RuleID
	at    int
	cfg   Config
	spoil func(*scene)
}

// flags sets flags of a packet.
func flags(name string, f bth.BTHFlags) func(*scene) {
	return func(s *scene) { s.step(name).f.BTH.Flags |= f }
}

// bits changes bytes of a packet before its ICRC is computed.
func bits(name string, f func([]byte)) func(*scene) {
	return func(s *scene) { s.step(name).bits = f }
}

// wire changes a frame.
func wire(name string, f func([]byte) []byte) func(*scene) {
	return func(s *scene) { s.step(name).wire = f }
}

// Offsets in a frame.
const (
	ethernetLen = 14
	udpAt       = ethernetLen + 20
	bthAt       = udpAt + 8
)

// checksum corrects the checksum of the IPv4 header.
func checksum(b []byte) []byte {
	h := b[ethernetLen : ethernetLen+20]
	h[10], h[11] = 0, 0
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(h[i])<<8 | uint32(h[i+1])
	}
	for sum>>16 != 0 {
		sum = sum&0xFFFF + sum>>16
	}
	h[10], h[11] = byte(^sum>>8), byte(^sum)
	return b
}

// headerBreaks break rules about malformed frames and about headers. Most of them change the datagram "ud", which belongs to no
// connection.
var headerBreaks = []breakage{
	{headerShort, active, Config{}, wire("ud", func(b []byte) []byte { // a datagram without its DETH
		n := len(b) - 4*4
		b = b[:n]
		b[ethernetLen+3] -= 16
		b[udpAt+5] -= 16
		return checksum(b)
	})},
	{headerOpcode, active, Config{}, bits("ud", func(b []byte) { b[0] = 0x15 })},
	{headerVersion, active, Config{}, bits("ud", func(b []byte) { b[1] |= 1 })},
	{headerPad, active, Config{}, func(s *scene) {
		s.step("ud").f.Payload = nil
		s.step("ud").bits = func(b []byte) { b[1] |= 0x30 }
	}},
	{headerPadBytes, active, Config{}, bits("ud", func(b []byte) { b[len(b)-1] = 1 })},
	{headerReserved, active, Config{}, bits("send-first", func(b []byte) { b[8] |= 1 })},
	{headerReserved, passive, Config{}, flags("send-ack", bth.FECN)},
	{headerExtended, active, Config{}, bits("send-ack", func(b []byte) { b[12] |= 0x80 })},
	{headerExtended, active, Config{}, bits("ud", func(b []byte) { b[16] = 7 })},
	{headerSolicited, active, Config{}, flags("send-first", bth.Solicited)},
	{headerSolicited, active, Config{}, flags("read", bth.Solicited)},
	{headerAckReq, active, Config{}, flags("send-ack", bth.AckReq)},
	{headerAckReq, active, Config{}, flags("uc-2", bth.AckReq)},
	{headerPKey, active, Config{}, bits("ud", func(b []byte) { b[2], b[3] = 0x80, 0 })},
	{headerPKey, active, Config{}, func(s *scene) {
		s.step("uc-3").bits = func(b []byte) { b[2], b[3] = 0x12, 0x34 }
	}},
	{headerDestQP, active, Config{}, func(s *scene) { s.step("ud").f.BTH.DestQPN = bth.QPNMulticast }},
	{headerDestQP, active, Config{}, bits("ud", func(b []byte) { b[5], b[6], b[7] = 0, 0, 0 })},
	{headerICRC, active, Config{}, wire("ud", func(b []byte) []byte { b[len(b)-1] ^= 1; return b })},
	{headerIP, active, Config{}, wire("ud", func(b []byte) []byte {
		b = slices.Insert(b, udpAt, 1, 1, 1, 1)
		b[ethernetLen], b[ethernetLen+3] = 0x46, b[ethernetLen+3]+4
		var sum uint32
		h := b[ethernetLen : ethernetLen+24]
		h[10], h[11] = 0, 0
		for i := 0; i < 24; i += 2 {
			sum += uint32(h[i])<<8 | uint32(h[i+1])
		}
		for sum>>16 != 0 {
			sum = sum&0xFFFF + sum>>16
		}
		h[10], h[11] = byte(^sum>>8), byte(^sum)
		return b
	})},
	{headerFragment, active, Config{}, wire("ud", func(b []byte) []byte { b[ethernetLen+6] |= 0x20; return checksum(b) })},
	{headerIPChecksum, active, Config{}, wire("ud", func(b []byte) []byte { b[ethernetLen+10] ^= 1; return b })},
	{headerDontFrag, active, Config{}, func(s *scene) {
		p := s.step("ud")
		p.wire = func(b []byte) []byte { // the flag is part of the ICRC
			b[ethernetLen+6] = 0
			return sign(checksum(b))
		}
	}},
	{headerUDPLength, active, Config{}, wire("ud", func(b []byte) []byte { b[udpAt+4], b[udpAt+5] = 0, 4; return b })},
	{headerUDPChecksum, active, Config{}, wire("ud", func(b []byte) []byte { b[udpAt+6], b[udpAt+7] = 0x12, 0x34; return b })},
	{headerGSIKey, active, Config{}, func(s *scene) { s.step("dreq").f.DETH.QKey = 5 }},
}

// sign computes the ICRC of a frame again.
func sign(b []byte) []byte {
	masked := slices.Clone(b[ethernetLen:])
	masked[1], masked[8], masked[10], masked[11] = 0xFF, 0xFF, 0xFF, 0xFF
	masked[26], masked[27] = 0xFF, 0xFF
	crc := bth.CRCSeed.Update(masked[:28])
	n := len(masked) - bth.ICRCLen
	bth.PutICRC(b[len(b)-bth.ICRCLen:], crc.UpdateBTH(masked[28:]).Update(masked[28+bth.BTHLen:n]))
	return b
}

var lengthBreaks = []breakage{
	{lengthMTU, active, Config{}, func(s *scene) { s.step("send-middle").f.Payload = bytesOf(512) }},
	{lengthMTU, passive, Config{}, func(s *scene) { s.step("send-middle").f.Payload = bytesOf(1000) }},
	{lengthLast, active, Config{}, func(s *scene) { s.step("send-last").f.Payload = nil }},
	{lengthLast, passive, Config{}, func(s *scene) { s.step("send-last").f.Payload = bytesOf(1100) }},
	{lengthWrite, active, Config{}, func(s *scene) { s.step("write-last").f.Payload = bytesOf(400) }},
	{lengthWrite, active, Config{}, func(s *scene) { s.step("write-last").f.Payload = bytesOf(500) }},
	{lengthMax, active, Config{}, func(s *scene) { // a WRITE that is never finished
		s.until("write-first")
		s.step("write-first").f.RETH.DMALen = 1<<31 + 1
	}},
	{lengthNone, active, Config{}, func(s *scene) { s.step("send-ack").f.Payload = bytesOf(4) }},
	{lengthAtomicWrite, active, Config{}, func(s *scene) { s.step("awrite").f.Payload = bytesOf(4) }},
	{orderMessage, active, Config{}, func(s *scene) { s.step("send-first").f.BTH.Op = bth.RCSendMiddle }},
	{orderMessage, active, Config{}, func(s *scene) {
		s.until("send-last")
		s.step("send-last").f.BTH.Op = bth.RCWriteLast
	}},
	{orderMessage, active, Config{}, func(s *scene) {
		s.until("send-middle")
		s.step("send-middle").f.BTH.Op = bth.RCSendOnly
	}},
}

var requesterBreaks = []breakage{
	{psnGap, active, Config{}, func(s *scene) { s.drop("behind") }},
	{psnStart, active, Config{}, func(s *scene) {
		s.until("rtu")
		s.request("first", active, -3, bth.RCSendOnly, bth.Fields{Payload: bytesOf(3)})
	}},
	{psnWindow, active, Config{}, func(s *scene) {
		s.drop("read-1", "read-2", "read-3")
		s.until("read")
		s.wait(time.Millisecond)
		r := s.step("read")
		r.f.RETH.DMALen = 1 << 31 // 2^21 responses each
		for i := 1; i < 4; i++ {
			p := s.again("read", s.steps[len(s.steps)-1].name, time.Millisecond)
			p.name = "read-more"
			p.f.BTH.PSN = r.f.BTH.PSN.Add(i << 21)
		}
	}},
	{psnUC, active, Config{}, func(s *scene) { s.drop("uc-2") }},
	{goBackPlace, active, Config{}, func(s *scene) {
		s.step("lost").lost = false
		s.drop("lost-again")
		s.step("nak").f.BTH.PSN = start[active].Add(10)
	}},
	{goBackSkip, active, Config{}, func(s *scene) {
		s.drop("behind-again", "behind-2-again", "recovered")
		s.every(active, func(p *step) { p.f.BTH.Flags &^= bth.MigReq })
	}},
	{goBackUnacked, active, Config{}, func(s *scene) {
		s.drop("nak", "lost-again")
		for _, n := range []string{"behind-again", "behind-2-again"} {
			s.step(n).at += 80 * time.Millisecond
		}
		s.after("behind-2-again", 80*time.Millisecond)
	}},
	{repeatDiffers, active, Config{}, func(s *scene) { s.step("lost-again").f.Payload = bytesOf(7) }},
	{repeatNeedless, active, Config{}, func(s *scene) { s.again("silent", "heard", 5*time.Millisecond).lost = true }},
	{repeatEarly, active, Config{}, func(s *scene) {
		s.step("silent").lost = false
		s.every(active, func(p *step) { p.f.BTH.Flags &^= bth.MigReq })
		for _, n := range []string{"silent-again", "heard"} {
			s.step(n).at -= 130 * time.Millisecond
		}
	}},
	{repeatCount, active, Config{}, func(s *scene) {
		for i := range 2 {
			p := s.again("silent", "silent", time.Duration(i+1)*70*time.Millisecond)
			p.lost = true
		}
		s.after("silent-again", 100*time.Millisecond)
		s.step("silent-again").at += 100 * time.Millisecond
	}},
	{requestAfterFatal, active, Config{}, func(s *scene) {
		s.until("heard")
		s.step("ready").f.AETH.Syndrome = bth.NAKRemoteOp
		s.step("ready").f.AETH.MSN = 8
		s.drop("heard")
		s.drop("silent")
	}},
	{creditsExceeded, active, Config{}, func(s *scene) { s.step("write-ack").f.AETH.Syndrome = 2 }},
}

// after delays all packets behind the one with this name.
func (s *scene) after(name string, d time.Duration) {
	for _, p := range s.steps[s.index(name)+1:] {
		p.at += d
	}
}

var responderBreaks = []breakage{
	{ackUnsent, active, Config{}, func(s *scene) { s.step("send-ack").f.BTH.PSN = start[active].Add(3) }},
	{ackUnreceived, passive, Config{}, func(s *scene) {
		s.drop("nak", "lost-again", "behind-again", "behind-2-again")
		s.until("recovered")
	}},
	{ackBackwards, active, Config{}, func(s *scene) {
		p := s.again("send-ack", "write-ack", 5*time.Microsecond)
		p.f.AETH = &bth.AETHFields{Syndrome: bth.AckNoCredits, MSN: 2}
	}},
	{aethSyndrome, active, Config{}, func(s *scene) { s.step("send-ack").f.AETH.Syndrome = 0x40 }},
	{aethSyndrome, active, Config{}, func(s *scene) { s.step("read-1").f.AETH.Syndrome = bth.NAKRemoteOp }},
	{responseKind, active, Config{}, func(s *scene) {
		p := s.step("add-1-ack")
		p.f.BTH.Op, p.f.AtomicAckETH = bth.RCAck, nil
	}},
	{responseKind, passive, Config{}, func(s *scene) {
		p := s.step("send-ack")
		p.f.BTH.Op, p.f.AtomicAckETH = bth.RCAtomicAck, &bth.AtomicAckETHFields{}
	}},
	{responseOrder, passive, Config{}, func(s *scene) {
		s.until("add-1")
		s.request("later", active, 9, bth.RCSendOnly, bth.Fields{})
		s.ack("later-ack", 9, bth.AckNoCredits, 5)
		s.atomicAck("add-1-ack", 8, 5, 10)
	}},
	{responseAfterFatal, passive, Config{}, func(s *scene) {
		s.until("ready")
		s.step("ready").f.AETH.Syndrome, s.step("ready").f.AETH.MSN = bth.NAKRemoteOp, 8
		s.wait(time.Second)
		s.ack("late", 13, bth.AckNoCredits, 9).at += time.Second
	}},
	{msnCount, active, Config{}, func(s *scene) { s.step("write-ack").f.AETH.MSN = 1 }},
	{msnCount, passive, Config{}, func(s *scene) { s.step("write-ack").f.AETH.MSN = 9 }},
	{msnBackwards, active, Config{}, func(s *scene) {
		early := s.step("send-ack") // it is late: its MSN includes the WRITE that has arrived meanwhile
		early.at, early.f.AETH.MSN = s.step("write-last").at+5*time.Microsecond, 2
		late := s.again("send-ack", "write-last", 7*time.Microsecond)
		late.f.AETH = &bth.AETHFields{Syndrome: bth.AckNoCredits, MSN: 1}
	}},
	{nakAcked, active, Config{}, func(s *scene) {
		s.again("nak", "recovered", 5*time.Microsecond)
	}},
	{nakNoGap, active, Config{}, func(s *scene) {
		s.until("lost")
		s.ack("nak", 10, bth.NAKSequence, 5)
	}},
	{nakPlace, passive, Config{}, func(s *scene) {
		s.until("nak")
		s.step("nak").f.BTH.PSN = start[active].Add(11)
	}},
	{nakRepeated, active, Config{}, func(s *scene) {
		s.again("nak", "nak", 5*time.Microsecond)
		s.every(passive, func(p *step) { p.f.BTH.Flags &^= bth.MigReq })
	}},
}

var readBreaks = []breakage{
	{readRange, active, Config{}, func(s *scene) { // data for a SEND
		s.until("send-ack")
		p := s.step("send-ack")
		p.f.BTH.Op, p.f.Payload = bth.RCReadResponseOnly, bytesOf(4)
	}},
	{readGap, passive, Config{}, func(s *scene) { s.drop("read-2") }},
	{readOpcode, active, Config{}, func(s *scene) {
		p := s.step("read-1")
		p.f.BTH.Op, p.f.AETH = bth.RCReadResponseMiddle, nil
	}},
	{readOpcode, passive, Config{}, func(s *scene) {
		p := s.step("read-3")
		p.f.BTH.Op, p.f.AETH, p.f.Payload = bth.RCReadResponseMiddle, nil, bytesOf(mtu)
	}},
	{readOpcode, passive, Config{}, func(s *scene) { // a repeated part begins with a MIDDLE response; the responder is not rxe
		p := s.step("read2-2-again")
		p.f.BTH.Op, p.f.AETH = bth.RCReadResponseMiddle, nil
	}},
	{readLength, active, Config{}, func(s *scene) { s.step("read-3").f.Payload = bytesOf(450) }},
	{readLength, passive, Config{}, func(s *scene) { s.step("read-2").f.Payload = bytesOf(512) }},
	{readRedundant, passive, Config{}, func(s *scene) {
		for i, n := range []string{"read-1", "read-2", "read-3"} {
			p := s.again(n, "read-3", time.Duration(i+1)*time.Microsecond)
			p.name = n + "-more"
		}
	}},
	{readAgain, active, Config{}, func(s *scene) { s.step("read2-again").f.RETH.VA += 8 }},
	{readAgain, passive, Config{}, func(s *scene) { s.step("read2-again").f.RETH.DMALen += 8 }},
	{readAgain, passive, Config{}, func(s *scene) {
		s.every(active, func(p *step) { p.f.BTH.Flags &^= bth.MigReq })
		s.step("read2-again").f.RETH.DMALen = mtu
		p := s.step("read2-2-again")
		p.f.BTH.Op = bth.RCReadResponseOnly
		s.drop("read2-3-again")
	}},
	{readDepth, active, Config{}, func(s *scene) {
		s.until("rtu")
		for i := range 5 {
			s.atomic("add", i)
		}
	}},
}

var atomicBreaks = []breakage{
	{atomicReplay, passive, Config{}, func(s *scene) { s.step("add-3-ack-again").f.AtomicAckETH.Value = 10 }},
	{atomicTwice, passive, Config{}, func(s *scene) {
		s.step("add-3-ack").f.AtomicAckETH.Value = 12
		s.step("add-3-ack-again").f.AtomicAckETH.Value = 12
		s.step("add-4-ack").f.AtomicAckETH.Value = 14
	}},
	{atomicValue, active, Config{}, func(s *scene) { s.step("add-2-ack").f.AtomicAckETH.Value = 99 }},
	{atomicAlign, active, Config{}, func(s *scene) { s.step("add-1").f.AtomicETH.VA = 0x2004 }},
}

var rnrBreaks = []breakage{
	{rnrEarly, active, Config{}, func(s *scene) {
		s.step("unready-again").at -= 5 * time.Millisecond
		s.step("ready").at -= 5 * time.Millisecond
	}},
	{rnrHeld, active, Config{}, func(s *scene) {
		s.step("silent").at = s.step("rnr").at + 5*time.Millisecond
		s.step("silent").lost = true
	}},
	{rnrSilence, active, Config{}, func(s *scene) {
		p := s.again("rnr", "rnr", 50*time.Microsecond)
		p.f.AETH = &bth.AETHFields{Syndrome: bth.NAKSequence, MSN: 8}
	}},
	{rnrKind, active, Config{}, func(s *scene) {
		for _, n := range []string{"unready", "unready-again"} {
			p := s.step(n)
			p.f.BTH.Op, p.f.RETH = bth.RCWriteOnly, reth(0x100, 20)
		}
	}},
}

// breaks returns the breakages of all rules.
func breaks() []breakage {
	return slices.Concat(headerBreaks, migReqBreaks, lengthBreaks, requesterBreaks, responderBreaks, readBreaks, atomicBreaks, rnrBreaks, managementBreaks, answerBreaks, congestionBreaks, counterBreaks)
}

// TestEachRuleAlone: a scene that breaks one rule has findings of this rule and of no other.
func TestEachRuleAlone(t *testing.T) {
	covered := map[RuleID]bool{}
	for _, b := range breaks() {
		covered[b.rule] = true
		t.Run(string(b.rule), func(t *testing.T) {
			s := rightScene(t)
			b.spoil(s)
			all, byRule := unexplained(s.judge(b.at, b.cfg))
			if len(byRule) != 1 || byRule[b.rule] == 0 {
				t.Errorf("found %v, want %s only:", slices.Sorted(maps.Keys(byRule)), b.rule)
				for _, f := range all {
					t.Log(f)
				}
			}
		})
	}
	for _, r := range Rules() {
		if !covered[r.ID] {
			t.Errorf("nothing breaks the rule %s", r.ID)
		}
	}
}
