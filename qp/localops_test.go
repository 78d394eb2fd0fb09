package qp_test

import (
	"bytes"
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// binder is an engine under test with memory that windows may be bound to, a
// window of each type and a fast registration of 100 bytes at address 0x1000.
type binder struct {
	*bench
	mem    []byte
	m      *mr.MR
	w1, w2 *mr.MW
	fast   *mr.MR
}

func newBinder(t testing.TB, c pairConfig) *binder {
	b := &binder{bench: newBench(t, c), mem: make([]byte, 8192)}
	b.m = must(b.bench.mem.Register(b.pd, b.mem, mr.LocalWrite|mr.MWBind, mr.Options{IOVA: 0x1000, HasIOVA: true}))
	b.w1, b.w2 = must(b.bench.mem.AllocMW(b.pd, mr.MWType1)), must(b.bench.mem.AllocMW(b.pd, mr.MWType2))
	b.fast = must(b.bench.mem.AllocFast(b.pd, mr.FastOptions{MaxPieces: 4}))
	if err := b.fast.Map([][]byte{b.mem[:50], b.mem[4000:4050]}, mr.Options{IOVA: 0x1000, HasIOVA: true}); err != nil {
		t.Fatal(err)
	}
	for id := range uint64(2) {
		must(0, b.PostRecv(&qp.RecvWR{ID: id, SG: []mr.SGE{b.m.SGE(4096, 1024)}}))
	}
	return b
}

const remoteAll = mr.RemoteRead | mr.RemoteWrite | mr.RemoteAtomic

// bindWR binds a window to 100 bytes of the region.
func (b *binder) bindWR(w *mr.MW) qp.SendWR {
	return qp.SendWR{Opcode: qp.BindMW, MW: w, MR: b.m, RKey: mr.IncRKey(w.RKey()), BindAddr: 0x1000, BindLength: 100, Access: remoteAll}
}

func (b *binder) regWR() qp.SendWR {
	return qp.SendWR{Opcode: qp.RegMR, MR: b.fast, RKey: mr.IncRKey(b.fast.RKey()), Access: mr.LocalWrite | remoteAll}
}

func inv(key bth.RKey) qp.SendWR { return qp.SendWR{Opcode: qp.LocalInv, InvKey: key} }

// opens reports whether a key opens the 100 bytes to the peer.
func (b *binder) opens(key bth.RKey) bool {
	_, _, f := b.bench.mem.Remote(b.pd, b.Num(), key, 0x1000, 100, mr.RemoteWrite)
	return f == mr.OK
}

func (b *binder) wantOpen(key bth.RKey, want bool) {
	b.t.Helper()
	if b.opens(key) != want {
		b.t.Fatalf("key %v opens memory: %v, want %v", key, !want, want)
	}
}

// wantWCs checks the send completions with their opcodes.
func (b *binder) wantWCs(want ...cq.WC) {
	b.t.Helper()
	var got []cq.WC
	for _, wc := range drain(b.send) {
		got = append(got, cq.WC{Opcode: wc.Opcode, Status: wc.Status})
	}
	if !slices.Equal(got, want) {
		b.t.Fatalf("completions %v, want %v", got, want)
	}
}

func TestLocalPostErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		typ  qp.Type
		wr   func(b *binder) qp.SendWR
		ok   bool
	}{
		{"bind", qp.RC, func(b *binder) qp.SendWR { return b.bindWR(b.w2) }, true},
		{"bind on UC", qp.UC, func(b *binder) qp.SendWR { return b.bindWR(b.w2) }, true},
		{"invalidate on UC", qp.UC, func(b *binder) qp.SendWR { return inv(1) }, true},
		{"register on UC", qp.UC, func(b *binder) qp.SendWR { return b.regWR() }, true},
		{"unbind type 1", qp.RC, func(b *binder) qp.SendWR { return qp.SendWR{Opcode: qp.BindMW, MW: b.w1, RKey: b.w1.RKey()} }, true},
		{"bind without a window", qp.RC, func(b *binder) qp.SendWR { return qp.SendWR{Opcode: qp.BindMW, MR: b.m} }, false},
		{"bind type 1 without a region", qp.RC, func(b *binder) qp.SendWR { return qp.SendWR{Opcode: qp.BindMW, MW: b.w1, BindLength: 1} }, false},
		{"bind type 2 without a region", qp.RC, func(b *binder) qp.SendWR { return qp.SendWR{Opcode: qp.BindMW, MW: b.w2} }, false},
		{"register a list of another region", qp.RC, func(b *binder) qp.SendWR {
			umr := must(b.bench.mem.AllocIndirect(b.pd, 1))
			wr := b.regWR()
			wr.Parts = must(umr.ListParts([]mr.Part{{MR: b.m, Length: 1}}, 1, mr.Options{}))
			return wr
		}, false},
		{"register without a region", qp.RC, func(b *binder) qp.SendWR { return qp.SendWR{Opcode: qp.RegMR} }, false},
		{"bind with the key of another", qp.RC, func(b *binder) qp.SendWR {
			wr := b.bindWR(b.w2)
			wr.RKey ^= 0x100
			return wr
		}, false},
		{"register a user's region", qp.RC, func(b *binder) qp.SendWR {
			return qp.SendWR{Opcode: qp.RegMR, MR: b.m, RKey: mr.IncRKey(b.m.RKey()), Access: mr.LocalWrite}
		}, false},
		{"register with the key of another", qp.RC, func(b *binder) qp.SendWR {
			wr := b.regWR()
			wr.RKey ^= 0x80000000
			return wr
		}, false},
		{"bind with a scatter list", qp.RC, func(b *binder) qp.SendWR {
			wr := b.bindWR(b.w2)
			wr.SG = []mr.SGE{b.m.SGE(0, 1)}
			return wr
		}, false},
		{"invalidate with a scatter list", qp.RC, func(b *binder) qp.SendWR {
			return qp.SendWR{Opcode: qp.LocalInv, SG: []mr.SGE{b.m.SGE(0, 1)}}
		}, false},
		{"invalidate with inline data", qp.RC, func(b *binder) qp.SendWR { return qp.SendWR{Opcode: qp.LocalInv, Inline: []byte{1}} }, false},
		{"opcode between the known", qp.RC, func(b *binder) qp.SendWR { return qp.SendWR{Opcode: qp.RegMR - 1} }, false},
		{"opcode beyond the known", qp.RC, func(b *binder) qp.SendWR { return qp.SendWR{Opcode: qp.RegMR + 1} }, false},
	} {
		b := newBinder(t, pairConfig{typ: c.typ})
		wr := c.wr(b)
		key1, key2, key3 := b.m.RKey(), b.w2.RKey(), b.fast.RKey()
		err := b.PostSend(&wr)
		if c.ok != (err == nil) || err != nil && !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil && (b.m.RKey() != key1 || b.w2.RKey() != key2 || b.fast.RKey() != key3) {
			t.Errorf("%s: refused, but the key changed", c.name)
		}
	}
	ud := must(qp.New(qp.Config{Type: qp.UD, Num: 5, PD: new(mr.PD), Memory: mr.NewTable(func() uint64 { return 1 }),
		SendCQ: must(cq.New(8, cq.Options{})), RecvCQ: must(cq.New(8, cq.Options{})), Caps: qp.Caps{MaxSendWR: 4}}))
	for _, m := range []struct {
		a    qp.Attr
		mask qp.AttrMask
	}{{qp.Attr{State: qp.Init, Port: 1}, qp.AttrState | qp.AttrPKeyIndex | qp.AttrPort | qp.AttrQKey}, {qp.Attr{State: qp.RTR}, qp.AttrState},
		{qp.Attr{State: qp.RTS}, qp.AttrState | qp.AttrSQPSN}} {
		must(0, ud.Modify(&m.a, m.mask))
	}
	b := newBinder(t, pairConfig{})
	for _, wr := range []qp.SendWR{b.bindWR(b.w2), inv(1), b.regWR()} {
		if err := ud.PostSend(&wr); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%v on UD: %v", wr.Opcode, err)
		}
	}
}

// TestLocalOrder: local operations are executed and complete in order, send nothing and take no PSN.
func TestLocalOrder(t *testing.T) {
	b := newBinder(t, pairConfig{psnA: s0})
	b.post(send(b.m, 1))
	b.wantSent(line{bth.RCSendOnly, s0})
	b.post(b.bindWR(b.w2))
	b.wantOpen(b.w2.RKey(), true) // already, though the SEND is not acknowledged
	b.post(b.regWR())
	b.wantOpen(b.fast.RKey(), true)
	b.post(send(b.m, 1))
	b.wantSent(line{bth.RCSendOnly, s0.Add(1)})
	b.wantWCs()
	b.inject(ack(s0))
	b.wantWCs(cq.WC{Opcode: cq.OpSend}, cq.WC{Opcode: cq.OpBindMW}, cq.WC{Opcode: cq.OpRegMR})

	b.post(inv(b.w2.RKey())) // waits for the SEND before it
	b.post(send(b.m, 1))
	b.wantSilence()
	b.wantOpen(b.w2.RKey(), true)
	b.inject(ack(s0.Add(1)))
	b.wantOpen(b.w2.RKey(), false)
	b.wantWCs(cq.WC{Opcode: cq.OpSend}, cq.WC{Opcode: cq.OpLocalInv})
	b.wantSent(line{bth.RCSendOnly, s0.Add(2)})
	b.inject(ack(s0.Add(2)))
	b.wantWCs(cq.WC{Opcode: cq.OpSend})

	b.post(inv(b.fast.RKey())) // alone in the queue
	b.wantWCs(cq.WC{Opcode: cq.OpLocalInv})
	b.wantSilence()
	if n, _ := b.Outstanding(); n != 0 {
		t.Errorf("%d work requests are left", n)
	}
	quiet := b.regWR() // unsignaled
	must(0, b.PostSend(&quiet))
	b.collect()
	b.wantOpen(b.fast.RKey(), true)
	b.wantWCs()
	if n, _ := b.Outstanding(); n != 0 {
		t.Errorf("%d work requests are left", n)
	}
}

// TestLocalGoBack: a requester that goes back skips local operations that were executed.
func TestLocalGoBack(t *testing.T) {
	for _, c := range []struct {
		name string
		lost func(b *binder) // makes the engine go back
		left []line          // sent again
	}{
		{"sequence NAK for the first", func(b *binder) { b.inject(nak(bth.NAKSequence, s0)) },
			[]line{{bth.RCSendOnly, s0}, {bth.RCSendOnly, s0.Add(1)}, {bth.RCSendOnly, s0.Add(2)}}},
		{"sequence NAK for the second", func(b *binder) { b.inject(nak(bth.NAKSequence, s0.Add(1))) },
			[]line{{bth.RCSendOnly, s0.Add(1)}, {bth.RCSendOnly, s0.Add(2)}}},
		{"timeout", func(b *binder) { b.expire() },
			[]line{{bth.RCSendOnly, s0}, {bth.RCSendOnly, s0.Add(1)}, {bth.RCSendOnly, s0.Add(2)}}},
		{"not ready", func(b *binder) { b.inject(nak(bth.RNR(1), s0)); b.expire() },
			[]line{{bth.RCSendOnly, s0}, {bth.RCSendOnly, s0.Add(1)}, {bth.RCSendOnly, s0.Add(2)}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBinder(t, pairConfig{psnA: s0})
			b.post(send(b.m, 1))
			b.post(b.bindWR(b.w2))
			b.post(send(b.m, 1))
			b.post(b.regWR())
			b.post(send(b.m, 1))
			b.wantSent(line{bth.RCSendOnly, s0}, line{bth.RCSendOnly, s0.Add(1)}, line{bth.RCSendOnly, s0.Add(2)})
			// The peer invalidates both keys: a second execution would make them valid again.
			b.inject(packet{op: bth.RCSendOnlyInv, imm: uint32(b.w2.RKey())})
			b.inject(packet{op: bth.RCSendOnlyInv, psn: 1, imm: uint32(b.fast.RKey())})
			b.wantSilence()
			c.lost(b)
			b.wantSent(c.left...)
			b.wantOpen(b.w2.RKey(), false)
			b.wantOpen(b.fast.RKey(), false)
			b.inject(ack(s0.Add(2)))
			var got []cq.Opcode
			for _, wc := range drain(b.send) {
				got = append(got, wc.Opcode)
			}
			if len(c.left) == 3 && !slices.Equal(got, []cq.Opcode{cq.OpSend, cq.OpBindMW, cq.OpSend, cq.OpRegMR, cq.OpSend}) || b.State() != qp.RTS {
				t.Errorf("completions %v, state %v", got, b.State())
			}
		})
	}
}

// oneByOne is a sink with room for one packet.
type oneByOne struct {
	*bench
	room int
}

func (s *oneByOne) Begin(p *frame.Path, n int) ([]byte, bth.CRC, bool) {
	if s.room == 0 {
		return nil, 0, false
	}
	s.room--
	return s.bench.Begin(p, n)
}

// TestLocalGoBackHalfWay: after going back, an acknowledgement completes the work request that is to be sent next.
// Transmission then continues at the right place.
func TestLocalGoBackHalfWay(t *testing.T) {
	for again := range 3 { // packets sent again when the acknowledgement comes
		for acked := range 3 { // how far it reaches
			b := newBinder(t, pairConfig{psnA: s0})
			for range 3 {
				b.post(send(b.m, 1))
				b.post(qp.SendWR{Opcode: qp.BindMW, MW: b.w1, RKey: b.w1.RKey()})
			}
			b.post(send(b.m, 1))
			b.sent()
			b.HandleTimeout(b.NextTimeout())
			sink := &oneByOne{b.bench, again}
			b.Emit(b.net.now, sink)
			if n := len(b.sent()); n != again {
				t.Fatalf("sent %d packets again, want %d", n, again)
			}
			b.inject(ack(s0.Add(acked)))
			var want []line
			for psn := max(again, acked+1); psn < 4; psn++ {
				want = append(want, line{bth.RCSendOnly, s0.Add(psn)})
			}
			b.wantSent(want...)
			b.inject(ack(s0.Add(3)))
			b.wantDone(cq.Success, cq.Success, cq.Success, cq.Success, cq.Success, cq.Success, cq.Success)
			if n, _ := b.Outstanding(); n != 0 || b.NextTimeout() < 1<<62 {
				t.Errorf("again %d, acknowledged %d: %d work requests are left", again, acked, n)
			}
		}
	}
}

// TestLocalFence: only with Fence does a bind wait for the READ before it.
func TestLocalFence(t *testing.T) {
	for _, fence := range []qp.SendFlags{0, qp.Fence} {
		b := newBinder(t, pairConfig{psnA: s0})
		b.post(read(b.m, 8))
		wr := b.bindWR(b.w2)
		wr.Flags = fence
		b.post(wr)
		b.wantOpen(b.w2.RKey(), fence == 0)
		b.inject(packet{op: bth.RCReadResponseOnly, psn: s0, syndrome: bth.AckNoCredits, payload: make([]byte, 8)})
		b.wantOpen(b.w2.RKey(), true)
		b.wantWCs(cq.WC{Opcode: cq.OpRDMARead}, cq.WC{Opcode: cq.OpBindMW})
	}
}

// TestLocalErrors: a local operation that fails completes with MW_BIND_ERR after the work requests before it. Those
// behind it are flushed and not executed.
func TestLocalErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		wr   func(b *binder) qp.SendWR
	}{
		{"bind beyond the region", func(b *binder) qp.SendWR {
			wr := b.bindWR(b.w2)
			wr.BindLength = 8193
			return wr
		}},
		{"bind whose range wraps", func(b *binder) qp.SendWR {
			wr := b.bindWR(b.w2)
			wr.BindAddr, wr.BindLength = ^uint64(0)-7, 0x1010
			return wr
		}},
		{"bind to a region without the right", func(b *binder) qp.SendWR {
			wr := b.bindWR(b.w2)
			_, wr.MR = b.region(b.t, 4096)
			wr.BindAddr = wr.MR.Addr()
			return wr
		}},
		{"bind of a window of another domain", func(b *binder) qp.SendWR {
			return b.bindWR(must(b.bench.mem.AllocMW(mr.NewPD(), mr.MWType2)))
		}},
		{"bind of length 0, type 2", func(b *binder) qp.SendWR {
			wr := b.bindWR(b.w2)
			wr.BindLength = 0
			return wr
		}},
		{"invalidate nothing", func(b *binder) qp.SendWR { return inv(b.w2.RKey()) }},
		{"invalidate a user's region", func(b *binder) qp.SendWR { return inv(b.m.RKey()) }},
		{"invalidate a type 1 window", func(b *binder) qp.SendWR {
			b.post(b.bindWR(b.w1))
			return inv(b.w1.RKey())
		}},
		{"register what is valid", func(b *binder) qp.SendWR {
			b.post(b.regWR())
			return b.regWR()
		}},
		{"register nothing", func(b *binder) qp.SendWR {
			wr := b.regWR()
			wr.MR = must(b.bench.mem.AllocFast(b.pd, mr.FastOptions{MaxPieces: 1}))
			wr.RKey = wr.MR.RKey()
			return wr
		}},
		{"register with impossible rights", func(b *binder) qp.SendWR {
			wr := b.regWR()
			wr.Access = mr.RemoteWrite
			return wr
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBinder(t, pairConfig{psnA: s0})
			bad := c.wr(b)
			drain(b.send)
			b.post(send(b.m, 1))
			b.post(bad)
			w := must(b.bench.mem.AllocMW(b.pd, mr.MWType2))
			b.post(b.bindWR(w))
			b.post(send(b.m, 1))
			b.wantSent(line{bth.RCSendOnly, s0})
			b.wantDone()
			b.wantState(qp.RTS)
			b.inject(ack(s0))
			b.wantDone(cq.Success, cq.MWBindErr, cq.WRFlushErr, cq.WRFlushErr)
			b.wantState(qp.Err)
			b.wantOpen(w.RKey(), false)
			b.post(b.bindWR(w))
			b.wantDone(cq.WRFlushErr)
			b.wantOpen(w.RKey(), false)

			uc := newBinder(t, pairConfig{psnA: s0, typ: qp.UC})
			bad = c.wr(uc)
			drain(uc.send)
			uc.post(send(uc.m, 1))
			uc.post(bad)
			uc.post(send(uc.m, 1))
			uc.wantDone(cq.Success, cq.MWBindErr, cq.WRFlushErr)
			uc.wantState(qp.SQE)
			if err := uc.Modify(&qp.Attr{State: qp.RTS}, qp.AttrState); err != nil {
				t.Fatal(err)
			}
			uc.sent()
			uc.post(send(uc.m, 1))
			uc.want(bth.UCSendOnly, s0.Add(1))
		})
	}
}

// TestLocalFlush: a bind that was executed while a SEND before it was outstanding is flushed when that SEND fails.
// The window is bound all the same.
func TestLocalFlush(t *testing.T) {
	b := newBinder(t, pairConfig{psnA: s0})
	b.post(send(b.m, 1))
	b.post(b.bindWR(b.w2))
	b.post(inv(b.w2.RKey()))
	b.inject(nak(bth.NAKRemoteOp, s0))
	b.wantWCs(cq.WC{Opcode: cq.OpSend, Status: cq.RemOpErr}, cq.WC{Opcode: cq.OpBindMW, Status: cq.WRFlushErr},
		cq.WC{Opcode: cq.OpLocalInv, Status: cq.WRFlushErr})
	b.wantOpen(b.w2.RKey(), true)
	b.inject(packet{op: bth.RCWriteOnly, va: 0x1000, key: b.w2.RKey(), length: 4, payload: []byte("late")})
	if b.mem[0] != 0 {
		t.Error("the window is open in ERR")
	}
	if err := b.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState); err != nil {
		t.Fatal(err)
	}
	b.wantOpen(b.w2.RKey(), false) // the connection it was for is gone
	if err := b.m.Deregister(); err != nil {
		t.Error(err)
	}
}

// TestLocalDrain: SQD starts no local operation.
func TestLocalDrain(t *testing.T) {
	for _, typ := range []qp.Type{qp.RC, qp.UC} {
		b := newBinder(t, pairConfig{psnA: s0, typ: typ})
		if err := b.Modify(&qp.Attr{State: qp.SQD, SQDNotify: true}, qp.AttrState|qp.AttrSQDNotify); err != nil {
			t.Fatal(err)
		}
		b.post(b.bindWR(b.w2))
		b.wantOpen(b.w2.RKey(), false)
		if !slices.Equal(b.events, []qp.EventType{qp.EventSQDrained}) {
			t.Errorf("events %v", b.events)
		}
		if err := b.Modify(&qp.Attr{State: qp.RTS}, qp.AttrState); err != nil {
			t.Fatal(err)
		}
		b.collect()
		b.wantOpen(b.w2.RKey(), true)
		b.wantDone(cq.Success)
	}
	// What was executed before the drain completes in it.
	b := newBinder(t, pairConfig{psnA: s0})
	b.post(send(b.m, 1))
	b.post(b.bindWR(b.w2))
	b.post(inv(b.w2.RKey()))
	if err := b.Modify(&qp.Attr{State: qp.SQD, SQDNotify: true}, qp.AttrState|qp.AttrSQDNotify); err != nil {
		t.Fatal(err)
	}
	b.inject(ack(s0))
	b.wantDone(cq.Success, cq.Success)
	b.wantOpen(b.w2.RKey(), true)
	if !slices.Equal(b.events, []qp.EventType{qp.EventSQDrained}) {
		t.Errorf("events %v", b.events)
	}
}

// TestWindowTraffic: the accesses that a peer may make through a window, and that it may make through no other queue
// pair.
func TestWindowTraffic(t *testing.T) {
	for _, c := range []struct {
		name string
		bad  func(b *binder) packet
		nak  bth.Syndrome
	}{
		{"inside", func(b *binder) packet {
			return packet{op: bth.RCWriteOnly, va: 0x1000, key: b.w2.RKey(), length: 4, payload: []byte("data"), ack: true}
		}, bth.AckNoCredits},
		{"type 1", func(b *binder) packet {
			return packet{op: bth.RCWriteOnly, va: 0x1000, key: b.w1.RKey(), length: 4, payload: []byte("data"), ack: true}
		}, bth.AckNoCredits},
		{"fast registration", func(b *binder) packet {
			return packet{op: bth.RCWriteOnly, va: 0x1000, key: b.fast.RKey(), length: 4, payload: []byte("data"), ack: true}
		}, bth.AckNoCredits},
		{"one byte beyond", func(b *binder) packet {
			return packet{op: bth.RCWriteOnly, va: 0x1000 + 97, key: b.w2.RKey(), length: 4, payload: []byte("data"), ack: true}
		}, bth.NAKRemoteAccess},
		{"old key", func(b *binder) packet {
			return packet{op: bth.RCWriteOnly, va: 0x1000, key: b.w2.RKey() - 1, length: 4, payload: []byte("data"), ack: true}
		}, bth.NAKRemoteAccess},
		{"through the region itself", func(b *binder) packet {
			return packet{op: bth.RCWriteOnly, va: 0x1000, key: b.m.RKey(), length: 4, payload: []byte("data"), ack: true}
		}, bth.NAKRemoteAccess},
		{"window of another queue pair", func(b *binder) packet {
			w := must(b.bench.mem.AllocMW(b.pd, mr.MWType2))
			var l mr.Windows
			if f := b.bench.mem.Bind(b.pd, b.Num()+1, &l, w, &mr.Binding{Key: w.RKey(), MR: b.m, LKey: b.m.LKey(), Addr: 0x1000, Length: 100,
				Access: remoteAll}); f != mr.OK {
				b.t.Fatal(f)
			}
			return packet{op: bth.RCWriteOnly, va: 0x1000, key: w.RKey(), length: 4, payload: []byte("data"), ack: true}
		}, bth.NAKRemoteAccess},
		{"atomic across pieces", func(b *binder) packet {
			return packet{op: bth.RCFetchAdd, va: 0x1000 + 48, key: b.fast.RKey(), swap: 1}
		}, bth.NAKRemoteAccess},
	} {
		b := newBinder(t, pairConfig{psnB: e0})
		b.post(b.bindWR(b.w1))
		b.post(b.bindWR(b.w2))
		b.post(b.regWR())
		b.wantDone(cq.Success, cq.Success, cq.Success)
		p := c.bad(b)
		p.psn = e0
		b.inject(p)
		b.wantAck(c.nak, e0)
		if got := string(b.mem[:4]) == "data"; got != (c.nak == bth.AckNoCredits) {
			t.Errorf("%s: memory changed: %v", c.name, got)
		}
	}
}

// TestRemoteInvalidate: SEND_WITH_INV frees a window or a fast registration,
// once; a copy of it changes nothing.
func TestRemoteInvalidate(t *testing.T) {
	b := newBinder(t, pairConfig{psnA: s0, psnB: e0})
	b.post(b.bindWR(b.w2))
	b.post(b.regWR())
	b.wantDone(cq.Success, cq.Success)
	for i, key := range []bth.RKey{b.w2.RKey(), b.fast.RKey()} {
		p := packet{op: bth.RCSendOnlyInv, psn: e0.Add(i), imm: uint32(key), payload: []byte("done"), ack: true}
		b.inject(p)
		b.wantAck(bth.AckNoCredits, p.psn)
		b.wantOpen(key, false)
		if wc := drain(b.recv); len(wc) != 1 || wc[0].Status != cq.Success || wc[0].Flags != cq.WithInv || wc[0].InvKey != key || wc[0].ByteLen != 4 {
			t.Fatalf("completions %+v", wc)
		}
	}
	// Bound again under the same key, the copy of the SEND must not hit it.
	wr := b.bindWR(b.w2)
	wr.RKey = b.w2.RKey()
	b.post(wr)
	b.inject(packet{op: bth.RCSendOnlyInv, psn: e0, imm: uint32(wr.RKey), payload: []byte("done"), ack: true})
	b.wantOpen(wr.RKey, true)
	b.wantState(qp.RTS)
}

// TestRemoteInvalidateErrors: if the receiver of a SEND_WITH_INV cannot invalidate the key, that is an error of the
// receiver. The SEND is acknowledged.
func TestRemoteInvalidateErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		key  func(b *binder) bth.RKey
	}{
		{"free window", func(b *binder) bth.RKey { return b.w2.RKey() }},
		{"free region", func(b *binder) bth.RKey { return b.fast.RKey() }},
		{"type 1 window", func(b *binder) bth.RKey { b.post(b.bindWR(b.w1)); return b.w1.RKey() }},
		{"old key", func(b *binder) bth.RKey { b.post(b.bindWR(b.w2)); return b.w2.RKey() - 1 }},
		{"window of another queue pair", func(b *binder) bth.RKey {
			var l mr.Windows
			b.bench.mem.Bind(b.pd, b.Num()+1, &l, b.w2, &mr.Binding{Key: b.w2.RKey(), MR: b.m, LKey: b.m.LKey(), Addr: 0x1000, Length: 100})
			return b.w2.RKey()
		}},
		{"region under a window", func(b *binder) bth.RKey {
			wr := b.regWR()
			wr.Access |= mr.MWBind
			b.post(wr)
			wr = b.bindWR(b.w2)
			wr.MR = b.fast
			b.post(wr)
			b.wantDone(cq.Success, cq.Success)
			return b.fast.RKey()
		}},
	} {
		b := newBinder(t, pairConfig{psnB: e0})
		b.inject(packet{op: bth.RCSendOnlyInv, psn: e0, imm: uint32(c.key(b)), ack: true})
		b.wantAck(bth.AckNoCredits, e0)
		b.wantState(qp.Err)
		if wc := drain(b.recv); len(wc) != 2 || wc[0].Status != cq.RemInvReqErr || wc[1].Status != cq.WRFlushErr {
			t.Errorf("%s: completions %v", c.name, wc)
		}
	}
}

// TestReadThroughRevokedWindow: a window that is invalidated in the middle of
// a READ ends it with a NAK.
func TestReadThroughRevokedWindow(t *testing.T) {
	b := newBinder(t, pairConfig{psnA: s0, psnB: e0})
	wr := b.bindWR(b.w2)
	wr.BindLength = 8192
	b.post(wr)
	b.HandlePacket(b.net.now, build(t, b.peer.path, b.Num(), packet{op: bth.RCReadRequest, psn: e0, va: 0x1000, key: b.w2.RKey(), length: 4096}))
	b.Emit(b.net.now, &oneByOne{b.bench, 2})
	b.wantSent(line{bth.RCReadResponseFirst, e0}, line{bth.RCReadResponseMiddle, e0.Add(1)})
	local := inv(b.w2.RKey())
	must(0, b.PostSend(&local))
	b.Emit(b.net.now, &oneByOne{b.bench, 1}) // the answers go first
	b.wantSent(line{bth.RCReadResponseMiddle, e0.Add(2)})
	b.inject(packet{op: bth.RCSendOnlyInv, psn: e0.Add(4), imm: uint32(b.w2.RKey()), payload: nil})
	b.wantAck(bth.NAKRemoteAccess, e0.Add(3))
	b.wantState(qp.Err)
}

// TestLocalAccess: work requests gather from a fast registration and scatter to it, by its L_Key.
func TestLocalAccess(t *testing.T) {
	b := newBinder(t, pairConfig{psnA: s0})
	for i := range b.mem {
		b.mem[i] = byte(i)
	}
	b.post(b.regWR())
	b.post(qp.SendWR{Opcode: qp.Send, SG: []mr.SGE{b.fast.SGE(40, 20)}})
	p := b.want(bth.RCSendOnly, s0)
	if want := append(slices.Clone(b.mem[40:50]), b.mem[4000:4010]...); !bytes.Equal(p.Payload(), want) {
		t.Errorf("sent %v, want %v", p.Payload(), want)
	}
	b.inject(ack(s0))
	b.post(qp.SendWR{Opcode: qp.Read, SG: []mr.SGE{b.fast.SGE(49, 2)}, RemoteAddr: 1, RKey: 2})
	b.sent()
	b.inject(packet{op: bth.RCReadResponseOnly, psn: s0.Add(1), syndrome: bth.AckNoCredits, payload: []byte{0xAA, 0xBB}})
	if b.mem[49] != 0xAA || b.mem[4000] != 0xBB {
		t.Errorf("read into %x and %x", b.mem[49], b.mem[4000])
	}
	b.post(inv(b.fast.RKey()))
	b.wantDone(cq.Success, cq.Success, cq.Success, cq.Success)
	b.post(qp.SendWR{Opcode: qp.Send, SG: []mr.SGE{b.fast.SGE(0, 1)}})
	b.wantDone(cq.LocProtErr)
}

func TestLocalNoAlloc(t *testing.T) {
	b := newBinder(t, pairConfig{})
	var wc [8]cq.WC
	cycle := func() {
		key := mr.IncRKey(b.w2.RKey())
		b.PostSend(&qp.SendWR{Opcode: qp.BindMW, Flags: qp.Signaled, MW: b.w2, MR: b.m, RKey: key, BindAddr: 0x1000, BindLength: 100, Access: remoteAll})
		b.PostSend(&qp.SendWR{Opcode: qp.LocalInv, Flags: qp.Signaled, InvKey: key})
		reg := mr.IncRKey(b.fast.RKey())
		b.PostSend(&qp.SendWR{Opcode: qp.RegMR, Flags: qp.Signaled, MR: b.fast, RKey: reg, Access: mr.LocalWrite})
		b.PostSend(&qp.SendWR{Opcode: qp.LocalInv, Flags: qp.Signaled, InvKey: reg})
		b.Emit(b.net.now, b)
		if n := b.send.Poll(wc[:]); n != 4 || wc[3].Status != cq.Success {
			t.Fatalf("%d completions, %v", n, wc[3])
		}
	}
	cycle()
	if n := testing.AllocsPerRun(100, cycle); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
