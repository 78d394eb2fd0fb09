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

// habits is a responder that holds, and has learnt that its peer goes back. Its peer sends WRITEs of one packet.
type habits struct {
	*bench
	one  packet
	next bth.PSN // expected by the responder
}

// goingBack returns a responder whose peer has gone back for some gaps. If the network reorders, the responder has
// learnt to wait before it sends a NAK.
func goingBack(t *testing.T, reorders bool) *habits {
	b, _, m := holding(t, pairConfig{})
	h := &habits{bench: b, one: packet{op: bth.RCWriteOnly, va: m.Addr(), key: m.RKey(), length: 4, payload: []byte("once")}, next: e0}
	h.gap(100 * us)
	h.write(h.next.Add(-1)) // it goes back
	if reorders {
		h.after(time.Millisecond)
		h.gap(60 * us) // too soon for an answer to the NAK
		h.write(h.next.Add(-1))
		h.after(40 * us)
		h.write(h.next.Add(-2)) // the answer
		if h.cnt.PrematureNAK != 1 {
			t.Fatalf("%d NAKs were premature", h.cnt.PrematureNAK)
		}
	}
	for range 4 {
		h.after(time.Millisecond)
		h.gap(100 * us)
		h.write(h.next.Add(-1))
		h.write(h.next.Add(-2))
	}
	h.after(time.Millisecond)
	h.sent()
	return h
}

// write injects a WRITE of one packet.
func (h *habits) write(psn bth.PSN) {
	p := h.one
	p.psn = psn
	h.inject(p)
}

// gap injects two WRITEs in reverse order. The first of them is late.
func (h *habits) gap(late time.Duration) {
	h.write(h.next.Add(1))
	h.wait(late)
	h.write(h.next)
	h.next = h.next.Add(2)
}

// wait lets time pass, and handles what falls due meanwhile.
func (b *bench) wait(d time.Duration) {
	end := b.net.now.Add(d)
	for b.NextTimeout() <= end {
		b.net.now = max(b.net.now, b.NextTimeout())
		b.HandleTimeout(b.net.now)
		b.collect()
	}
	b.net.now = end
}

// answersTo reports whether the engine has sent an ACKNOWLEDGE for a PSN with a syndrome. It forgets what was sent.
func (b *bench) answersTo(psn bth.PSN, s bth.Syndrome) (n int) {
	for _, p := range b.sent() {
		if p.Op == bth.RCAck && p.PSN() == psn && p.Syndrome() == s {
			n++
		}
	}
	return n
}

// withholding is a responder that does not acknowledge the end of its peer's last message, of the PSNs up to e0+3, yet.
func withholding(t *testing.T) *bench {
	b, _, m := holding(t, pairConfig{})
	ps := writeParts(m, 4)
	for _, i := range []int{0, 2, 3, 1} {
		b.inject(ps[i])
	}
	if n := b.answersTo(e0.Add(3), bth.AckNoCredits); n != 0 {
		t.Fatal("the end is acknowledged at once")
	}
	return b
}

// TestWithheldStranger: a stranger's packet does not keep the responder from acknowledging the end of a message, and
// from repeating that. The peer, which has everything sent, may be waiting for nothing else.
func TestWithheldStranger(t *testing.T) {
	ahead := packet{op: bth.RCSendOnly, psn: e0.Add(100), payload: []byte("forged")}
	long := ahead
	long.psn, long.payload = e0.Add(101), make([]byte, 2000) // there is no room for it
	far := ahead
	far.psn = e0.Add(1 << 20)
	for _, c := range []struct {
		name   string
		forged []packet
	}{{"a gap", []packet{ahead}}, {"a gap and no room", []packet{ahead, long}}, {"no room", []packet{long}}, {"any PSN", []packet{far}}} {
		t.Run(c.name, func(t *testing.T) {
			b := withholding(t)
			for _, p := range c.forged {
				b.inject(p)
			}
			b.sent()
			b.wait(time.Second)
			if n := b.answersTo(e0.Add(3), bth.AckNoCredits); n != 6 {
				t.Errorf("acknowledged %d times, want 6", n)
			}
			if b.NextTimeout() != mono.Never || b.repair.Lent() != 0 {
				t.Errorf("next timeout %v, %d bytes lent", b.NextTimeout(), b.repair.Lent())
			}
		})
	}
}

// TestWithheldBeyond: the responder acknowledges the end of a message at once if the peer can repeat nothing more
// because of a NAK. Otherwise nothing would remind the responder to acknowledge it.
func TestWithheldBeyond(t *testing.T) {
	h := goingBack(t, false)
	h.gap(10 * us) // late: the peer does not repeat anything, because the NAK is lost
	const window = 256
	end := h.next.Add(window) // the first PSN behind which nothing is repeated
	for psn := h.next; psn.Less(end.Add(-1)); psn = psn.Add(1) {
		h.write(psn)
	}
	h.sent()
	p := packet{op: bth.RCWriteFirst, psn: end.Add(-1), va: h.one.va, key: h.one.key, length: 1028, payload: make([]byte, 1024)}
	h.inject(p)
	p.op, p.psn, p.payload, p.ack = bth.RCWriteLast, end, []byte("last"), true
	h.inject(p)
	h.wait(time.Second)
	if h.answersTo(end, bth.AckNoCredits) == 0 {
		t.Error("the end of the message is never acknowledged")
	}
}

// TestHoldCopies: copies of old requests, which anyone can forge, do not keep a gap open, and do not keep the
// responder from requesting what is missing.
func TestHoldCopies(t *testing.T) {
	b, _, m := holding(t, pairConfig{})
	ps := writeParts(m, 6)
	for _, i := range []int{0, 2, 4, 1} {
		b.inject(ps[i])
	}
	b.sent() // 3 is missing, and the peer, which may go back, is not asked for it yet
	for range 200 {
		b.inject(ps[0])
		b.wait(100 * us)
	}
	if b.answersTo(e0.Add(3), bth.NAKSequence) == 0 {
		t.Error("no NAK for the missing request")
	}
	if n := b.repair.Lent(); n != 0 {
		t.Errorf("%d bytes are lent after 20 ms without progress", n)
	}
}

// TestHoldLateTimer: a responder that gets no processor for long sends the NAK that was due meanwhile.
func TestHoldLateTimer(t *testing.T) {
	const late = 100 * time.Millisecond
	b, _, m := holding(t, pairConfig{})
	ps := writeParts(m, 6)
	for _, i := range []int{0, 2, 4, 1} {
		b.inject(ps[i])
	}
	b.sent()
	b.after(late)
	b.HandleTimeout(b.net.now)
	b.collect()
	if b.answersTo(e0.Add(3), bth.NAKSequence) == 0 {
		t.Error("no NAK for the request behind a filled gap")
	}

	h := goingBack(t, true)
	h.write(h.next.Add(1))
	h.wantSilence() // the missing request may only be late
	h.after(late)
	h.HandleTimeout(h.net.now)
	h.collect()
	if h.answersTo(h.next, bth.NAKSequence) == 0 {
		t.Error("no NAK for a request that seemed to be late")
	}
}

// TestHoldRead: a READ of a peer that goes back is held if the request before it may only be late. Then there is no
// NAK, and the peer does not send the READ again.
func TestHoldRead(t *testing.T) {
	h := goingBack(t, true)
	read := packet{op: bth.RCReadRequest, psn: h.next.Add(1), va: h.one.va, key: h.one.key, length: 4}
	h.inject(read)
	h.wait(10 * us)
	h.wantSilence()
	h.write(h.next)
	h.want(bth.RCReadResponseOnly, read.psn)
}

// TestWithheldRefused: a request without a receive does not have the message before it acknowledged again and again: the
// peer would take that for progress, and would not wait for the receive.
func TestWithheldRefused(t *testing.T) {
	b := withholding(t)
	for i := range 2 {
		b.inject(packet{op: bth.RCSendOnly, psn: e0.Add(4 + i), ack: true})
	}
	_, m := b.region(t, 2048)
	long := packet{op: bth.RCWriteFirst, psn: e0.Add(6), va: m.Addr(), key: m.RKey(), length: 1028, payload: make([]byte, 1024)}
	b.inject(long)
	long.op, long.psn, long.payload = bth.RCWriteLast, e0.Add(7), []byte("last")
	b.inject(long)
	b.inject(packet{op: bth.RCSendOnly, psn: e0.Add(8), ack: true})
	if b.cnt.SendRNRErr != 1 {
		t.Fatal("the request is not refused")
	}
	b.sent()
	b.wait(time.Second)
	b.wantSilence()
}

// again connects the engine again, with the same PSNs.
func (b *bench) again(c pairConfig) {
	b.t.Helper()
	must(0, b.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState))
	connect(b.t, b.node, b.peer, c.withDefaults(), c.psnA, c.psnB)
	b.collect()
	b.sent()
}

// TestHoldAgain: a queue pair is connected again with the same PSNs, and packets of the old connection arrive before
// those of the new one. The responder executes none of them.
func TestHoldAgain(t *testing.T) {
	b, mem, m := holding(t, pairConfig{})
	ps := writeParts(m, 8)
	b.again(pairConfig{psnB: e0})
	for _, i := range []int{1, 2, 3} {
		b.inject(ps[i])
	}
	b.sent()
	b.inject(ps[0])
	wantWritten(t, mem, 1)
	for _, i := range []int{2, 1} { // from here on it holds
		b.inject(ps[i])
	}
	wantWritten(t, mem, 3)
	if n := b.cnt.HeldRequests; n != 1 {
		t.Errorf("%d requests were held", n)
	}
}

// TestReadAgain: the same for a requester. A response of the old connection must not take the place of one of the new.
func TestReadAgain(t *testing.T) {
	b, mem, data, m := repairing(t, pairConfig{})
	b.again(pairConfig{psnA: s0})
	old := bytes.Repeat([]byte{0xEE}, len(data))
	b.post(read(m, 4096))
	b.sent()
	for i := 1; i < 3; i++ {
		b.inject(part(bth.RCReadResponseMiddle, old, 4096, i))
	}
	b.sent()
	b.inject(part(bth.RCReadResponseFirst, data, 4096, 0))
	b.inject(part(bth.RCReadResponseLast, data, 4096, 3)) // from here on it keeps early responses
	b.wantPart(1, 2)
	for i := 1; i < 3; i++ {
		b.inject(part(bth.RCReadResponseMiddle, data, 4096, i))
	}
	b.wantDone(cq.Success)
	if !bytes.Equal(mem[:4096], data[:4096]) {
		t.Error("data differ")
	}
}

// TestAckAgain: an acknowledgement or a NAK of the old connection arrives while the first READ of the new one waits for
// its responses. It completes none of the requests behind that READ.
func TestAckAgain(t *testing.T) {
	for name, old := range map[string]packet{"ACK": ack(s0.Add(4)), "NAK": nak(bth.NAKSequence, s0.Add(5))} {
		t.Run(name, func(t *testing.T) {
			b, _, data, m := repairing(t, pairConfig{})
			b.again(pairConfig{psnA: s0})
			b.post(read(m, 4096))
			for range 2 {
				b.post(qp.SendWR{Opcode: qp.Write, SG: []mr.SGE{m.SGE(0, 8)}, RemoteAddr: 0x1000, RKey: 0x77})
			}
			b.sent()
			b.inject(old)
			for i, op := range []bth.Opcode{bth.RCReadResponseFirst, bth.RCReadResponseMiddle, bth.RCReadResponseMiddle, bth.RCReadResponseLast} {
				b.inject(part(op, data, 4096, i))
			}
			b.wantDone(cq.Success) // the READ: the peer may not have got the WRITEs
		})
	}
}
