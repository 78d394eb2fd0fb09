package qp_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// holding is server with repair.
func holding(t testing.TB, c pairConfig) (b *bench, mem []byte, m *mr.MR) {
	c.repair, c.repairB = true, true
	return server(t, c)
}

// writeParts are the packets of a WRITE of n packets to m, the last of which requests an acknowledgement.
func writeParts(m *mr.MR, n int) (ps []packet) {
	for i := range n {
		op := bth.RCWriteMiddle
		switch i {
		case 0:
			op = bth.RCWriteFirst
		case n - 1:
			op = bth.RCWriteLast
		}
		ps = append(ps, packet{op: op, psn: e0.Add(i), va: m.Addr(), key: m.RKey(), length: uint32(n * 1024), ack: i == n-1,
			payload: bytes.Repeat([]byte{byte('a' + i)}, 1024)})
	}
	return ps
}

// wantWritten checks that the first n packets of writeParts are in memory.
func wantWritten(t testing.TB, mem []byte, n int) {
	t.Helper()
	for i := range n {
		if mem[i*1024] != byte('a'+i) || mem[i*1024+1023] != byte('a'+i) {
			t.Fatalf("packet %d is not in place", i)
		}
	}
	if mem[n*1024] != 0 {
		t.Fatalf("packet %d is in place", n)
	}
}

// TestHold: requests behind a missing one are executed when it comes, in their order and once.
func TestHold(t *testing.T) {
	b, mem, m := holding(t, pairConfig{})
	ps := writeParts(m, 8)
	b.inject(ps[0])
	b.inject(ps[2])
	b.wantAck(bth.NAKSequence, e0.Add(1))
	for _, i := range []int{3, 5, 6, 3, 2} {
		b.inject(ps[i])
	}
	wantWritten(t, mem, 1)
	b.sent()
	b.inject(ps[1])
	wantWritten(t, mem, 4)
	b.wantSilence() // a peer that goes back sends the next missing one by itself
	b.inject(ps[4])
	wantWritten(t, mem, 7)
	b.inject(ps[7])
	wantWritten(t, mem, 8)
	b.wantAck(bth.AckNoCredits, e0.Add(6)) // it may still go back: see TestHoldLate
	b.inject(ps[7])
	b.wantAck(bth.AckNoCredits, e0.Add(7))
	if c := b.cnt; c.HeldRequests != 4 || c.SeqNAKSent < 1 {
		t.Errorf("held %d requests", c.HeldRequests)
	}
	if n := b.repair.Lent(); n != 0 {
		t.Errorf("%d bytes are lent, and nothing is missing", n)
	}
}

// TestHoldEnd: an acknowledgement does not name the end of a message that was held, until the
// peer has sent it again or a later packet.
func TestHoldEnd(t *testing.T) {
	start := func() (*bench, []packet) {
		b, _, m := holding(t, pairConfig{})
		ps := writeParts(m, 4)
		b.inject(ps[0])
		b.inject(ps[2])
		b.inject(ps[3])
		b.sent()
		b.inject(ps[1])
		out := b.sent()
		if len(out) != 1 || out[0].PSN() != e0.Add(2) || out[0].MSN() != 0 {
			t.Fatalf("answered %v", summary(out))
		}
		return b, ps
	}
	b, ps := start()
	b.inject(packet{op: bth.RCWriteMiddle, psn: e0.Add(2), payload: ps[2].payload, ack: true}) // a duplicate before the end
	b.wantAck(bth.AckNoCredits, e0.Add(2))
	b.inject(ps[3])
	if out := b.sent(); len(out) != 1 || out[0].PSN() != e0.Add(3) || out[0].MSN() != 1 {
		t.Fatalf("answered %v to the end that was sent again", summary(out))
	}
	b, ps = start()
	next := ps[0]
	next.op, next.psn, next.ack, next.length = bth.RCWriteOnly, e0.Add(4), true, 1024
	b.inject(next)
	b.wantAck(bth.AckNoCredits, e0.Add(4))

	// The packet behind the end was held, too: its acknowledgement counts the message.
	b, _, m := holding(t, pairConfig{})
	ps = writeParts(m, 4)
	next.va, next.key = m.Addr(), m.RKey()
	for _, p := range []packet{ps[0], ps[2], ps[3], next} {
		b.inject(p)
	}
	b.sent()
	b.inject(ps[1])
	if out := b.sent(); len(out) != 1 || out[0].PSN() != e0.Add(4) || out[0].MSN() != 2 {
		t.Fatalf("answered %v to a message behind the end", summary(out))
	}
}

// TestHoldVerdicts: a refusal of a held request ends the hold, with the same answer as without a hold.
func TestHoldVerdicts(t *testing.T) {
	send := func(i int) packet {
		return packet{op: bth.RCSendOnly, psn: e0.Add(i), ack: true, payload: []byte("held")}
	}
	t.Run("no receive", func(t *testing.T) {
		b, _, _ := holding(t, pairConfig{}) // two receives
		for _, i := range []int{1, 2, 3, 4} {
			b.inject(send(i))
		}
		b.sent()
		b.inject(send(0))
		if out := b.sent(); len(out) != 2 || out[0].PSN() != e0.Add(1) || out[1].PSN() != e0.Add(2) || out[1].Syndrome().Kind() != bth.KindRNR {
			t.Fatalf("answered %v", summary(out))
		}
		b.inject(send(4)) // not held while the peer waits
		b.wantSilence()
		if n := len(drain(b.recv)); n != 2 || b.repair.Lent() != 0 {
			t.Fatalf("%d receives complete, %d bytes lent", n, b.repair.Lent())
		}
	})
	t.Run("key", func(t *testing.T) {
		b, _, m := holding(t, pairConfig{})
		b.inject(packet{op: bth.RCWriteOnly, psn: e0.Add(1), va: m.Addr(), key: m.RKey() ^ 1, length: 4, payload: []byte("hold")})
		b.sent()
		b.inject(send(0))
		out := b.sent()
		if len(out) == 0 || out[len(out)-1].Syndrome() != bth.NAKRemoteAccess || out[len(out)-1].PSN() != e0.Add(1) {
			t.Fatalf("answered %v", summary(out))
		}
		b.wantState(qp.Err)
		if b.NextTimeout() != mono.Never || b.repair.Lent() != 0 {
			t.Errorf("in ERR: next timeout %v, %d bytes lent", b.NextTimeout(), b.repair.Lent())
		}
	})
	t.Run("reset", func(t *testing.T) {
		b, _, _ := holding(t, pairConfig{})
		b.inject(send(1))
		must(0, b.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState))
		if b.NextTimeout() != mono.Never || b.repair.Lent() != 0 {
			t.Errorf("in RESET: next timeout %v, %d bytes lent", b.NextTimeout(), b.repair.Lent())
		}
	})
	t.Run("forever", func(t *testing.T) { // a stranger that copies the peer's addresses, or a peer that is gone
		b, _, _ := holding(t, pairConfig{})
		b.inject(send(200))
		for b.NextTimeout() != mono.Never {
			b.net.now = b.NextTimeout()
			b.HandleTimeout(b.net.now)
		}
		if b.repair.Lent() != 0 {
			t.Errorf("%d bytes are lent for ever", b.repair.Lent())
		}
	})
	t.Run("inside a READ", func(t *testing.T) { // a READ covers the PSNs of requests that are held
		b, _, m := holding(t, pairConfig{})
		b.inject(send(1))
		b.inject(send(3))
		b.sent()
		b.inject(packet{op: bth.RCReadRequest, psn: e0, va: m.Addr(), key: m.RKey(), length: 3 * 1024})
		if n := len(drain(b.recv)); n != 1 || b.repair.Lent() != 0 {
			t.Errorf("%d receives complete, %d bytes lent", n, b.repair.Lent())
		}
	})
}

// TestHoldBudget: peers that keep gaps open use up no more than the budget. Other queue pairs then only work without
// a hold.
func TestHoldBudget(t *testing.T) {
	w := newNetwork(1, impairment{})
	const budget = 1 << 20
	shared := qp.NewRepairWithin(qp.RecoverAll, budget)
	var ends []*bench
	for i := range 10 {
		a, _ := w.pair(t, pairConfig{psnB: e0, shared: shared}, i)
		ends = append(ends, &bench{node: a, t: t})
	}
	refused := uint64(0)
	for _, b := range ends {
		for i := 2; i < 400; i += 7 {
			b.inject(packet{op: bth.RCSendOnly, psn: e0.Add(i), payload: make([]byte, 1024)})
		}
		refused += b.cnt.HoldRefused
		if n := shared.Lent(); n > budget {
			t.Fatalf("%d bytes are lent", n)
		}
	}
	if refused < 5 || shared.Lent() == 0 {
		t.Errorf("%d gaps without a hold, %d bytes lent", refused, shared.Lent())
	}
	for _, b := range ends {
		must(0, b.Modify(&qp.Attr{State: qp.Err}, qp.AttrState))
	}
	if n := shared.Lent(); n != 0 {
		t.Errorf("%d bytes are lent at the end", n)
	}
}

// TestHoldNoAllocations: once a queue pair has held, losses allocate nothing at either end.
func TestHoldNoAllocations(t *testing.T) {
	a, b, _ := newPair(t, 1, impairment{}, pairConfig{timeout: 14, rd: 16, repair: true, repairB: true})
	there, back := &dropping{wire: newWire(a, true)}, &dropping{wire: newWire(b, true)}
	_, local := a.region(t, 30_000)
	_, remote := b.region(t, 30_000)
	wr := write(local, remote)
	wcs := make([]cq.WC, 8)
	if n := testing.AllocsPerRun(50, func() { there.exchange(t, back, &wr, 8, wcs) }); n != 0 {
		t.Errorf("%v allocations for 8 WRITEs", n)
	}
	if a.cnt.SingleRepairs < 100 || b.cnt.HeldRequests < 100 || b.repair.Lent() != 0 {
		t.Errorf("%d requests were sent alone, %d held, %d bytes lent", a.cnt.SingleRepairs, b.cnt.HeldRequests, b.repair.Lent())
	}
}

// singly is client with repair, that knows a round trip of 20 µs and has sent a WRITE of eight packets.
func singly(t testing.TB, c pairConfig) *bench {
	c.repair, c.repairB, c.timeout = true, true, 14
	b, _, m := client(t, c)
	b.timed(send(m, 1), s0)
	b.post(qp.SendWR{Opcode: qp.Write, SG: []mr.SGE{m.SGE(0, 8192)}, RemoteAddr: 0x1000, RKey: 0x77})
	b.sent()
	b.after(20 * time.Microsecond)
	b.inject(nak(bth.NAKSequence, s0.Add(2)))
	b.wantSent(line{bth.RCWriteMiddle, s0.Add(2)})
	return b
}

// TestSingleRepair: the requester finds out that its peer holds, and sends what is missing alone.
func TestSingleRepair(t *testing.T) {
	b := singly(t, pairConfig{})
	b.inject(nak(bth.NAKSequence, s0.Add(2))) // a copy
	b.wantSilence()
	b.after(20 * time.Microsecond)
	b.inject(nak(bth.NAKSequence, s0.Add(5))) // it holds
	b.wantSent(line{bth.RCWriteMiddle, s0.Add(5)})
	if n := b.InFlight(); n != qp.DefaultWindow {
		t.Errorf("the window has shrunk to %d", n)
	}
	b.after(20 * time.Microsecond)
	b.inject(ack(s0.Add(8)))
	b.wantDone(cq.Success)
	if c := b.cnt; c.CompleterRetryErr != 0 || c.SingleRepairs != 2 {
		t.Errorf("went back %d times, sent %d packets alone", c.CompleterRetryErr, c.SingleRepairs)
	}
	if b.NextTimeout() != mono.Never {
		t.Error("a timer runs, and nothing is outstanding")
	}
}

// TestSingleTrial: a requester goes back when it finds out that its peer drops the requests behind a missing one.
func TestSingleTrial(t *testing.T) {
	rest := []line{{bth.RCWriteMiddle, s0.Add(3)}, {bth.RCWriteMiddle, s0.Add(4)}, {bth.RCWriteMiddle, s0.Add(5)}, {bth.RCWriteMiddle, s0.Add(6)},
		{bth.RCWriteMiddle, s0.Add(7)}, {bth.RCWriteLast, s0.Add(8)}}
	t.Run("no further", func(t *testing.T) {
		b := singly(t, pairConfig{})
		b.after(20 * time.Microsecond)
		b.inject(ack(s0.Add(2)))
		b.wantSent(rest...)
		b.after(20 * time.Microsecond)
		b.inject(nak(bth.NAKSequence, s0.Add(4)))
		b.wantSent(rest[1:]...) // no other trial soon
	})
	t.Run("silence", func(t *testing.T) {
		b := singly(t, pairConfig{})
		b.net.now = b.NextTimeout()
		b.HandleTimeout(b.net.now)
		b.collect()
		b.wantSent(append([]line{{bth.RCWriteMiddle, s0.Add(2)}}, rest...)...)
	})
	t.Run("nothing new meanwhile", func(t *testing.T) {
		b := singly(t, pairConfig{})
		_, m := b.region(t, 8)
		b.post(send(m, 8))
		b.wantSilence()
		b.after(20 * time.Microsecond)
		b.inject(nak(bth.NAKSequence, s0.Add(7)))
		b.wantSent(line{bth.RCWriteMiddle, s0.Add(7)}, line{bth.RCSendOnly, s0.Add(9)})
	})
	t.Run("no retries", func(t *testing.T) {
		b, _, m := client(t, pairConfig{repair: true, retry: none})
		b.post(send(m, 3000))
		b.sent()
		b.inject(nak(bth.NAKSequence, s0.Add(1)))
		b.wantDone(cq.RetryExcErr)
	})
}

// TestSingleSteps: the requester finds out that a peer that seemed to hold does not.
func TestSingleSteps(t *testing.T) {
	b := singly(t, pairConfig{})
	b.after(20 * time.Microsecond)
	b.inject(nak(bth.NAKSequence, s0.Add(4)))
	b.wantSent(line{bth.RCWriteMiddle, s0.Add(4)})
	for i := 5; i < 7; i++ {
		b.after(20 * time.Microsecond)
		b.inject(nak(bth.NAKSequence, s0.Add(i)))
		b.wantSent(line{bth.RCWriteMiddle, s0.Add(i)})
	}
	b.after(20 * time.Microsecond)
	b.inject(nak(bth.NAKSequence, s0.Add(7)))
	b.wantSent(line{bth.RCWriteMiddle, s0.Add(7)}, line{bth.RCWriteLast, s0.Add(8)})
	if n := b.cnt.CompleterRetryErr; n != 1 {
		t.Errorf("went back %d times", n)
	}
}

// TestSingleTrialAfterTimeout: a trial that fails before there was progress since the requester went back ends too.
// It must not keep the rest waiting for the ACK timer.
func TestSingleTrialAfterTimeout(t *testing.T) {
	b, _, _, m := repairing(t, pairConfig{timeout: 14})
	b.timed(send(m, 1), s0)
	b.post(read(m, 1024))
	b.sent()
	b.expire()
	b.wantSent(line{bth.RCReadRequest, s0.Add(1)})
	for range 3 {
		b.post(send(m, 1))
	}
	b.sent()
	b.after(20 * time.Microsecond)
	b.inject(nak(bth.NAKSequence, s0.Add(3))) // and the response to the READ is lost
	b.wantSent(line{bth.RCSendOnly, s0.Add(3)})
	b.net.now = b.NextTimeout()
	b.HandleTimeout(b.net.now)
	b.collect()
	b.wantSent(line{bth.RCReadRequest, s0.Add(1)}, line{bth.RCSendOnly, s0.Add(2)}, line{bth.RCSendOnly, s0.Add(3)}, line{bth.RCSendOnly, s0.Add(4)})
}

// TestSingleTwice: the requester forgets which requests it sent twice when they are acknowledged. Half of all PSNs
// later they would seem to be outstanding.
func TestSingleTwice(t *testing.T) {
	b := singly(t, pairConfig{})
	b.after(20 * time.Microsecond)
	b.inject(ack(s0.Add(2)))
	b.sent() // goes back
	b.inject(ack(s0.Add(7)))
	if !b.SentTwice() {
		t.Error("one of the requests that were sent twice is outstanding")
	}
	b.inject(ack(s0.Add(8)))
	b.wantDone(cq.Success)
	if b.SentTwice() {
		t.Error("all requests that were sent twice are acknowledged")
	}
	for _, n := range []int{8, 1024} { // with the short cut for READs
		b, _, data, m := repairing(t, pairConfig{})
		b.post(read(m, n))
		b.sent()
		b.expire()
		b.wantSent(line{bth.RCReadRequest, s0})
		b.inject(packet{op: bth.RCReadResponseOnly, psn: s0, syndrome: bth.AckNoCredits, payload: data[:n]})
		b.wantDone(cq.Success)
		if b.SentTwice() {
			t.Error("the READ that was sent twice is complete")
		}
	}
}

// TestSingleBusy: while the peer still answers earlier requests, the requester does not send the missing one again,
// and does not take the peer for one that drops.
func TestSingleBusy(t *testing.T) {
	b, _, data, m := repairing(t, pairConfig{timeout: 14, rd: 8})
	b.timed(send(m, 1), s0)
	for range 4 {
		b.post(read(m, 2048))
	}
	b.sent()
	answer := func(i int) {
		b.inject(packet{op: bth.RCReadResponseMiddle, psn: s0.Add(1 + i), syndrome: bth.AckNoCredits, payload: data[:1024]})
	}
	wait := func(d time.Duration) {
		end := b.net.now.Add(d)
		for b.NextTimeout() <= end {
			b.net.now = b.NextTimeout()
			b.HandleTimeout(b.net.now)
			b.collect()
		}
		b.net.now = end
	}
	b.after(20 * time.Microsecond)
	answer(0)
	answer(1)
	b.inject(nak(bth.NAKSequence, s0.Add(1+2))) // the second request is missing
	b.wantSent(line{bth.RCReadRequest, s0.Add(1 + 2)})
	for i := 2; i < 4; i++ {
		answer(i) // which ends the repair, but does not tell yet whether the peer has held the third
	}
	b.after(10 * time.Microsecond)
	for i := 4; i < 7; i++ {
		answer(i)
		wait(15 * time.Microsecond)
	}
	b.wantSilence()
	answer(7)
	b.wantDone(cq.Success, cq.Success, cq.Success, cq.Success)
	if c := b.cnt; c.SingleRepairs != 1 || c.CompleterRetryErr != 0 {
		t.Errorf("%d requests were sent alone, and the requester went back %d times", c.SingleRepairs, c.CompleterRetryErr)
	}
}

// TestLossyProbe: after a loss, the requester sends its probe sooner.
func TestLossyProbe(t *testing.T) {
	b, _, data, m := repairing(t, pairConfig{timeout: 14})
	b.timed(send(m, 1), s0)
	probe := func() time.Duration { // after which it would send one
		b.post(read(m, 1024))
		psn := b.sent()[0].PSN()
		wait := b.NextTimeout().Sub(b.net.now)
		b.after(20 * time.Microsecond)
		b.inject(packet{op: bth.RCReadResponseOnly, psn: psn, syndrome: bth.AckNoCredits, payload: data[:1024]})
		b.wantDone(cq.Success)
		return wait
	}
	before := probe()
	b.post(read(m, 2048))
	first := b.sent()[0].PSN()
	b.after(20 * time.Microsecond)
	b.inject(packet{op: bth.RCReadResponseLast, psn: first.Add(1), syndrome: bth.AckNoCredits, payload: data[:1024]})
	b.sent()
	b.after(20 * time.Microsecond)
	b.inject(packet{op: bth.RCReadResponseOnly, psn: first, syndrome: bth.AckNoCredits, payload: data[:1024]})
	b.wantDone(cq.Success)
	if after := probe(); after > before/2 {
		t.Errorf("a probe after %v where a response was lost, before that after %v", after, before)
	}
}
