package qp_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// handle hands the engine a packet of its peer. The answers stay in the engine.
func (b *bench) handle(d packet) {
	b.t.Helper()
	b.HandlePacket(b.net.now, build(b.t, b.peer.path, b.Num(), d))
}

// TestAnswersAfterAccessChange: FLUSHes wait for their answers when the program takes
// the right to FLUSH away. The requests behind them are answered all the same.
func TestAnswersAfterAccessChange(t *testing.T) {
	all := mr.RemoteWrite | mr.RemoteRead | mr.FlushGlobal
	b, _, _ := server(t, pairConfig{access: all, rd: 2})
	m := must(b.mem.Register(b.pd, make([]byte, 64), all|mr.LocalWrite, mr.Options{}))
	const flushes = 64
	for i := range flushes {
		b.handle(packet{op: bth.RCFlush, psn: e0.Add(i), place: bth.FlushGlobal, va: m.Addr(), key: m.RKey(), length: 8})
	}
	must(0, b.Modify(&qp.Attr{Access: mr.RemoteRead}, qp.AttrAccess))
	b.handle(packet{op: bth.RCReadRequest, psn: e0.Add(flushes), va: m.Addr(), key: m.RKey(), length: 8})
	b.handle(packet{op: bth.RCSendOnly, psn: e0.Add(flushes + 1), ack: true})
	b.wantState(qp.RTS)
	b.collect()
	out := b.sent()
	if want := flushes + 2; len(out) != want || out[want-2].PayloadLen() != 8 || out[want-1].Op != bth.RCAck {
		t.Errorf("%d answers, want %d, the last an acknowledgement", len(out), want)
	}
}

// TestAnswersBeyondTheQueue: the same with a peer that sends READs until there is no room for their answers. All
// READs before the first refused one are answered.
func TestAnswersBeyondTheQueue(t *testing.T) {
	all := mr.RemoteWrite | mr.RemoteRead | mr.FlushGlobal
	for _, granted := range []uint8{2, 16, 32, 64} {
		b, _, _ := server(t, pairConfig{access: all, rd: granted})
		m := must(b.mem.Register(b.pd, make([]byte, 64), all|mr.LocalWrite, mr.Options{}))
		const flushes = 64
		for i := range flushes {
			b.handle(packet{op: bth.RCFlush, psn: e0.Add(i), place: bth.FlushGlobal, va: m.Addr(), key: m.RKey(), length: 8})
		}
		must(0, b.Modify(&qp.Attr{Access: mr.RemoteRead}, qp.AttrAccess))
		for i := range 300 {
			b.handle(packet{op: bth.RCReadRequest, psn: e0.Add(flushes + i), va: m.Addr(), key: m.RKey(), length: 8})
		}
		b.collect()
		out := b.sent()
		if len(out) <= flushes+1 {
			t.Fatalf("%d granted: %d answers", granted, len(out))
		}
		for i, p := range out {
			if last := i == len(out)-1; p.PSN() != e0.Add(i) || last != (p.Op == bth.RCAck) {
				t.Fatalf("%d granted: answer %d of %d is %v for %v", granted, i, len(out), p.Op, p.PSN())
			}
		}
	}
}

// TestAnswersNeverStarveRequests: a peer that always has READs outstanding does not keep
// the requests of the same queue pair from leaving, nor the other way round.
func TestAnswersNeverStarveRequests(t *testing.T) {
	for _, room := range []int{1, 3, 64, 1000} { // packets that the port takes at a time
		b, _, region := server(t, pairConfig{psnA: s0, rd: 4, mtu: bth.MTU256})
		psn := e0
		read := func() {
			b.handle(packet{op: bth.RCReadRequest, psn: psn, va: region.Addr(), key: region.RKey(), length: 16384})
			psn = psn.Add(64)
		}
		for range 4 {
			read()
		}
		wr := send(region, 16384)
		must(0, b.PostSend(&wr))
		requests, responses, waited := 0, 0, 0
		b.room = room
		for requests < 64 && waited < 1000 {
			b.used = 0
			for b.Emit(b.net.now, limited{b}) && b.used < room {
			}
			for _, p := range b.sent() {
				if p.Op.Info().Flags&bth.Request != 0 {
					requests++
					waited = 0
					continue
				}
				responses++
				waited++
				if p.Op == bth.RCReadResponseLast {
					read() // the next one is there before the queue is empty
				}
			}
		}
		if requests < 64 || responses < 64 {
			t.Errorf("a port with room for %d packets: %d requests and %d responses left, want both", room, requests, responses)
		}
	}
}

// TestFatalNAKLeaves: the NAK that gives the reason of a failure leaves, however many answers wait before it. An RNR
// NAK does, too.
func TestFatalNAKLeaves(t *testing.T) {
	data := []byte("1234")
	for _, tt := range []struct {
		name string
		bad  packet
		want bth.Syndrome
	}{
		{"access", packet{op: bth.RCWriteOnly, va: 1, key: 0xBAD, length: 4, payload: data}, bth.NAKRemoteAccess},
		{"invalid", packet{op: bth.RCSendMiddle, payload: data}, bth.NAKInvalidRequest},
		{"no receive", packet{op: bth.RCSendOnly, payload: data}, bth.RNR(12)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// One READ is granted: there is almost no room for answers.
			b := newBench(t, pairConfig{psnB: e0, rd: 1, minRNR: 12, access: mr.RemoteWrite})
			_, m := b.region(t, 64)
			write := packet{op: bth.RCWriteOnly, psn: e0, ack: true, va: m.Addr(), key: m.RKey(), length: 4, payload: data}
			for range 4 { // an acknowledgement and a NAK each, which do not merge
				b.handle(write)
				write.psn = write.psn.Add(1)
				early := write
				early.psn = write.psn.Add(1)
				b.handle(early)
			}
			tt.bad.psn = write.psn
			b.handle(tt.bad)
			b.collect()
			out := b.sent()
			if len(out) == 0 {
				t.Fatal("nothing was sent")
			}
			if last := out[len(out)-1]; last.Syndrome() != tt.want || last.PSN() != tt.bad.psn {
				t.Errorf("the last answer is %#x for %v, want %#x for %v", last.Syndrome(), last.PSN(), tt.want, tt.bad.psn)
			}
		})
	}
}

// TestAckLeaves: an acknowledgement leaves, however many answers wait before it.
func TestAckLeaves(t *testing.T) {
	b := newBench(t, pairConfig{psnB: e0, rd: 1, access: mr.RemoteWrite})
	_, m := b.region(t, 64)
	write := packet{op: bth.RCWriteOnly, psn: e0, ack: true, va: m.Addr(), key: m.RKey(), length: 4, payload: []byte("1234")}
	for range 10 {
		b.handle(write)
		write.psn = write.psn.Add(1)
		early := write
		early.psn = write.psn.Add(1)
		b.handle(early)
	}
	b.handle(write)
	duplicate := write
	duplicate.psn = e0
	b.handle(duplicate)
	b.collect()
	out := b.sent()
	if last := out[len(out)-1]; last.Syndrome() != bth.AckNoCredits || last.PSN() != write.psn {
		t.Errorf("the last answer is %#x for %v, want an acknowledgement of %v", last.Syndrome(), last.PSN(), write.psn)
	}
}

// TestFatalNAKOfFullCQ: the NAK leaves even if the completion queue has no room for the completion of the receive in
// use, or of a flushed one.
func TestFatalNAKOfFullCQ(t *testing.T) {
	for _, entries := range []int{1, 2, 3} {
		b := newBench(t, pairConfig{psnB: e0, cqEntries: entries})
		_, m := b.region(t, 4096)
		for range 3 {
			must(0, b.PostRecv(&qp.RecvWR{SG: []mr.SGE{m.SGE(0, 2048)}}))
		}
		b.inject(packet{op: bth.RCSendOnly, psn: e0, payload: []byte("1234"), ack: true}) // takes the first entry
		b.sent()
		b.handle(packet{op: bth.RCSendFirst, psn: e0.Add(1), payload: make([]byte, 1024)})
		b.handle(packet{op: bth.RCSendOnly, psn: e0.Add(2), payload: []byte("1234")})
		b.wantState(qp.Err)
		b.collect()
		b.wantAck(bth.NAKInvalidRequest, e0.Add(2))
	}
}

// TestSavedAfterModify: the responder answers duplicates of executed atomics and READs after the program has changed
// the number that it grants. If it grants fewer, it keeps the latest ones.
func TestSavedAfterModify(t *testing.T) {
	for _, tt := range []struct {
		granted uint8
		kept    int
	}{{8, 4}, {4, 4}, {2, 2}, {1, 1}} {
		b, mem, m := server(t, pairConfig{rd: 4})
		add := packet{op: bth.RCFetchAdd, va: m.Addr(), key: m.RKey(), swap: 5}
		for i := range 4 {
			add.psn = e0.Add(i)
			b.inject(add)
		}
		b.sent()
		must(0, b.Modify(&qp.Attr{State: qp.SQD}, qp.AttrState))
		must(0, b.Modify(&qp.Attr{MaxDestRdAtomic: tt.granted}, qp.AttrMaxDestRdAtomic))
		answered := []bth.PSN(nil)
		for i := range 4 {
			add.psn = e0.Add(i)
			b.inject(add)
			for _, p := range b.sent() {
				if p.AtomicValue() != uint64(5*i) {
					t.Errorf("granted %d: atomic %d gives %d, want %d", tt.granted, i, p.AtomicValue(), 5*i)
				}
				answered = append(answered, p.PSN())
			}
		}
		want := []bth.PSN{e0, e0.Add(1), e0.Add(2), e0.Add(3)}[4-tt.kept:]
		if !slices.Equal(answered, want) {
			t.Errorf("granted %d: answered %v, want %v", tt.granted, answered, want)
		}
		if got := binary.NativeEndian.Uint64(mem); got != 20 {
			t.Errorf("granted %d: the word is %d, want 20: no atomic is executed twice", tt.granted, got)
		}
	}
}

// TestPlacedRepeatedInOrder: the answer to a repeated FLUSH or ATOMIC_WRITE goes before
// those to later requests, as the answers to READs and atomics do.
func TestPlacedRepeatedInOrder(t *testing.T) {
	all := mr.RemoteWrite | mr.RemoteRead | mr.FlushGlobal
	b, _, _ := server(t, pairConfig{access: all, rd: 4})
	m := must(b.mem.Register(b.pd, make([]byte, 64), all|mr.LocalWrite, mr.Options{}))
	flush := packet{op: bth.RCFlush, psn: e0, place: bth.FlushGlobal, va: m.Addr(), key: m.RKey(), length: 8}
	write := packet{op: bth.RCAtomicWrite, psn: e0.Add(1), va: m.Addr(), key: m.RKey(), length: 8, payload: make([]byte, 8)}
	read := packet{op: bth.RCReadRequest, psn: e0.Add(2), va: m.Addr(), key: m.RKey(), length: 8}
	for _, p := range []packet{flush, write, read} {
		b.inject(p)
	}
	b.sent()
	for _, p := range []packet{read, write, flush} { // the network has reversed their order
		b.handle(p)
	}
	b.collect()
	b.wantSent(line{bth.RCReadResponseOnly, e0}, line{bth.RCReadResponseOnly, e0.Add(1)}, line{bth.RCReadResponseOnly, e0.Add(2)})
}

// TestManyParts: when a requester repeats many parts of a READ at once, the responder drops requests that it has no
// room for. The parts do not count as more READs than it has granted.
func TestManyParts(t *testing.T) {
	b, _, m := server(t, pairConfig{rd: 1})
	whole := packet{op: bth.RCReadRequest, psn: e0, va: m.Addr(), key: m.RKey(), length: 8192}
	b.inject(whole)
	b.sent()
	for i := 1; i < 8; i += 2 {
		part := whole
		part.psn, part.va, part.length = e0.Add(i), m.Addr()+uint64(i)*1024, 1024
		b.handle(part)
	}
	next := whole
	next.psn = e0.Add(8)
	b.handle(next)
	b.wantState(qp.RTS)
	b.collect()
	b.sent()
	b.inject(next) // once more
	if out := b.sent(); len(out) != 8 || out[0].PSN() != e0.Add(8) {
		t.Fatalf("answered %v", summary(out))
	}
}
