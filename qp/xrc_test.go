package qp_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// srqA and srqB are the numbers of the shared receive queues of a target's
// domain.
const (
	srqA bth.SRQN = 0x100
	srqB bth.SRQN = 0x101
)

// target is an XRC target under test with two shared receive queues, srqA and
// srqB. srqA has two receives of 2048 bytes, with IDs 0 and 1.
func target(t testing.TB, c pairConfig) (b *bench, mem []byte, region *mr.MR) {
	c.typ, c.typB, c.psnB = qp.XRCRecv, qp.XRCSend, e0
	c.hostA = newHost(rand.New(rand.NewPCG(1, 1))).openXRC(2, qp.SRQConfig{MaxWR: 15, MaxSGE: 2})
	b = newBench(t, c)
	mem, region = b.region(t, 16384)
	for id := range uint64(2) {
		must(0, b.host.xrc[0].PostRecv(&qp.RecvWR{ID: id, SG: []mr.SGE{region.SGE(8192+int(id)*2048, 2048)}}))
	}
	return b, mem, region
}

// initiator is an XRC initiator under test.
func initiator(t testing.TB, c pairConfig) (b *bench, mem []byte, region *mr.MR) {
	c.typ, c.typB = qp.XRCSend, qp.XRCRecv
	c.hostB = newHost(rand.New(rand.NewPCG(1, 1))).openXRC(1, qp.SRQConfig{MaxWR: 1})
	return client(t, c)
}

func xrcAck(psn bth.PSN, s bth.Syndrome) packet {
	return packet{op: bth.XRCAck, psn: psn, syndrome: s}
}

// wantXRC checks that the target has sent one answer, which has no XRCETH.
func (b *bench) wantXRC(s bth.Syndrome, psn bth.PSN) {
	b.t.Helper()
	if p := b.want(bth.XRCAck, psn); p.Syndrome() != s {
		b.t.Fatalf("syndrome %#x, want %#x", uint8(p.Syndrome()), uint8(s))
	}
}

// TestXRCInitiator: every packet of every operation is that of RC with the opcode of XRC. It names the shared receive
// queue behind the BTH, also when it is sent again.
func TestXRCInitiator(t *testing.T) {
	b, mem, m := initiator(t, pairConfig{})
	rdma := func(op qp.Opcode, n int) qp.SendWR {
		return qp.SendWR{Opcode: op, SG: []mr.SGE{m.SGE(0, n)}, RemoteAddr: 0x1000, RKey: 0x77, Imm: 0xCAFE, InvKey: 0xBEEF, CompareAdd: 5, Swap: 6}
	}
	for _, c := range []struct {
		name string
		wr   qp.SendWR
		want []bth.Opcode
	}{
		{"SEND", rdma(qp.Send, 2500), []bth.Opcode{bth.XRCSendFirst, bth.XRCSendMiddle, bth.XRCSendLast}},
		{"SEND_WITH_IMM", rdma(qp.SendImm, 1025), []bth.Opcode{bth.XRCSendFirst, bth.XRCSendLastImm}},
		{"SEND_WITH_IMM, one packet", rdma(qp.SendImm, 3), []bth.Opcode{bth.XRCSendOnlyImm}},
		{"SEND_WITH_INV", rdma(qp.SendInv, 3), []bth.Opcode{bth.XRCSendOnlyInv}},
		{"WRITE", rdma(qp.Write, 3000), []bth.Opcode{bth.XRCWriteFirst, bth.XRCWriteMiddle, bth.XRCWriteLast}},
		{"WRITE_WITH_IMM", rdma(qp.WriteImm, 2000), []bth.Opcode{bth.XRCWriteFirst, bth.XRCWriteLastImm}},
		{"WRITE_WITH_IMM, one packet", rdma(qp.WriteImm, 0), []bth.Opcode{bth.XRCWriteOnlyImm}},
		{"READ", rdma(qp.Read, 3000), []bth.Opcode{bth.XRCReadRequest}},
		{"COMPARE_SWAP", rdma(qp.CompareSwap, 8), []bth.Opcode{bth.XRCCompareSwap}},
		{"FETCH_ADD", rdma(qp.FetchAdd, 8), []bth.Opcode{bth.XRCFetchAdd}},
		{"FLUSH", qp.SendWR{Opcode: qp.Flush, RemoteAddr: 0x1000, RKey: 0x77, Length: 99, FlushType: bth.FlushGlobal}, []bth.Opcode{bth.XRCFlush}},
		{"ATOMIC_WRITE", rdma(qp.AtomicWrite, 8), []bth.Opcode{bth.XRCAtomicWrite}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, _, _ := initiator(t, pairConfig{hostA: b.host})
			c.wr.RemoteSRQN = 0xABCDEF
			length := int(c.wr.Length) // the length of a FLUSH, which has no data
			for _, s := range c.wr.SG {
				length += int(s.Length)
			}
			b.post(c.wr)
			for round := range 2 {
				out := b.sent()
				var ops []bth.Opcode
				off := 0
				for _, p := range out {
					ops = append(ops, p.Op)
					if p.SRQN() != 0xABCDEF || p.DestQPN() != b.peer.Num() {
						t.Errorf("round %d: %v names SRQ %v", round, p.Op, p.SRQN())
					}
					if h := p.Info.Headers; h&bth.HasRETH != 0 && (p.VA() != 0x1000 || p.RKey() != 0x77 || int(p.DMALen()) != length) ||
						h&bth.HasImm != 0 && p.Imm() != 0xCAFE || h&bth.HasIETH != 0 && p.InvKey() != 0xBEEF {
						t.Errorf("round %d: %v has wrong headers", round, p.Op)
					}
					if !bytes.Equal(p.Payload(), mem[off:off+len(p.Payload())]) {
						t.Errorf("round %d: %v carries other data", round, p.Op)
					}
					off += len(p.Payload())
				}
				if !slices.Equal(ops, c.want) || !out[len(out)-1].AckReq() {
					t.Fatalf("round %d: sent %v, want %v", round, ops, c.want)
				}
				if round == 0 {
					b.expire()
				}
			}
		})
	}
	// The initiator sends again from the middle of a message.
	wr := rdma(qp.Send, 2500)
	wr.RemoteSRQN = srqB
	b.post(wr)
	wr = rdma(qp.Read, 3000)
	wr.RemoteSRQN = srqA
	b.post(wr)
	b.sent()
	b.inject(xrcAck(s0.Add(1), bth.NAKSequence))
	out := b.sent()
	if got := summary(out); !slices.Equal(got, []line{{bth.XRCSendMiddle, s0.Add(1)}, {bth.XRCSendLast, s0.Add(2)}, {bth.XRCReadRequest, s0.Add(3)}}) ||
		out[0].SRQN() != srqB || out[1].SRQN() != srqB || out[2].SRQN() != srqA {
		t.Fatalf("sent %v", got)
	}
	b.inject(packet{op: bth.XRCReadResponseFirst, psn: s0.Add(3), syndrome: bth.AckNoCredits, payload: bytes.Repeat([]byte{1}, 1024)})
	b.wantDone(cq.Success) // the SEND
	b.expire()
	if p := b.want(bth.XRCReadRequest, s0.Add(4)); p.VA() != 0x1000+1024 || p.DMALen() != 1976 || p.SRQN() != srqA {
		t.Errorf("asks for %#x+%d in %v", p.VA(), p.DMALen(), p.SRQN())
	}
	b.inject(packet{op: bth.XRCReadResponseMiddle, psn: s0.Add(4), payload: bytes.Repeat([]byte{2}, 1024)})
	b.inject(packet{op: bth.XRCReadResponseLast, psn: s0.Add(5), syndrome: bth.AckNoCredits, payload: bytes.Repeat([]byte{3}, 952)})
	b.wantDone(cq.Success)
	if mem[0] != 1 || mem[1024] != 2 || mem[2999] != 3 {
		t.Error("wrong data")
	}
	b.post(rdma(qp.FetchAdd, 8))
	b.sent()
	b.inject(packet{op: bth.XRCAtomicAck, psn: s0.Add(6), syndrome: bth.AckNoCredits, value: 99})
	b.wantDone(cq.Success)
	if v := binary.NativeEndian.Uint64(mem); v != 99 {
		t.Errorf("atomic returned %d", v)
	}
	b.post(send(m, 1))
	b.sent()
	b.inject(xrcAck(s0.Add(7), bth.NAKInvalidRequest))
	b.wantDone(cq.RemInvReqErr)
	b.wantState(qp.Err)
}

// TestXRCTarget: receives are taken from the queue that the message names, and
// complete into its CQ with the number of the target queue pair.
func TestXRCTarget(t *testing.T) {
	b, mem, region := target(t, pairConfig{})
	done := func(i int, want ...outcome) []cq.WC {
		t.Helper()
		wcs := drain(b.host.xrc[i].cq)
		if got := ids(wcs); !slices.Equal(got, want) {
			t.Fatalf("queue %d: completed %v, want %v", i, got, want)
		}
		for _, wc := range wcs {
			if wc.QPN != b.Num() {
				t.Fatalf("queue %d: QPN %v", i, wc.QPN)
			}
		}
		return wcs
	}
	mtu := bytes.Repeat([]byte{'x'}, 1024)
	b.inject(packet{op: bth.XRCSendFirst, psn: e0, srqn: srqA, payload: mtu})
	b.inject(packet{op: bth.XRCSendLastImm, psn: e0.Add(1), srqn: srqA, imm: 5, ack: true, payload: []byte("tail")})
	b.wantXRC(bth.AckNoCredits, e0.Add(1))
	if wc := done(0, outcome{0, cq.Success})[0]; wc.Imm != 5 || wc.ByteLen != 1028 || string(mem[8192+1024:][:4]) != "tail" {
		t.Errorf("received %+v", wc)
	}
	// The other queue has no receive.
	b.inject(packet{op: bth.XRCSendOnly, psn: e0.Add(2), srqn: srqB, ack: true})
	b.wantXRC(bth.RNR(1), e0.Add(2))
	must(0, b.host.xrc[1].PostRecv(&qp.RecvWR{ID: 77, SG: []mr.SGE{region.SGE(0, 64)}}))
	b.inject(packet{op: bth.XRCWriteOnlyImm, psn: e0.Add(2), srqn: srqB, va: region.Addr() + 4096, key: region.RKey(), length: 4, payload: []byte("data"), ack: true})
	b.wantXRC(bth.AckNoCredits, e0.Add(2))
	if wc := done(1, outcome{77, cq.Success})[0]; wc.Opcode != cq.OpRecvRDMAWithImm || string(mem[4096:4100]) != "data" {
		t.Errorf("received %+v", wc)
	}
	b.inject(packet{op: bth.XRCReadRequest, psn: e0.Add(3), srqn: srqB, va: region.Addr() + 4096, key: region.RKey(), length: 1028})
	if got := summary(b.sent()); !slices.Equal(got, []line{{bth.XRCReadResponseFirst, e0.Add(3)}, {bth.XRCReadResponseLast, e0.Add(4)}}) {
		t.Fatalf("READ answered by %v", got)
	}
	binary.NativeEndian.PutUint64(mem, 40)
	add := packet{op: bth.XRCFetchAdd, psn: e0.Add(5), srqn: srqA, va: region.Addr(), key: region.RKey(), swap: 2}
	cas := packet{op: bth.XRCCompareSwap, psn: e0.Add(6), srqn: srqA, va: region.Addr(), key: region.RKey(), compare: 42, swap: 7}
	for _, d := range []packet{add, cas, add, cas} { // each is executed once
		b.inject(d)
		if p := b.want(bth.XRCAtomicAck, d.psn); p.AtomicValue() != map[bth.PSN]uint64{e0.Add(5): 40, e0.Add(6): 42}[d.psn] {
			t.Fatalf("%v returned %d", d.op, p.AtomicValue())
		}
	}
	if v := binary.NativeEndian.Uint64(mem); v != 7 {
		t.Errorf("memory holds %d", v)
	}
	b.inject(packet{op: bth.XRCSendOnly, psn: e0.Add(9), srqn: srqA, ack: true})
	b.wantXRC(bth.NAKSequence, e0.Add(7))
	b.wantEvents()
	done(0)
	done(1)
}

// TestXRCTargetErrors: a request must name a queue of the XRC domain, the same in all packets of a message. Otherwise
// the target answers NAK 0x61, and the receive in use completes once, into the CQ of its own queue. The target looks
// up a key in the protection domain of the queue.
func TestXRCTargetErrors(t *testing.T) {
	mtu := bytes.Repeat([]byte{'x'}, 1024)
	const unknown, foreign, basic bth.SRQN = 0x99, 0x500, 0x55
	sendFirst := packet{op: bth.XRCSendFirst, srqn: srqA, payload: mtu}
	read := func(m *mr.MR, srqn bth.SRQN) packet {
		return packet{op: bth.XRCReadRequest, srqn: srqn, va: m.Addr(), key: m.RKey(), length: 8}
	}
	for _, c := range []struct {
		name   string
		prior  []packet
		bad    func(m *mr.MR) packet
		nak    bth.Syndrome
		recv   []outcome // in the CQ of srqA
		events []qp.EventType
	}{
		{name: "SEND to no queue", bad: func(*mr.MR) packet { return packet{op: bth.XRCSendOnly, srqn: unknown} },
			nak: bth.NAKInvalidRequest, events: []qp.EventType{qp.EventReqErr}},
		{name: "SEND to a queue of another XRC domain", bad: func(*mr.MR) packet { return packet{op: bth.XRCSendOnly, srqn: foreign} },
			nak: bth.NAKInvalidRequest, events: []qp.EventType{qp.EventReqErr}},
		{name: "SEND to a queue that is not for XRC", bad: func(*mr.MR) packet { return packet{op: bth.XRCSendOnly, srqn: basic} },
			nak: bth.NAKInvalidRequest, events: []qp.EventType{qp.EventReqErr}},
		{name: "WRITE to no queue", bad: func(m *mr.MR) packet {
			return packet{op: bth.XRCWriteOnly, srqn: unknown, va: m.Addr(), key: m.RKey(), length: 4, payload: mtu[:4]}
		}, nak: bth.NAKInvalidRequest, events: []qp.EventType{qp.EventReqErr}},
		{name: "WRITE of nothing to no queue", bad: func(*mr.MR) packet { return packet{op: bth.XRCWriteOnly, srqn: unknown} },
			nak: bth.NAKInvalidRequest, events: []qp.EventType{qp.EventReqErr}},
		{name: "READ of no queue", bad: func(m *mr.MR) packet { return read(m, unknown) },
			nak: bth.NAKInvalidRequest, events: []qp.EventType{qp.EventReqErr}},
		{name: "atomic to a queue of another XRC domain", bad: func(m *mr.MR) packet {
			return packet{op: bth.XRCFetchAdd, srqn: foreign, va: m.Addr(), key: m.RKey()}
		}, nak: bth.NAKInvalidRequest, events: []qp.EventType{qp.EventReqErr}},
		{name: "another queue in the middle of a SEND", prior: []packet{sendFirst},
			bad: func(*mr.MR) packet { return packet{op: bth.XRCSendMiddle, psn: 1, srqn: srqB, payload: mtu} },
			nak: bth.NAKInvalidRequest, recv: []outcome{{0, cq.RemInvReqErr}}},
		{name: "no queue at the end of a SEND", prior: []packet{sendFirst},
			bad: func(*mr.MR) packet { return packet{op: bth.XRCSendLast, psn: 1, srqn: unknown, payload: mtu} },
			nak: bth.NAKInvalidRequest, recv: []outcome{{0, cq.RemInvReqErr}}},
		{name: "SEND_ONLY to another queue inside a SEND", prior: []packet{sendFirst},
			bad: func(*mr.MR) packet { return packet{op: bth.XRCSendOnly, psn: 1, srqn: srqB} },
			nak: bth.NAKInvalidRequest, recv: []outcome{{0, cq.RemInvReqErr}}},
		{name: "another queue in the middle of a WRITE", prior: []packet{{op: bth.XRCWriteFirst, srqn: srqA, length: 2048}},
			bad: func(*mr.MR) packet { return packet{op: bth.XRCWriteLast, psn: 1, srqn: srqB, payload: mtu} },
			nak: bth.NAKInvalidRequest, events: []qp.EventType{qp.EventReqErr}},
		{name: "key of another domain", bad: func(m *mr.MR) packet { return read(m, srqB) },
			nak: bth.NAKRemoteAccess, events: []qp.EventType{qp.EventAccessErr}},
		{name: "SEND longer than the receive", prior: []packet{sendFirst, {op: bth.XRCSendMiddle, psn: 1, srqn: srqA, payload: mtu}},
			bad: func(*mr.MR) packet { return packet{op: bth.XRCSendLast, psn: 2, srqn: srqA, payload: mtu} },
			nak: bth.NAKInvalidRequest, recv: []outcome{{0, cq.LocLenErr}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, mem, region := target(t, pairConfig{})
			b.host.shareRecvs(qp.SRQConfig{MaxWR: 1}) // number 0x55
			must(qp.NewSRQ(qp.SRQConfig{Num: foreign, PD: b.pd, MaxWR: 1, XRCD: qp.NewXRCD(), CQ: b.recv}))
			// srqB is of another protection domain.
			must(0, b.host.xrc[1].Close())
			must(qp.NewSRQ(qp.SRQConfig{Num: srqB, PD: mr.NewPD(), MaxWR: 1, XRCD: b.host.xrcd, CQ: b.recv}))
			for _, d := range c.prior {
				d.psn = e0.Add(int(d.psn))
				if d.length > 0 {
					d.va, d.key, d.payload = region.Addr(), region.RKey(), mtu
				}
				b.inject(d)
				b.wantSilence()
			}
			before := bytes.Clone(mem)
			bad := c.bad(region)
			bad.psn = e0.Add(int(bad.psn))
			b.inject(bad)
			b.wantXRC(c.nak, bad.psn)
			b.wantState(qp.Err)
			b.wantEvents(append(c.events, qp.EventLastWQE)...)
			if got := ids(drain(b.host.xrc[0].cq)); !slices.Equal(got, c.recv) {
				t.Errorf("receives completed %v, want %v", got, c.recv)
			}
			if n := b.host.xrc[0].Len(); n != 2-len(c.recv) {
				t.Errorf("%d receives left", n)
			}
			if len(drain(b.recv)) != 0 || !bytes.Equal(mem, before) {
				t.Error("a foreign queue has a completion, or memory was changed")
			}
			b.inject(bad)
			b.wantSilence()
		})
	}
}

// TestXRCDuplicateRead: the target answers a repeated READ only in the protection domain that executed it.
func TestXRCDuplicateRead(t *testing.T) {
	b, _, region := target(t, pairConfig{})
	must(0, b.host.xrc[1].Close())
	must(qp.NewSRQ(qp.SRQConfig{Num: srqB, PD: mr.NewPD(), MaxWR: 1, XRCD: b.host.xrcd, CQ: b.recv}))
	read := packet{op: bth.XRCReadRequest, psn: e0, srqn: srqA, va: region.Addr(), key: region.RKey(), length: 8}
	for range 2 {
		b.inject(read)
		b.want(bth.XRCReadResponseOnly, e0)
	}
	for _, srqn := range []bth.SRQN{srqB, 0x99} {
		read.srqn = srqn
		b.inject(read)
		b.wantSilence()
	}
	if b.wantState(qp.RTS); b.cnt.DupDropped != 2 {
		t.Errorf("%d duplicates dropped", b.cnt.DupDropped)
	}
	// Before the answer is sent, a packet names another domain, and the queue is closed. Neither changes the answer.
	read = packet{op: bth.XRCReadRequest, psn: e0.Add(1), srqn: srqA, va: region.Addr(), key: region.RKey(), length: 4096}
	b.HandlePacket(b.net.now, build(t, b.peer.path, b.Num(), read))
	b.HandlePacket(b.net.now, build(t, b.peer.path, b.Num(), packet{op: bth.XRCWriteOnly, psn: e0.Add(5), srqn: srqB}))
	must(0, b.host.xrc[0].Close())
	b.collect()
	if n := len(b.sent()); n != 4 {
		t.Errorf("%d responses, want 4", n)
	}
	b.wantState(qp.RTS)
}

// TestXRCLastWQE: a target that fails completes the receive in use, into the CQ of the receive's own queue.
func TestXRCLastWQE(t *testing.T) {
	b, _, _ := target(t, pairConfig{})
	b.inject(packet{op: bth.XRCSendFirst, psn: e0, srqn: srqA, payload: make([]byte, 1024)})
	if err := b.host.xrc[0].Close(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("close with a receive in use: %v", err)
	}
	must(0, b.Modify(&qp.Attr{State: qp.Err}, qp.AttrState))
	if got := ids(drain(b.host.xrc[0].cq)); !slices.Equal(got, []outcome{{0, cq.WRFlushErr}}) {
		t.Errorf("completed %v", got)
	}
	b.wantEvents(qp.EventLastWQE)
	must(0, b.host.xrc[0].Close())

	b, _, _ = target(t, pairConfig{})
	b.inject(packet{op: bth.XRCSendFirst, psn: e0, srqn: srqA, payload: make([]byte, 1024)})
	must(0, b.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState))
	must(0, b.host.xrc[0].Close())
	if got := drain(b.host.xrc[0].cq); len(got) != 0 {
		t.Errorf("completed %v", got)
	}
}

// TestXRCOverrun: a completion that finds the CQ of the shared receive queue
// full puts the target into ERR.
func TestXRCOverrun(t *testing.T) {
	b, _, _ := target(t, pairConfig{})
	small := must(cq.New(1, cq.Options{}))
	srq := must(qp.NewSRQ(qp.SRQConfig{Num: 0x200, PD: b.pd, MaxWR: 3, XRCD: b.host.xrcd, CQ: small}))
	for i := range 2 {
		must(0, srq.PostRecv(&qp.RecvWR{}))
		b.inject(packet{op: bth.XRCSendOnly, psn: e0.Add(i), srqn: 0x200})
	}
	b.wantState(qp.Err)
	if len(drain(small)) != 1 || srq.Close() != nil {
		t.Error("the lost receive is still in use")
	}
}

// TestXRCDirection: an initiator accepts no requests, a target no responses, and neither accepts packets of RC.
func TestXRCDirection(t *testing.T) {
	b, _, m := initiator(t, pairConfig{psnB: e0})
	b.post(send(m, 1))
	b.sent()
	for _, d := range []packet{{op: bth.XRCSendOnly, psn: e0, ack: true}, {op: bth.XRCReadRequest, psn: e0}, ack(s0), {op: bth.RCSendOnly, psn: e0, ack: true}} {
		b.inject(d)
		b.wantSilence()
	}
	if b.wantDone(); b.cnt.WrongTransport != 4 {
		t.Errorf("initiator: %+v", b.cnt)
	}
	b, _, _ = target(t, pairConfig{})
	for _, d := range []packet{xrcAck(0, bth.AckNoCredits), {op: bth.XRCReadResponseOnly}, {op: bth.RCSendOnly, psn: e0, ack: true}, {op: bth.UCSendOnly, psn: e0}} {
		b.inject(d)
		b.wantSilence()
	}
	if b.cnt.WrongTransport != 4 {
		t.Errorf("target: %+v", b.cnt)
	}
}

// TestXRCPost: neither end accepts receives, and the target accepts no sends.
func TestXRCPost(t *testing.T) {
	ini, _, m := initiator(t, pairConfig{})
	tgt, _, _ := target(t, pairConfig{})
	far := send(m, 1)
	far.RemoteSRQN = 1 << 24
	near := send(m, 1)
	for name, err := range map[string]error{
		"receive at the initiator": ini.PostRecv(&qp.RecvWR{}),
		"receive at the target":    tgt.PostRecv(&qp.RecvWR{}),
		"send at the target":       tgt.PostSend(&near),
		"SRQN beyond 24 bits":      ini.PostSend(&far),
	} {
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: error %v, want EINVAL", name, err)
		}
	}
	if _, caps := tgt.Query(); caps != (qp.Caps{}) {
		t.Errorf("target: capacities %+v", caps)
	}
	if _, caps := ini.Query(); caps.MaxRecvWR != 0 || caps.MaxRecvSGE != 0 || caps.MaxSendWR == 0 {
		t.Errorf("initiator: capacities %+v", caps)
	}
}

// TestXRCObjects: New and NewSRQ refuse objects that do not match. An XRC domain is not closed while it is used.
func TestXRCObjects(t *testing.T) {
	pd, mem, done := mr.NewPD(), mr.NewTable(rand.Uint64), must(cq.New(1, cq.Options{}))
	x := qp.NewXRCD()
	srq := must(qp.NewSRQ(qp.SRQConfig{Num: 5, PD: pd, MaxWR: 1, XRCD: x, CQ: done}))
	basic := must(qp.NewSRQ(qp.SRQConfig{Num: 6, PD: pd, MaxWR: 1}))
	for _, c := range []struct {
		name string
		c    qp.Config
	}{
		{"target without XRC domain", qp.Config{Type: qp.XRCRecv}},
		{"target with a shared receive queue", qp.Config{Type: qp.XRCRecv, XRCD: x, SRQ: basic}},
		{"initiator with XRC domain", qp.Config{Type: qp.XRCSend, PD: pd, SendCQ: done, XRCD: x}},
		{"initiator without domain", qp.Config{Type: qp.XRCSend, SendCQ: done}},
		{"initiator without send queue's CQ", qp.Config{Type: qp.XRCSend, PD: pd}},
		{"initiator with a shared receive queue", qp.Config{Type: qp.XRCSend, PD: pd, SendCQ: done, SRQ: basic}},
		{"RC with XRC domain", qp.Config{Type: qp.RC, PD: pd, SendCQ: done, RecvCQ: done, XRCD: x}},
		{"RC with a shared receive queue of XRC", qp.Config{Type: qp.RC, PD: pd, SendCQ: done, RecvCQ: done, SRQ: srq}},
	} {
		c.c.Memory = mem
		if _, err := qp.New(c.c); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: error %v, want EINVAL", c.name, err)
		}
	}
	for name, c := range map[string]qp.SRQConfig{
		"XRC domain without CQ": {Num: 7, PD: pd, MaxWR: 1, XRCD: x},
		"CQ without XRC domain": {Num: 7, PD: pd, MaxWR: 1, CQ: done},
		"number taken":          {Num: 5, PD: pd, MaxWR: 1, XRCD: x, CQ: done},
		"number too large":      {Num: 1 << 24, PD: pd, MaxWR: 1, XRCD: x, CQ: done},
	} {
		if _, err := qp.NewSRQ(c); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: error %v, want EINVAL", name, err)
		}
	}
	if err := x.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("with a queue in it: %v", err)
	}
	must(0, srq.Close())
	must(0, x.Retain())
	if err := x.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("with a queue pair in it: %v", err)
	}
	x.Release()
	must(0, x.Close())
	_, err := qp.NewSRQ(qp.SRQConfig{Num: 5, PD: pd, MaxWR: 1, XRCD: x, CQ: done})
	for _, err := range []error{err, x.Close(), x.Retain()} {
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("closed: %v", err)
		}
	}
}
