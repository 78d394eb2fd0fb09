package qp_test

import (
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// after lets time pass.
func (b *bench) after(d time.Duration) { b.net.now = b.net.now.Add(d) }

// timed makes the requester know a round trip of 20 µs, with a message that is
// done at psn.
func (b *bench) timed(wr qp.SendWR, psn bth.PSN) {
	b.t.Helper()
	b.post(wr)
	b.sent()
	b.after(20 * time.Microsecond)
	b.inject(ack(psn))
	b.wantDone(cq.Success)
}

// TestRepeatedNAK: a second NAK for the same packet makes the requester send it again, if the NAK can be about the
// retransmission. A copy of the first NAK does not.
func TestRepeatedNAK(t *testing.T) {
	b, _, m := client(t, pairConfig{retry: 2, timeout: 14})
	b.timed(send(m, 1), s0)
	b.post(send(m, 3000))
	all := []line{{bth.RCSendFirst, s0.Add(1)}, {bth.RCSendMiddle, s0.Add(2)}, {bth.RCSendLast, s0.Add(3)}}
	b.wantSent(all...)
	b.after(20 * time.Microsecond)
	b.inject(nak(bth.NAKSequence, s0.Add(1)))
	b.wantSent(all...)
	b.after(5 * time.Microsecond)
	b.inject(nak(bth.NAKSequence, s0.Add(1)))
	b.wantSilence()
	b.after(15 * time.Microsecond)
	b.inject(nak(bth.NAKSequence, s0.Add(1)))
	b.wantSent(all...)
	// More of these NAKs than there are retries may be about earlier packets: a peer that had no processor for a
	// while still has to handle those.
	for range 20 {
		b.after(20 * time.Microsecond)
		b.inject(nak(bth.NAKSequence, s0.Add(1)))
		b.wantSent(all...)
	}
	// This ends after three ACK timeouts, each of which may take four times as long as it was set to.
	const timeout = 4096 << 14 * time.Nanosecond
	start := b.net.now
	for b.State() != qp.Err && b.net.now.Sub(start) < 20*timeout {
		b.after(timeout / 4)
		b.HandleTimeout(b.net.now)
		b.inject(nak(bth.NAKSequence, s0.Add(1)))
		b.sent()
	}
	b.wantDone(cq.RetryExcErr)
	if took := b.net.now.Sub(start); took > 13*timeout {
		t.Errorf("gave up after %v, the ACK timeout is %v", took, time.Duration(timeout))
	}
}

// TestNAKAgain: a responder repeats its NAK when the requester goes back and the missing packet is missing again. It
// does not repeat the NAK for later packets of the same round, or for copies.
func TestNAKAgain(t *testing.T) {
	b, _, _ := server(t, pairConfig{})
	skip := func(psn bth.PSN) { b.inject(packet{op: bth.RCSendOnly, psn: psn}) }
	skip(e0.Add(2))
	b.wantAck(bth.NAKSequence, e0)
	for _, psn := range []int{3, 4, 4, 5} {
		skip(e0.Add(psn))
	}
	b.wantSilence()
	skip(e0.Add(1))
	b.wantAck(bth.NAKSequence, e0)
	skip(e0.Add(2))
	skip(e0.Add(3))
	b.wantSilence()
	if b.cnt.SeqNAKSent != 2 || b.cnt.OutOfSeqRequest != 8 {
		t.Errorf("counters %+v", b.cnt)
	}
}

// TestProbe: a requester that gets no answer sends its oldest packet once more with AckReq, at growing intervals,
// without using retries.
func TestProbe(t *testing.T) {
	b, _, m := client(t, pairConfig{retry: 1, timeout: 14})
	b.timed(send(m, 1), s0)
	b.post(send(m, 3000))
	b.post(send(m, 1))
	b.sent()
	start := b.net.now
	var at []time.Duration
	for b.NextTimeout() < b.RetryTimeout() {
		b.HandleTimeout(b.NextTimeout() - 1)
		b.collect()
		b.wantSilence()
		b.net.now = b.NextTimeout()
		b.HandleTimeout(b.net.now)
		b.collect()
		if p := b.want(bth.RCSendFirst, s0.Add(1)); !p.AckReq() {
			t.Fatal("a probe that asks for nothing")
		}
		at = append(at, b.net.now.Sub(start))
	}
	if len(at) != 6 || at[0] != time.Millisecond || at[1] != 3*time.Millisecond {
		t.Errorf("probes after %v", at)
	}
	if b.cnt.Probes != 6 || b.cnt.RetransPkts != 0 || b.cnt.CompleterRetryErr != 0 {
		t.Errorf("counters %+v", b.cnt)
	}
	// The answer shows which requests the peer has executed. The rest is not repeated.
	b.inject(ack(s0.Add(2)))
	b.wantSilence()
	b.wantDone()
	b.inject(ack(s0.Add(4)))
	b.wantDone(cq.Success, cq.Success)
	if b.NextTimeout() != mono.Never {
		t.Error("a timer runs with nothing outstanding")
	}
}

// TestProbeFindsLoss: the probe repeats the packet that was lost, with AckReq.
func TestProbeFindsLoss(t *testing.T) {
	for _, kind := range []struct {
		name string
		wr   func(b *bench) qp.SendWR
	}{
		{"SEND", func(b *bench) qp.SendWR { _, m := b.region(b.t, 4096); return send(m, 100) }},
		{"READ", func(b *bench) qp.SendWR { _, m := b.region(b.t, 4096); return read(m, 3000) }},
	} {
		t.Run(kind.name, func(t *testing.T) {
			b, _, _ := client(t, pairConfig{timeout: 14, retry: 1})
			b.post(kind.wr(b))
			first := b.sent()
			if len(first) != 1 {
				t.Fatalf("sent %v", summary(first))
			}
			b.net.now = b.NextTimeout()
			b.HandleTimeout(b.net.now)
			b.collect()
			if again := b.want(first[0].Op, first[0].PSN()); !again.AckReq() {
				t.Error("nothing is asked for")
			}
			if b.cnt.Probes != 1 {
				t.Errorf("%d probes, want 1", b.cnt.Probes)
			}
		})
	}
}

// TestProbeOfREAD: the probe of a READ requests only the responses that have not arrived.
func TestProbeOfREAD(t *testing.T) {
	b, _, m := client(t, pairConfig{timeout: 14, rd: 1})
	b.post(read(m, 3000))
	b.sent()
	b.inject(packet{op: bth.RCReadResponseFirst, psn: s0, syndrome: bth.AckNoCredits, payload: make([]byte, 1024)})
	b.net.now = b.NextTimeout()
	b.HandleTimeout(b.net.now)
	b.collect()
	if p := b.want(bth.RCReadRequest, s0.Add(1)); p.DMALen() != 3000-1024 {
		t.Errorf("%d bytes asked for, want the rest", p.DMALen())
	}
	// The credit is not given back twice.
	b.post(read(m, 8))
	b.wantSilence()
	b.inject(packet{op: bth.RCReadResponseMiddle, psn: s0.Add(1), payload: make([]byte, 1024)})
	b.inject(packet{op: bth.RCReadResponseLast, psn: s0.Add(2), syndrome: bth.AckNoCredits, payload: make([]byte, 3000-2048)})
	b.wantDone(cq.Success)
	b.want(bth.RCReadRequest, s0.Add(3))
	b.wantSilence()
}

// TestNoProbe: without an ACK timer the requester repeats nothing by itself. During an RNR wait it sends no probe.
func TestNoProbe(t *testing.T) {
	b, _, m := client(t, pairConfig{timeout: none})
	b.post(send(m, 1))
	if b.NextTimeout() != mono.Never {
		t.Error("a timer runs, though none was asked for")
	}
	b, _, m = client(t, pairConfig{timeout: 14})
	b.post(send(m, 1))
	b.sent()
	b.inject(nak(bth.RNR(31), s0)) // 491.52 ms
	if wait := b.NextTimeout().Sub(b.net.now); wait != bth.RNRTimer(31).Duration() {
		t.Errorf("a deadline after %v in the middle of an RNR wait", wait)
	}
}

// TestWindowAfterLoss: each loss halves the window, down to two rounds of acknowledgements. Progress widens it again.
func TestWindowAfterLoss(t *testing.T) {
	b, _, m := client(t, pairConfig{mtu: bth.MTU256, retry: 7, timeout: 14})
	b.timed(send(m, 1), s0)
	b.post(send(m, 64<<10))
	psn := s0.Add(1)
	for _, want := range []int{qp.DefaultWindow, qp.DefaultWindow / 2, qp.DefaultWindow / 4, qp.DefaultWindow / 4} {
		if n := len(b.sent()); n != want || b.InFlight() != want {
			t.Fatalf("%d packets sent, %d allowed, want %d", n, b.InFlight(), want)
		}
		b.after(time.Millisecond / 2)
		b.inject(nak(bth.NAKSequence, psn))
	}
	b.sent()
	before := b.InFlight()
	for range 8 {
		psn = psn.Add(32)
		b.inject(ack(psn.Add(-1)))
	}
	if got := b.InFlight(); got <= before || got > qp.DefaultWindow {
		t.Errorf("after 256 packets the window is %d, it was %d", got, before)
	}
}

// TestReadRewind: the requester repeats a part of a READ from an earlier byte on, while the responder still sends the
// responses. The responder continues from that byte, and sends no response that the requester would drop.
func TestReadRewind(t *testing.T) {
	b, _, m := server(t, pairConfig{rd: 2})
	ask := func(psn bth.PSN, off, n int) *frame.Packet {
		return build(t, b.peer.path, b.Num(), packet{op: bth.RCReadRequest, psn: psn, va: m.Addr() + uint64(off), key: m.RKey(), length: uint32(n)})
	}
	b.HandlePacket(b.net.now, ask(e0, 0, 5*1024))
	b.Emit(b.net.now, &oneByOne{b, 3})
	b.wantSent(line{bth.RCReadResponseFirst, e0}, line{bth.RCReadResponseMiddle, e0.Add(1)}, line{bth.RCReadResponseMiddle, e0.Add(2)})
	b.HandlePacket(b.net.now, ask(e0.Add(1), 1024, 4*1024))
	b.HandlePacket(b.net.now, ask(e0.Add(3), 3*1024, 2*1024)) // is still going to be sent
	b.collect()
	b.wantSent(line{bth.RCReadResponseFirst, e0.Add(1)}, line{bth.RCReadResponseMiddle, e0.Add(2)},
		line{bth.RCReadResponseMiddle, e0.Add(3)}, line{bth.RCReadResponseLast, e0.Add(4)})
}

// TestProbeFound: if the peer acknowledges just the probe, it was waiting for that packet. The requester then sends
// the packets behind it again.
func TestProbeFound(t *testing.T) {
	b, _, m := client(t, pairConfig{retry: 1, timeout: 14})
	b.timed(send(m, 1), s0)
	b.post(send(m, 3000))
	b.sent()
	b.net.now = b.NextTimeout()
	b.HandleTimeout(b.net.now)
	b.collect()
	b.want(bth.RCSendFirst, s0.Add(1))
	b.inject(ack(s0.Add(1)))
	b.wantSent(line{bth.RCSendMiddle, s0.Add(2)}, line{bth.RCSendLast, s0.Add(3)})
	b.inject(ack(s0.Add(3)))
	b.wantDone(cq.Success)
}

// TestAckStandsForMore: when an acknowledgement leaves, it has the PSN of the latest executed packet, even of one
// without AckReq, but of none behind a READ.
func TestAckStandsForMore(t *testing.T) {
	b, _, m := server(t, pairConfig{rd: 2})
	handle := func(d packet) { b.HandlePacket(b.net.now, build(t, b.peer.path, b.Num(), d)) }
	write := func(i int, ack bool) packet { return packet{op: bth.RCWriteOnly, psn: e0.Add(i), ack: ack} }
	handle(write(0, true))
	handle(write(1, false))
	handle(write(2, false))
	b.collect()
	b.wantAck(bth.AckNoCredits, e0.Add(2))
	handle(write(3, true))
	handle(packet{op: bth.RCReadRequest, psn: e0.Add(4), va: m.Addr(), key: m.RKey(), length: 4})
	handle(write(5, false))
	b.collect()
	b.wantSent(line{bth.RCAck, e0.Add(3)}, line{bth.RCReadResponseOnly, e0.Add(4)})
}

// unrequested is a bench that knows the round trip and posts SENDs of a byte that are not
// signaled, from PSN s0+1 on.
func unrequested(t *testing.T, c pairConfig) (b *bench, next func() *frame.Packet) {
	c.timeout = 14
	b, _, m := client(t, c)
	b.timed(send(m, 1), s0)
	n := 0
	return b, func() *frame.Packet {
		t.Helper()
		wr := send(m, 1)
		if err := b.PostSend(&wr); err != nil {
			t.Fatal(err)
		}
		b.collect()
		n++
		return b.want(bth.RCSendOnly, s0.Add(n))
	}
}

// TestUnrequested: of the short messages that are not signaled, only some have AckReq: the one after a number of
// messages without AckReq, and the first one some time after the last AckReq.
func TestUnrequested(t *testing.T) {
	b, next := unrequested(t, pairConfig{caps: qp.Caps{MaxSendWR: 128, MaxSendSGE: 1}})
	var asked []int
	for i := range 40 {
		if next().AckReq() {
			asked = append(asked, i)
		}
		if i == 30 {
			b.inject(ack(s0.Add(31)))
		}
	}
	if !slices.Equal(asked, []int{16}) {
		t.Errorf("%v ask for an acknowledgement, want every 17th that is outstanding", asked)
	}
	b.after(250 * time.Microsecond)
	if !next().AckReq() || next().AckReq() {
		t.Error("after 250 µs the next one should ask, and no other")
	}
}

// TestUnrequestedTail: when no message with AckReq follows, the probe requests the acknowledgement.
func TestUnrequestedTail(t *testing.T) {
	b, next := unrequested(t, pairConfig{retry: 1})
	for range 3 {
		if next().AckReq() {
			t.Error("asks for an acknowledgement")
		}
	}
	if wait := b.NextTimeout().Sub(b.net.now); wait != time.Millisecond {
		t.Errorf("the probe comes after %v", wait)
	}
	b.net.now = b.NextTimeout()
	b.HandleTimeout(b.net.now)
	b.collect()
	if p := b.want(bth.RCSendOnly, s0.Add(1)); !p.AckReq() {
		t.Error("a probe that asks for nothing")
	}
	b.inject(ack(s0.Add(3)))
	b.wantSilence()
	if b.NextTimeout() != mono.Never {
		t.Error("a timer runs with nothing outstanding")
	}
}

// TestUnrequestedWaited: work requests and states that wait for the messages before them request an acknowledgement.
func TestUnrequestedWaited(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(b *bench) error
	}{
		{"a work request that fails", func(b *bench) error {
			return b.PostSend(&qp.SendWR{Opcode: qp.Send, SG: []mr.SGE{{Addr: 8, Length: 8, LKey: 0x77}}})
		}},
		{"LOCAL_INV", func(b *bench) error { return b.PostSend(&qp.SendWR{Opcode: qp.LocalInv, InvKey: 0x77}) }},
		{"SQD", func(b *bench) error { return b.Modify(&qp.Attr{State: qp.SQD}, qp.AttrState) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, next := unrequested(t, pairConfig{})
			next()
			next()
			if err := tt.do(b); err != nil {
				t.Fatal(err)
			}
			b.collect()
			if p := b.want(bth.RCSendOnly, s0.Add(1)); !p.AckReq() {
				t.Error("nothing is asked for")
			}
			b.wantSilence()
		})
	}
}

// TestAlwaysRequests: messages request an acknowledgement if the send queue is small, if a completion depends on it,
// or if the configuration says so.
func TestAlwaysRequests(t *testing.T) {
	for _, tt := range []struct {
		name string
		c    pairConfig
		n    int // short messages, not signaled, that need not ask
	}{
		{"a small queue", pairConfig{caps: qp.Caps{MaxSendWR: 8, MaxSendSGE: 1}}, 2},
		{"all signaled", pairConfig{signalAll: true}, 0},
		{"all ask", pairConfig{alwaysAckReq: true}, 0},
	} {
		_, next := unrequested(t, tt.c)
		n := 0
		for ; n < 5 && !next().AckReq(); n++ {
		}
		if n != tt.n {
			t.Errorf("%s: %d messages did not ask, want %d", tt.name, n, tt.n)
		}
	}
}

// TestWindowChosen: a requester keeps to the window that its program has chosen, although packets have left the network.
func TestWindowChosen(t *testing.T) {
	const window = 16
	unacked := func(b *bench, from bth.PSN) (n int) {
		for _, p := range b.sent() {
			k := 1
			if p.Op == bth.RCReadRequest {
				k = int(p.DMALen()+1023) / 1024
			}
			n = max(n, int(p.PSN().Sub(from))+k)
		}
		return n
	}
	t.Run("requests that the peer holds", func(t *testing.T) {
		b := singly(t, pairConfig{window: window})
		b.after(20 * us)
		b.inject(nak(bth.NAKSequence, s0.Add(5))) // it holds
		b.sent()
		_, m := b.region(t, 64<<10)
		b.post(send(m, 64<<10))
		if n := unacked(b, s0.Add(5)); n > window {
			t.Errorf("%d packets are unacknowledged", n)
		}
	})
	t.Run("early responses", func(t *testing.T) {
		b, _, data, m := repairing(t, pairConfig{window: window, rd: 16})
		b.post(read(m, 32<<10))
		most := unacked(b, s0)
		for i := 1; i < window; i++ {
			b.inject(part(bth.RCReadResponseMiddle, data, 32<<10, i))
		}
		if n := unacked(b, s0); n > most {
			t.Errorf("%d responses are unacknowledged, at first %d", n, most)
		}
	})
}
