package qp_test

import (
	"bytes"
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

const s0 bth.PSN = 0xFFFFFE // first PSN the engine under test sends

// client is an engine under test that sends; the test answers by hand.
func client(t testing.TB, c pairConfig) (b *bench, mem []byte, region *mr.MR) {
	c.psnA = s0
	b = newBench(t, c)
	mem, region = b.region(t, 64<<10)
	for i := range mem {
		mem[i] = byte(i * 7)
	}
	return b, mem, region
}

// post queues a work request and lets the engine send.
func (b *bench) post(wr qp.SendWR) {
	b.t.Helper()
	wr.Flags |= qp.Signaled
	if err := b.PostSend(&wr); err != nil {
		b.t.Fatal(err)
	}
	b.collect()
}

// wantSent checks what was sent by opcode and PSN.
func (b *bench) wantSent(want ...line) {
	b.t.Helper()
	if got := summary(b.sent()); !slices.Equal(got, want) {
		b.t.Fatalf("sent %v, want %v", got, want)
	}
}

// wantDone checks the send completions.
func (b *bench) wantDone(want ...cq.Status) {
	b.t.Helper()
	var got []cq.Status
	for _, wc := range drain(b.send) {
		got = append(got, wc.Status)
	}
	if !slices.Equal(got, want) {
		b.t.Fatalf("completions %v, want %v", got, want)
	}
}

// expire moves time to the next deadline that is not one of a probe.
func (b *bench) expire() {
	b.t.Helper()
	d := b.RetryTimeout()
	for b.NextTimeout() < d {
		b.net.now = b.NextTimeout()
		b.HandleTimeout(b.net.now)
		b.collect()
		b.sent()
	}
	if d == mono.Never {
		b.t.Fatal("no timer is running")
	}
	b.HandleTimeout(d - 1) // too early: nothing may happen
	b.collect()
	b.wantSilence()
	b.net.now = d
	b.HandleTimeout(d)
	b.collect()
}

func send(m *mr.MR, n int) qp.SendWR { return qp.SendWR{Opcode: qp.Send, SG: []mr.SGE{m.SGE(0, n)}} }
func read(m *mr.MR, n int) qp.SendWR {
	return qp.SendWR{Opcode: qp.Read, SG: []mr.SGE{m.SGE(0, n)}, RemoteAddr: 0x1000, RKey: 0x77}
}

func ack(psn bth.PSN) packet { return packet{op: bth.RCAck, psn: psn, syndrome: bth.AckNoCredits} }
func nak(s bth.Syndrome, psn bth.PSN) packet {
	return packet{op: bth.RCAck, psn: psn, syndrome: s}
}

// TestRequesterAck: one acknowledgement completes everything before it; a part
// of a message completes nothing.
func TestRequesterAck(t *testing.T) {
	b, _, m := client(t, pairConfig{})
	b.post(send(m, 2500))
	b.post(send(m, 0))
	b.wantSent(line{bth.RCSendFirst, s0}, line{bth.RCSendMiddle, s0.Add(1)}, line{bth.RCSendLast, s0.Add(2)}, line{bth.RCSendOnly, s0.Add(3)})
	b.inject(ack(s0.Add(1)))
	b.wantDone()
	b.inject(ack(s0.Add(3)))
	b.wantDone(cq.Success, cq.Success)
	if b.NextTimeout() != mono.Never {
		t.Error("timer runs with nothing outstanding")
	}
	b.inject(ack(s0.Add(3)))
	b.inject(ack(s0.Add(9)))
	if b.wantDone(); b.cnt.GhostAck != 2 {
		t.Errorf("%d ghost acknowledgements, want 2", b.cnt.GhostAck)
	}
}

// TestRequesterSequenceNAK: the requester goes back to the PSN of the NAK, in the middle of a message, once. The NAK
// acknowledges the packets before it.
func TestRequesterSequenceNAK(t *testing.T) {
	b, _, m := client(t, pairConfig{})
	b.post(send(m, 100))
	b.post(send(m, 3000))
	b.sent()
	b.inject(nak(bth.NAKSequence, s0.Add(2)))
	b.wantDone(cq.Success)
	b.wantSent(line{bth.RCSendMiddle, s0.Add(2)}, line{bth.RCSendLast, s0.Add(3)})
	b.inject(nak(bth.NAKSequence, s0.Add(2)))
	b.wantSilence()
}

// TestRequesterTimeout: retry_cnt 3 means four transmissions, then
// RETRY_EXC_ERR and a flush.
func TestRequesterTimeout(t *testing.T) {
	b, _, m := client(t, pairConfig{retry: 3, timeout: 14})
	b.post(send(m, 1))
	b.post(send(m, 1))
	b.wantSent(line{bth.RCSendOnly, s0}, line{bth.RCSendOnly, s0.Add(1)})
	for range 3 {
		b.expire()
		b.wantSent(line{bth.RCSendOnly, s0}, line{bth.RCSendOnly, s0.Add(1)})
	}
	b.expire()
	b.wantSilence()
	b.wantDone(cq.RetryExcErr, cq.WRFlushErr)
	b.wantState(qp.Err)
}

// TestRequesterRNR: the requester waits for the time in the NAK, not less. rnr_retry 1 means two transmissions.
func TestRequesterRNR(t *testing.T) {
	b, _, m := client(t, pairConfig{rnr: 1})
	b.post(send(m, 1))
	b.post(send(m, 1))
	b.sent()
	b.inject(nak(bth.RNR(12), s0))
	b.wantSilence()
	if d := b.NextTimeout().Sub(b.net.now); d != bth.RNRTimer(12).Duration() {
		t.Errorf("waits %v", d)
	}
	b.inject(nak(bth.RNR(12), s0))     // a copy changes nothing
	b.inject(nak(bth.NAKSequence, s0)) // rxe sends this for the packet behind
	b.wantSilence()
	b.expire()
	b.wantSent(line{bth.RCSendOnly, s0}, line{bth.RCSendOnly, s0.Add(1)})
	b.inject(nak(bth.RNR(12), s0))
	b.wantDone(cq.RNRRetryExcErr, cq.WRFlushErr)
}

// TestRequesterRNRReloads: a peer that is not ready has received the packet, so the transport retries start over. rxe
// sends a sequence NAK for each packet behind it, which may arrive after a short wait has ended.
func TestRequesterRNRReloads(t *testing.T) {
	b, _, m := client(t, pairConfig{rnr: 7, retry: 2})
	b.post(send(m, 2000))
	for range 20 {
		b.wantSent(line{bth.RCSendFirst, s0}, line{bth.RCSendLast, s0.Add(1)})
		b.inject(nak(bth.RNR(1), s0))
		b.expire()
		b.wantSent(line{bth.RCSendFirst, s0}, line{bth.RCSendLast, s0.Add(1)})
		b.inject(nak(bth.NAKSequence, s0))
	}
	b.wantDone()
	b.inject(ack(s0.Add(1)))
	b.wantDone(cq.Success)
}

// TestRequesterFatalNAK: a fatal NAK gives its work request a status. The work requests before it are complete, those
// behind it are flushed.
func TestRequesterFatalNAK(t *testing.T) {
	for _, c := range []struct {
		s    bth.Syndrome
		want cq.Status
	}{{bth.NAKInvalidRequest, cq.RemInvReqErr}, {bth.NAKRemoteAccess, cq.RemAccessErr}, {bth.NAKRemoteOp, cq.RemOpErr}, {0x65, cq.BadRespErr}, {0x45, cq.BadRespErr}} {
		b, _, m := client(t, pairConfig{})
		for range 3 {
			b.post(send(m, 1))
		}
		b.inject(nak(c.s, s0.Add(1)))
		b.wantDone(cq.Success, c.want, cq.WRFlushErr)
		b.wantState(qp.Err)
		b.post(send(m, 1))
		b.wantDone(cq.WRFlushErr)
	}
}

// TestRequesterRead: responses are placed in PSN order. If one is missing, the requester requests exactly the rest.
// The repeated answer may begin with FIRST or MIDDLE.
func TestRequesterRead(t *testing.T) {
	for _, again := range []bth.Opcode{bth.RCReadResponseFirst, bth.RCReadResponseMiddle} {
		b, mem, m := client(t, pairConfig{})
		data := bytes.Repeat([]byte("0123456789abcdef"), 200)[:3000]
		b.post(read(m, 3000))
		if p := b.want(bth.RCReadRequest, s0); p.VA() != 0x1000 || p.DMALen() != 3000 {
			t.Fatalf("asks for %#x+%d", p.VA(), p.DMALen())
		}
		b.inject(packet{op: bth.RCReadResponseFirst, psn: s0, syndrome: bth.AckNoCredits, payload: data[:1024]})
		b.inject(packet{op: bth.RCReadResponseLast, psn: s0.Add(2), syndrome: bth.AckNoCredits, payload: data[2048:]})
		if p := b.want(bth.RCReadRequest, s0.Add(1)); p.VA() != 0x1000+1024 || p.DMALen() != 1976 {
			t.Fatalf("asks again for %#x+%d", p.VA(), p.DMALen())
		}
		b.inject(packet{op: again, psn: s0.Add(1), syndrome: bth.AckNoCredits, payload: data[1024:2048]})
		b.wantDone()
		b.inject(packet{op: bth.RCReadResponseLast, psn: s0.Add(2), syndrome: bth.AckNoCredits, payload: data[2048:]})
		b.wantDone(cq.Success)
		if !bytes.Equal(mem[:3000], data) {
			t.Fatal("data differ")
		}
	}
}

// TestRequesterImpliedNAK: an acknowledgement behind a READ shows that its
// answer was lost.
func TestRequesterImpliedNAK(t *testing.T) {
	b, _, m := client(t, pairConfig{})
	b.post(read(m, 8))
	b.post(send(m, 1))
	b.sent()
	b.inject(ack(s0.Add(1)))
	b.wantDone()
	b.wantSent(line{bth.RCReadRequest, s0}, line{bth.RCSendOnly, s0.Add(1)})
	b.inject(ack(s0)) // a plain ACK never completes a READ
	b.wantDone()
	b.wantSilence()
}

// TestRequesterSlowPeer: a peer that still answers packets from before a timeout has lost nothing new. The requester
// does not send again at once, and does not give up before four times the timeout has passed.
func TestRequesterSlowPeer(t *testing.T) {
	b, _, m := client(t, pairConfig{retry: 2, timeout: 14})
	all := []line{{bth.RCFetchAdd, s0}, {bth.RCFetchAdd, s0.Add(1)}, {bth.RCFetchAdd, s0.Add(2)}}
	for i := range all {
		b.post(qp.SendWR{Opcode: qp.FetchAdd, SG: []mr.SGE{m.SGE(8*i, 8)}, RemoteAddr: 0x1000, RKey: 0x77})
	}
	b.wantSent(all...)
	answer := func(psn bth.PSN) {
		t.Helper()
		b.inject(packet{op: bth.RCAtomicAck, psn: psn, syndrome: bth.AckNoCredits})
	}
	b.expire()
	b.wantSent(all...)
	start, timeout := b.net.now, bth.AckTimeout(14)
	for range 4 {
		b.net.now = b.RetryTimeout() - 1
		answer(s0.Add(2)) // the answer to the first is lost
		b.wantSilence()
		b.wantDone()
	}
	if got, want := b.RetryTimeout(), start.Add(4*timeout); got != want {
		t.Fatalf("the timer expires at %v, want %v", got, want)
	}
	b.expire()
	b.wantSent(all...)
	answer(s0)
	b.wantDone(cq.Success)
	answer(s0.Add(2)) // after progress this is a loss
	b.wantSent(all[1:]...)

	// An answer to a completed request has the same effect.
	start = b.net.now
	b.net.now = start.Add(timeout) - 1
	answer(s0)
	if got, want := b.RetryTimeout(), b.net.now.Add(timeout); got != want {
		t.Fatalf("the timer expires at %v, want %v", got, want)
	}
	b.wantSilence()
	answer(s0.Add(10)) // an answer to a request that was never sent has none
	if got, want := b.RetryTimeout(), b.net.now.Add(timeout); got != want {
		t.Fatalf("the timer expires at %v, want %v", got, want)
	}
}

// TestRequesterLimits: at most MaxRdAtomic READs and one window of packets are in flight. At
// least one of 32 packets has AckReq.
func TestRequesterLimits(t *testing.T) {
	b, _, m := client(t, pairConfig{rd: 2})
	for range 3 {
		b.post(read(m, 8))
	}
	b.wantSent(line{bth.RCReadRequest, s0}, line{bth.RCReadRequest, s0.Add(1)})
	b.inject(packet{op: bth.RCReadResponseOnly, psn: s0, syndrome: bth.AckNoCredits, payload: make([]byte, 8)})
	b.wantSent(line{bth.RCReadRequest, s0.Add(2)})

	b, _, m = client(t, pairConfig{mtu: bth.MTU256})
	wr := send(m, 60000)
	wr.SG = append(wr.SG, m.SGE(0, 60000))
	b.post(wr)
	out := b.sent()
	if len(out) != qp.DefaultWindow {
		t.Fatalf("%d packets unacknowledged, want %d", len(out), qp.DefaultWindow)
	}
	since := 0
	for _, p := range out {
		if since++; p.AckReq() {
			since = 0
		}
		if since >= 32 {
			t.Fatalf("32 packets without AckReq at %#x", uint32(p.PSN()))
		}
	}
	// A window that was full waits until it has room for a burst.
	b.inject(ack(s0.Add(9)))
	b.inject(ack(s0.Add(62)))
	b.wantSilence()
	b.inject(ack(s0.Add(63)))
	if n := len(b.sent()); n != 64 {
		t.Fatalf("a quarter of the window acknowledged, %d sent, want as many", n)
	}
}

// TestRequesterReadBursts: when MaxRdAtomic READs are outstanding, the next ones leave after an eighth of these is
// answered, or after as many as are left to send.
func TestRequesterReadBursts(t *testing.T) {
	b, _, m := client(t, pairConfig{rd: 32})
	for range 40 {
		b.post(read(m, 8))
	}
	next := s0
	answer := func(want int) {
		t.Helper()
		b.inject(packet{op: bth.RCReadResponseOnly, psn: next, syndrome: bth.AckNoCredits, payload: make([]byte, 8)})
		if n := len(b.sent()); n != want {
			t.Fatalf("after the answer to %v: %d sent, want %d", next, n, want)
		}
		next = next.Add(1)
	}
	if n := len(b.sent()); n != 32 {
		t.Fatalf("%d READs outstanding, want 32", n)
	}
	for _, want := range []int{0, 0, 0, 4, 0, 0, 0, 4, 0} {
		answer(want)
	}
	b.post(read(m, 8)) // there was room
	if n := len(b.sent()); n != 1 {
		t.Fatalf("%d sent, want the one posted", n)
	}
	b.post(read(m, 8))
	b.post(read(m, 8))
	if n := len(b.sent()); n != 0 {
		t.Fatalf("%d sent, and no room", n)
	}
	answer(0)
	answer(2) // all that are left
}

// TestRequesterLateAnswers: answers to packets from before going back are accepted. They do not return more READ
// credits than there are.
func TestRequesterLateAnswers(t *testing.T) {
	b, _, m := client(t, pairConfig{rd: 1})
	for range 3 {
		b.post(read(m, 8))
	}
	b.wantSent(line{bth.RCReadRequest, s0})
	response := func(psn bth.PSN) packet {
		return packet{op: bth.RCReadResponseOnly, psn: psn, syndrome: bth.AckNoCredits, payload: make([]byte, 8)}
	}
	// The timer sends it again, but the port takes nothing yet.
	b.net.now = b.RetryTimeout()
	b.HandleTimeout(b.net.now)
	b.HandlePacket(b.net.now, build(t, b.peer.path, b.Num(), response(s0)))
	b.wantDone(cq.Success)
	b.collect()
	b.wantSent(line{bth.RCReadRequest, s0.Add(1)}) // one, not two
	b.inject(response(s0.Add(1)))
	b.wantSent(line{bth.RCReadRequest, s0.Add(2)})
}

// TestRequesterRNRMoot: an acknowledgement of the packet that got the RNR NAK ends the wait.
func TestRequesterRNRMoot(t *testing.T) {
	b, _, m := client(t, pairConfig{})
	b.post(send(m, 1))
	b.post(send(m, 1))
	b.sent()
	b.inject(nak(bth.RNR(31), s0))
	b.inject(ack(s0))
	b.wantDone(cq.Success)
	b.wantSent(line{bth.RCSendOnly, s0.Add(1)})
}

// TestRequesterSmallWindow: the packet that fills the window has AckReq. Otherwise the window would never open again.
func TestRequesterSmallWindow(t *testing.T) {
	b, _, m := client(t, pairConfig{window: 3})
	b.post(send(m, 10*1024))
	for i := 0; i < 9; i += 3 {
		out := b.sent()
		if len(out) != 3 || out[0].AckReq() || out[1].AckReq() || !out[2].AckReq() {
			t.Fatalf("from packet %d: %d packets", i, len(out))
		}
		b.inject(ack(s0.Add(i + 2)))
	}
	b.inject(ack(s0.Add(9)))
	b.wantDone(cq.Success)
}

// TestRequesterFence: a fenced request waits for the READ before it.
func TestRequesterFence(t *testing.T) {
	b, _, m := client(t, pairConfig{})
	b.post(read(m, 8))
	wr := send(m, 1)
	wr.Flags = qp.Fence
	b.post(wr)
	b.wantSent(line{bth.RCReadRequest, s0})
	b.inject(packet{op: bth.RCReadResponseOnly, psn: s0, syndrome: bth.AckNoCredits, payload: make([]byte, 8)})
	b.wantSent(line{bth.RCSendOnly, s0.Add(1)})
}

// TestRequesterLocalError: a bad L_Key fails its own request, after those
// before it are complete.
func TestRequesterLocalError(t *testing.T) {
	b, _, m := client(t, pairConfig{})
	b.post(send(m, 1))
	bad := send(m, 1)
	bad.SG[0].LKey++
	b.post(bad)
	b.post(send(m, 1))
	b.wantSent(line{bth.RCSendOnly, s0})
	b.wantDone()
	b.inject(ack(s0))
	b.wantDone(cq.Success, cq.LocProtErr, cq.WRFlushErr)
}

// TestRequesterBadResponse: a response that does not fit the request fails the queue pair.
func TestRequesterBadResponse(t *testing.T) {
	for _, c := range []struct {
		name string
		wr   func(*mr.MR) qp.SendWR
		p    packet
		want cq.Status
	}{
		{"READ response to a SEND", func(m *mr.MR) qp.SendWR { return send(m, 1) },
			packet{op: bth.RCReadResponseOnly, psn: s0, syndrome: bth.AckNoCredits, payload: make([]byte, 4)}, cq.BadRespErr},
		{"too much data", func(m *mr.MR) qp.SendWR { return read(m, 8) },
			packet{op: bth.RCReadResponseOnly, psn: s0, syndrome: bth.AckNoCredits, payload: make([]byte, 12)}, cq.LocLenErr},
		{"too little data", func(m *mr.MR) qp.SendWR { return read(m, 8) },
			packet{op: bth.RCReadResponseOnly, psn: s0, syndrome: bth.AckNoCredits, payload: make([]byte, 4)}, cq.LocLenErr},
		{"NAK syndrome in a READ response", func(m *mr.MR) qp.SendWR { return read(m, 8) },
			packet{op: bth.RCReadResponseOnly, psn: s0, syndrome: bth.NAKInvalidRequest, payload: make([]byte, 8)}, cq.BadRespErr},
		{"ATOMIC_ACK to a READ", func(m *mr.MR) qp.SendWR { return read(m, 8) },
			packet{op: bth.RCAtomicAck, psn: s0, syndrome: bth.AckNoCredits}, cq.BadRespErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, _, m := client(t, pairConfig{})
			b.post(c.wr(m))
			b.inject(c.p)
			b.wantDone(c.want)
			b.wantState(qp.Err)
		})
	}
}

// TestRequesterDrain: in SQD the requester finishes started work requests, starts none, and raises SQ_DRAINED at the
// end.
func TestRequesterDrain(t *testing.T) {
	b, _, m := client(t, pairConfig{window: 2})
	b.post(send(m, 3000))
	b.post(send(m, 1))
	b.wantSent(line{bth.RCSendFirst, s0}, line{bth.RCSendMiddle, s0.Add(1)})
	if err := b.Modify(&qp.Attr{State: qp.SQD, SQDNotify: true}, qp.AttrState|qp.AttrSQDNotify); err != nil {
		t.Fatal(err)
	}
	b.inject(ack(s0.Add(1)))
	b.wantSent(line{bth.RCSendLast, s0.Add(2)})
	if a, _ := b.Query(); len(b.events) != 0 || a.State != qp.SQD || !a.SQDraining {
		t.Fatalf("drained too early: events %v, attributes %+v", b.events, a)
	}
	for _, to := range []qp.State{qp.RTS, qp.SQD} { // what is under way must not change
		if err := b.Modify(&qp.Attr{State: to}, qp.AttrState); !errors.Is(err, syscall.EINVAL) || b.State() != qp.SQD {
			t.Errorf("to %v while draining: %v", to, err)
		}
	}
	path := qp.NewAH(b.path)
	for mask, bad := range map[qp.AttrMask]bool{qp.AttrAccess: false, qp.AttrPort | qp.AttrPKeyIndex: false, qp.AttrMinRNRTimer: false, qp.AttrMaxDestRdAtomic: false,
		qp.AttrAltPath: false, qp.AttrAV: true, qp.AttrTimeout: true, qp.AttrRetryCnt: true, qp.AttrRNRRetry: true, qp.AttrMaxRdAtomic: true} {
		was, _ := b.Query()
		a := qp.Attr{Port: 1, Access: was.Access, AV: path, AltAV: path, AltPort: 1, Timeout: was.Timeout, RetryCnt: was.RetryCnt, RNRRetry: was.RNRRetry,
			MinRNRTimer: 31, MaxRdAtomic: 1, MaxDestRdAtomic: 5}
		if err := b.Modify(&a, mask); bad != errors.Is(err, syscall.EINVAL) || !bad && err != nil {
			t.Errorf("%v while draining: %v", mask, err)
		}
	}
	if a, _ := b.Query(); a.MinRNRTimer != 31 || a.MaxDestRdAtomic != 5 {
		t.Errorf("attributes %+v", a)
	}
	b.inject(ack(s0.Add(2)))
	b.wantSilence()
	if a, _ := b.Query(); a.SQDraining {
		t.Error("drained, but Query says that it still drains")
	}
	if !slices.Equal(b.events, []qp.EventType{qp.EventSQDrained}) {
		t.Fatalf("events %v", b.events)
	}
	if err := b.Modify(&qp.Attr{State: qp.RTS}, qp.AttrState); err != nil {
		t.Fatal(err)
	}
	b.collect()
	b.wantSent(line{bth.RCSendOnly, s0.Add(3)})

	for _, to := range []qp.State{qp.Reset, qp.Err} { // out of it, drained or not
		b, _, m := client(t, pairConfig{})
		b.post(send(m, 1))
		for _, s := range []qp.State{qp.SQD, to} {
			if err := b.Modify(&qp.Attr{State: s, SQDNotify: true}, qp.AttrState); err != nil {
				t.Errorf("to %v: %v", s, err)
			}
		}
		if sends, _ := b.Outstanding(); sends != 0 || len(b.events) != 0 {
			t.Errorf("in %v: %d sends are left, events %v", to, sends, b.events)
		}
	}
}

// TestPostErrors: PostSend refuses these work requests with the errno of the verbs.
func TestPostErrors(t *testing.T) {
	for _, c := range []struct {
		name  string
		state qp.State
		wr    func(m *mr.MR) qp.SendWR
		errno syscall.Errno
	}{
		{"in INIT", qp.Init, func(m *mr.MR) qp.SendWR { return send(m, 1) }, syscall.EINVAL},
		{"in RTR", qp.RTR, func(m *mr.MR) qp.SendWR { return send(m, 1) }, syscall.EINVAL},
		{"too many elements", qp.RTS, func(m *mr.MR) qp.SendWR { return qp.SendWR{Opcode: qp.Send, SG: make([]mr.SGE, 5)} }, syscall.EINVAL},
		{"too much inline", qp.RTS, func(m *mr.MR) qp.SendWR { return qp.SendWR{Opcode: qp.Send, Inline: make([]byte, 129)} }, syscall.EINVAL},
		{"READ inline", qp.RTS, func(m *mr.MR) qp.SendWR { return qp.SendWR{Opcode: qp.Read, Inline: make([]byte, 8)} }, syscall.EINVAL},
		{"inline and list", qp.RTS, func(m *mr.MR) qp.SendWR {
			return qp.SendWR{Opcode: qp.Send, Inline: make([]byte, 8), SG: []mr.SGE{m.SGE(0, 1)}}
		}, syscall.EINVAL},
		{"atomic of 4 bytes", qp.RTS, func(m *mr.MR) qp.SendWR { return qp.SendWR{Opcode: qp.FetchAdd, SG: []mr.SGE{m.SGE(0, 4)}} }, syscall.EINVAL},
		{"atomic unaligned", qp.RTS, func(m *mr.MR) qp.SendWR {
			return qp.SendWR{Opcode: qp.FetchAdd, SG: []mr.SGE{m.SGE(0, 8)}, RemoteAddr: 4}
		}, syscall.EINVAL},
		{"unknown opcode", qp.RTS, func(m *mr.MR) qp.SendWR { return qp.SendWR{Opcode: 200} }, syscall.EINVAL},
		{"longer than 2^31", qp.RTS, func(m *mr.MR) qp.SendWR {
			return qp.SendWR{Opcode: qp.Send, SG: []mr.SGE{{Length: 1 << 31}, {Length: 1}}}
		}, syscall.EINVAL},
	} {
		b, _, m := client(t, pairConfig{stopAt: c.state})
		wr := c.wr(m)
		if err := b.PostSend(&wr); !errors.Is(err, c.errno) {
			t.Errorf("%s: %v, want %v", c.name, err, c.errno)
		}
	}
	b, _, m := client(t, pairConfig{})
	b.peer = b.node // packets go nowhere
	for range 64 {
		wr := send(m, 1)
		if err := b.PostSend(&wr); err != nil {
			t.Fatal(err)
		}
	}
	wr := send(m, 1)
	if err := b.PostSend(&wr); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("full queue: %v, want ENOMEM", err)
	}
}
