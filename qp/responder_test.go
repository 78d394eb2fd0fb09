package qp_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

const e0 bth.PSN = 0xFFFFF0 // first PSN the engine under test expects

// server is an engine under test with memory and two posted receives.
func server(t testing.TB, c pairConfig) (b *bench, mem []byte, region *mr.MR) {
	c.psnB = e0
	b = newBench(t, c)
	mem, region = b.region(t, 16384)
	recv, rm := b.region(t, 2048)
	_ = recv
	for id := range uint64(2) {
		if err := b.PostRecv(&qp.RecvWR{ID: id, SG: []mr.SGE{rm.SGE(0, 2048)}}); err != nil {
			t.Fatal(err)
		}
	}
	return b, mem, region
}

// refusal is a request that an RC responder must refuse: the NAK, the
// completion of the receive in use, the event.
type refusal struct {
	name   string
	config pairConfig
	region func(*bench) *mr.MR // what is accessed; nil: memory with every right
	prior  []packet            // accepted before; a WRITE without an address goes to the region
	bad    func(m *mr.MR) packet
	nak    bth.Syndrome
	recv   cq.Status // status of the first receive completion
	event  qp.EventType
}

// TestResponderErrors is the table of what an RC responder does with requests
// it must refuse.
func TestResponderErrors(t *testing.T) {
	mtu := bytes.Repeat([]byte{'x'}, 1024)
	checkRefusals(t, []refusal{
		{name: "SEND_MIDDLE without FIRST", bad: func(*mr.MR) packet { return packet{op: bth.RCSendMiddle, payload: mtu} },
			nak: bth.NAKInvalidRequest, recv: cq.WRFlushErr, event: qp.EventReqErr},
		{name: "SEND_LAST without FIRST", bad: func(*mr.MR) packet { return packet{op: bth.RCSendLast, payload: mtu} },
			nak: bth.NAKInvalidRequest, recv: cq.WRFlushErr, event: qp.EventReqErr},
		{name: "SEND_ONLY inside a SEND", prior: []packet{{op: bth.RCSendFirst, payload: mtu}},
			bad: func(*mr.MR) packet { return packet{op: bth.RCSendOnly, psn: 1, payload: mtu} },
			nak: bth.NAKInvalidRequest, recv: cq.RemInvReqErr},
		{name: "WRITE_MIDDLE inside a SEND", prior: []packet{{op: bth.RCSendFirst, payload: mtu}},
			bad: func(*mr.MR) packet { return packet{op: bth.RCWriteMiddle, psn: 1, payload: mtu} },
			nak: bth.NAKInvalidRequest, recv: cq.RemInvReqErr},
		{name: "READ inside a SEND", prior: []packet{{op: bth.RCSendFirst, payload: mtu}},
			bad: func(m *mr.MR) packet {
				return packet{op: bth.RCReadRequest, psn: 1, va: m.Addr(), key: m.RKey(), length: 8}
			},
			nak: bth.NAKInvalidRequest, recv: cq.RemInvReqErr},
		{name: "no remote read right", config: pairConfig{access: mr.RemoteWrite},
			bad: func(m *mr.MR) packet { return packet{op: bth.RCReadRequest, va: m.Addr(), key: m.RKey(), length: 8} },
			nak: bth.NAKInvalidRequest, recv: cq.WRFlushErr, event: qp.EventReqErr},
		{name: "no remote write right", config: pairConfig{access: mr.RemoteRead},
			bad: func(m *mr.MR) packet {
				return packet{op: bth.RCWriteOnly, va: m.Addr(), key: m.RKey(), length: 4, payload: mtu[:4]}
			}, nak: bth.NAKInvalidRequest, recv: cq.WRFlushErr, event: qp.EventReqErr},
		{name: "no remote atomic right", config: pairConfig{access: mr.RemoteRead},
			bad: func(m *mr.MR) packet { return packet{op: bth.RCFetchAdd, va: m.Addr(), key: m.RKey()} },
			nak: bth.NAKInvalidRequest, recv: cq.WRFlushErr, event: qp.EventReqErr},
		{name: "WRITE_FIRST shorter than the MTU", bad: func(m *mr.MR) packet {
			return packet{op: bth.RCWriteFirst, va: m.Addr(), key: m.RKey(), length: 2000, payload: mtu[:1020]}
		}, nak: bth.NAKInvalidRequest, recv: cq.WRFlushErr, event: qp.EventReqErr},
		{name: "SEND_FIRST shorter than the MTU", bad: func(*mr.MR) packet { return packet{op: bth.RCSendFirst, payload: mtu[:1000]} },
			nak: bth.NAKInvalidRequest, recv: cq.WRFlushErr, event: qp.EventReqErr},
		{name: "SEND_LAST without payload", prior: []packet{{op: bth.RCSendFirst, payload: mtu}},
			bad: func(*mr.MR) packet { return packet{op: bth.RCSendLast, psn: 1} },
			nak: bth.NAKInvalidRequest, recv: cq.RemInvReqErr},
		{name: "ONLY longer than the MTU", bad: func(*mr.MR) packet { return packet{op: bth.RCSendOnly, payload: append(mtu, mtu...)} },
			nak: bth.NAKInvalidRequest, recv: cq.WRFlushErr, event: qp.EventReqErr},
		{name: "WRITE longer than 2^31", bad: func(m *mr.MR) packet {
			return packet{op: bth.RCWriteFirst, va: m.Addr(), key: m.RKey(), length: 1<<31 + 1, payload: mtu}
		}, nak: bth.NAKInvalidRequest, recv: cq.WRFlushErr, event: qp.EventReqErr},
		{name: "READ longer than 2^31", bad: func(m *mr.MR) packet {
			return packet{op: bth.RCReadRequest, va: m.Addr(), key: m.RKey(), length: 1<<31 + 1}
		}, nak: bth.NAKInvalidRequest, recv: cq.WRFlushErr, event: qp.EventReqErr},
		{name: "WRITE_ONLY unlike its RETH length", bad: func(m *mr.MR) packet {
			return packet{op: bth.RCWriteOnly, va: m.Addr(), key: m.RKey(), length: 5, payload: mtu[:4]}
		}, nak: bth.NAKInvalidRequest, recv: cq.WRFlushErr, event: qp.EventReqErr},
		{name: "SEND longer than the receive buffer", prior: []packet{{op: bth.RCSendFirst, payload: mtu}, {op: bth.RCSendMiddle, psn: 1, payload: mtu}},
			bad: func(*mr.MR) packet { return packet{op: bth.RCSendLast, psn: 2, payload: mtu[:1]} },
			nak: bth.NAKInvalidRequest, recv: cq.LocLenErr},
		{name: "unknown R_Key", bad: func(m *mr.MR) packet {
			return packet{op: bth.RCWriteOnly, va: m.Addr(), key: m.RKey() ^ 1, length: 4, payload: mtu[:4]}
		}, nak: bth.NAKRemoteAccess, recv: cq.WRFlushErr, event: qp.EventAccessErr},
		{name: "range beyond the region", bad: func(m *mr.MR) packet {
			return packet{op: bth.RCReadRequest, va: m.Addr() + uint64(m.Length()) - 4, key: m.RKey(), length: 5}
		}, nak: bth.NAKRemoteAccess, recv: cq.WRFlushErr, event: qp.EventAccessErr},
		{name: "address wraps around", bad: func(m *mr.MR) packet {
			return packet{op: bth.RCReadRequest, va: ^uint64(0) - 3, key: m.RKey(), length: 8}
		}, nak: bth.NAKRemoteAccess, recv: cq.WRFlushErr, event: qp.EventAccessErr},
		{name: "atomic on an unaligned address", bad: func(m *mr.MR) packet { return packet{op: bth.RCCompareSwap, va: m.Addr() + 4, key: m.RKey()} },
			nak: bth.NAKInvalidRequest, recv: cq.WRFlushErr, event: qp.EventReqErr},
		{name: "FLUSH, which is not granted", config: pairConfig{access: mr.RemoteWrite}, bad: func(m *mr.MR) packet {
			return packet{op: bth.RCFlush, place: bth.FlushGlobal, va: m.Addr(), key: m.RKey(), length: 8}
		}, nak: bth.NAKInvalidRequest, recv: cq.WRFlushErr, event: qp.EventReqErr},
	})
}

// checkRefusals also checks the state, that no memory was changed, and that the queue pair sends nothing more.
func checkRefusals(t *testing.T, table []refusal) {
	for _, c := range table {
		t.Run(c.name, func(t *testing.T) {
			b, mem, region := server(t, c.config)
			if c.region != nil {
				region = c.region(b)
			}
			before := bytes.Clone(mem)
			for _, p := range c.prior {
				p.psn = e0.Add(int(p.psn))
				if p.va == 0 {
					p.va, p.key = region.Addr(), region.RKey()
				}
				b.inject(p)
				b.wantSilence()
			}
			bad := c.bad(region)
			bad.psn = e0.Add(int(bad.psn))
			b.inject(bad)
			b.wantAck(c.nak, bad.psn)
			b.wantState(qp.Err)
			wcs := drain(b.recv)
			if len(wcs) != 2 || wcs[0].Status != c.recv || wcs[1].Status != cq.WRFlushErr {
				t.Errorf("receives completed %v, want %v and a flush", wcs, c.recv)
			}
			if want := []qp.EventType{c.event}; c.event != 0 && !slices.Equal(b.events, want) || c.event == 0 && len(b.events) > 0 {
				t.Errorf("events %v, want %v", b.events, c.event)
			}
			if !bytes.Equal(mem, before) {
				t.Error("memory was changed")
			}
			b.inject(bad)
			b.wantSilence() // ERR is silent
		})
	}
}

// TestResponderGap: one NAK for a gap, silence until the expected packet
// arrives, then acknowledgements again.
func TestResponderGap(t *testing.T) {
	b, _, _ := server(t, pairConfig{})
	b.inject(packet{op: bth.RCSendOnly, psn: e0.Add(1), ack: true})
	b.wantAck(bth.NAKSequence, e0)
	b.inject(packet{op: bth.RCSendOnly, psn: e0.Add(2), ack: true})
	b.wantSilence()
	b.inject(packet{op: bth.RCSendOnly, psn: e0, ack: true})
	b.wantAck(bth.AckNoCredits, e0)
	b.inject(packet{op: bth.RCSendOnly, psn: e0.Add(2), ack: true})
	b.wantAck(bth.NAKSequence, e0.Add(1))
}

// TestResponderRNR: without a receive the responder sends an RNR NAK with the timer of the queue pair, and no NAK for
// later packets. It executes the packet when there is a receive.
func TestResponderRNR(t *testing.T) {
	b := newBench(t, pairConfig{psnB: e0, minRNR: 12})
	_, m := b.region(t, 64)
	b.inject(packet{op: bth.RCSendOnly, psn: e0, ack: true, payload: []byte("abcd")})
	b.wantAck(bth.RNR(12), e0)
	b.inject(packet{op: bth.RCSendOnly, psn: e0.Add(1), ack: true})
	b.wantSilence()
	if err := b.PostRecv(&qp.RecvWR{SG: []mr.SGE{m.SGE(0, 64)}}); err != nil {
		t.Fatal(err)
	}
	b.inject(packet{op: bth.RCSendOnly, psn: e0, ack: true, payload: []byte("abcd")})
	b.wantAck(bth.AckNoCredits, e0)
}

// TestResponderDuplicates: a SEND is acknowledged but not executed again, an
// atomic returns its saved value, a READ reads again, also a part of it; a
// READ that does not match is dropped.
func TestResponderDuplicates(t *testing.T) {
	b, mem, region := server(t, pairConfig{rd: 3})
	binary.NativeEndian.PutUint64(mem, 40)
	b.inject(packet{op: bth.RCSendOnly, psn: e0, payload: []byte("abcd")})
	b.wantSilence() // no AckReq
	if n := len(drain(b.recv)); n != 1 {
		t.Fatalf("%d receives", n)
	}
	b.inject(packet{op: bth.RCSendOnly, psn: e0, payload: []byte("abcd")})
	b.wantSilence()
	b.inject(packet{op: bth.RCSendOnly, psn: e0, ack: true, payload: []byte("abcd")})
	b.wantAck(bth.AckNoCredits, e0)
	if n := len(drain(b.recv)); n != 0 {
		t.Fatalf("duplicate SEND delivered")
	}
	add := packet{op: bth.RCFetchAdd, psn: e0.Add(1), va: region.Addr(), key: region.RKey(), swap: 2}
	for range 3 {
		b.inject(add)
		if p := b.want(bth.RCAtomicAck, e0.Add(1)); p.AtomicValue() != 40 {
			t.Fatalf("atomic returned %d, want 40", p.AtomicValue())
		}
	}
	if v := binary.NativeEndian.Uint64(mem); v != 42 {
		t.Fatalf("memory holds %d, want 42: executed more than once", v)
	}
	read := packet{op: bth.RCReadRequest, psn: e0.Add(2), va: region.Addr(), key: region.RKey(), length: 3000}
	responses := []line{{bth.RCReadResponseFirst, e0.Add(2)}, {bth.RCReadResponseMiddle, e0.Add(3)}, {bth.RCReadResponseLast, e0.Add(4)}}
	for range 2 {
		b.inject(read)
		if got := summary(b.sent()); !slices.Equal(got, responses) {
			t.Fatalf("READ answered by %v", got)
		}
	}
	part := packet{op: bth.RCReadRequest, psn: e0.Add(3), va: region.Addr() + 1024, key: region.RKey(), length: 1976}
	b.inject(part)
	if got := summary(b.sent()); !slices.Equal(got, []line{{bth.RCReadResponseFirst, e0.Add(3)}, {bth.RCReadResponseLast, e0.Add(4)}}) {
		t.Fatalf("partial READ answered by %v", got)
	}
	b.inject(read) // the whole once more, after a part
	if got := summary(b.sent()); !slices.Equal(got, responses) {
		t.Fatalf("READ after a partial one answered by %v", got)
	}
	for _, change := range []func(*packet){
		func(p *packet) { p.va += 4 },
		func(p *packet) { p.key++ },
		func(p *packet) { p.length++ },
		func(p *packet) { p.psn = e0.Add(1) }, // that was an atomic
	} {
		p := read
		change(&p)
		b.inject(p)
		b.wantSilence()
	}
	b.wantState(qp.RTS)
}

// TestResponderDuplicateBeforeRead: the acknowledgement of a repeated SEND does
// not name the PSN of a READ or atomic behind it. rxe would complete that one
// without data.
func TestResponderDuplicateBeforeRead(t *testing.T) {
	b, _, region := server(t, pairConfig{})
	send := packet{op: bth.RCSendOnly, psn: e0, ack: true}
	b.inject(send)
	b.wantAck(bth.AckNoCredits, e0)
	b.inject(packet{op: bth.RCReadRequest, psn: e0.Add(1), va: region.Addr(), key: region.RKey(), length: 8})
	b.want(bth.RCReadResponseOnly, e0.Add(1))
	b.inject(send)
	b.wantAck(bth.AckNoCredits, e0)
	b.inject(packet{op: bth.RCFetchAdd, psn: e0.Add(2), va: region.Addr(), key: region.RKey()})
	b.want(bth.RCAtomicAck, e0.Add(2))
	b.inject(send)
	b.wantAck(bth.AckNoCredits, e0)
	b.inject(packet{op: bth.RCWriteOnly, psn: e0.Add(3)})
	b.inject(send) // everything up to the WRITE, once more
	b.wantAck(bth.AckNoCredits, e0.Add(3))
}

// TestResponderReadRevoked: deregistering the region in the middle of a READ
// ends it with a NAK; nothing is read any more.
func TestResponderReadRevoked(t *testing.T) {
	b, _, region := server(t, pairConfig{})
	b.HandlePacket(b.net.now, build(t, b.peer.path, b.Num(), packet{op: bth.RCReadRequest, psn: e0, va: region.Addr(), key: region.RKey(), length: 16384}))
	b.room, b.used = 3, 0
	b.Emit(b.net.now, limited{b})
	if got := len(b.sent()); got != 3 {
		t.Fatalf("%d responses, want 3", got)
	}
	if err := region.Deregister(); err != nil {
		t.Fatal(err)
	}
	b.room = 0
	b.collect()
	b.wantAck(bth.NAKRemoteAccess, e0.Add(3))
	b.wantState(qp.Err)
}

// TestResponderNAKRepeated: a NAK is repeated a few times while packets with AckReq arrive behind the gap. Each new
// gap has a NAK and repetitions of its own. An RNR NAK is not repeated.
func TestResponderNAKRepeated(t *testing.T) {
	b, _, _ := server(t, pairConfig{})
	ahead := func(from, to int, want ...int) {
		t.Helper()
		var got []int
		for i := from; i < to; i++ {
			b.inject(packet{op: bth.RCWriteOnly, psn: e0.Add(i), ack: i%2 == 0})
			for _, p := range b.sent() {
				if p.Op != bth.RCAck || p.Syndrome() != bth.NAKSequence {
					t.Fatalf("packet %d: %v, syndrome %#x", i, p.Op, uint8(p.Syndrome()))
				}
				got = append(got, i, int(p.PSN().Sub(e0)))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("NAKs %v, want %v", got, want)
		}
	}
	ahead(1, 200, 1, 0, 34, 0, 66, 0, 98, 0)
	ahead(1, 200, 1, 0, 34, 0, 66, 0, 98, 0) // the first was lost once more
	b.inject(packet{op: bth.RCWriteOnly, psn: e0})
	b.wantSilence()
	ahead(3, 40, 3, 1, 36, 1)
	if b.cnt.SeqNAKSent != 10 {
		t.Errorf("%d NAKs counted, want 10", b.cnt.SeqNAKSent)
	}
	drained := newBench(t, pairConfig{psnB: e0})
	b = drained
	b.inject(packet{op: bth.RCSendOnly, psn: e0, ack: true})
	b.wantAck(bth.RNR(1), e0)
	ahead(1, 200)
}

// TestResponderReadRepeated: a requester repeats READs while the responder sends their responses. A requester that
// goes back accepts only responses in order. So the responder sends repeated responses before later ones, and
// restarts a READ instead of sending the rest first.
func TestResponderReadRepeated(t *testing.T) {
	b, _, region := server(t, pairConfig{})
	read := func(psn, packets int) packet {
		return packet{op: bth.RCReadRequest, psn: e0.Add(psn), va: region.Addr() + uint64(psn)*1024, key: region.RKey(), length: uint32(packets) * 1024}
	}
	handle := func(d packet) { b.HandlePacket(b.net.now, build(t, b.peer.path, b.Num(), d)) }
	emit := func(n int, want ...line) {
		t.Helper()
		b.room, b.used = n, 0
		b.Emit(b.net.now, limited{b})
		b.wantSent(want...)
	}
	first, middle, last, only := bth.RCReadResponseFirst, bth.RCReadResponseMiddle, bth.RCReadResponseLast, bth.RCReadResponseOnly
	handle(read(0, 4))
	handle(read(4, 4))
	handle(packet{op: bth.RCWriteOnly, psn: e0.Add(8), ack: true})
	emit(6, line{first, e0}, line{middle, e0.Add(1)}, line{middle, e0.Add(2)}, line{last, e0.Add(3)}, line{first, e0.Add(4)}, line{middle, e0.Add(5)})

	handle(read(2, 2)) // the third response was lost; what comes behind it is of no use
	handle(read(4, 4))
	emit(3, line{first, e0.Add(2)}, line{last, e0.Add(3)}, line{first, e0.Add(4)})
	handle(read(4, 4)) // that, too
	handle(read(4, 4)) // a copy
	handle(read(6, 2)) // of what is going to be sent
	emit(2, line{first, e0.Add(4)}, line{middle, e0.Add(5)})
	handle(read(5, 1)) // a requester that keeps what comes out of order wants this one only
	emit(9, line{only, e0.Add(5)}, line{middle, e0.Add(6)}, line{last, e0.Add(7)}, line{bth.RCAck, e0.Add(8)})
	b.wantState(qp.RTS)
}

// limited is a sink with room for as many packets as the bench says.
type limited struct{ *bench }

func (l limited) Commit() { l.used++; l.bench.Commit() }

// TestResponderZeroLength: the key of a request that touches no memory is not checked.
func TestResponderZeroLength(t *testing.T) {
	b, _, _ := server(t, pairConfig{})
	b.inject(packet{op: bth.RCReadRequest, psn: e0, va: 0xDEAD, key: 0xBEEF})
	if p := b.want(bth.RCReadResponseOnly, e0); len(p.Payload()) != 0 || p.MSN() != 1 {
		t.Errorf("%d bytes, MSN %d", len(p.Payload()), p.MSN())
	}
	b.inject(packet{op: bth.RCWriteOnlyImm, psn: e0.Add(1), va: 1, key: 2, imm: 0xCAFE0001, ack: true})
	b.wantAck(bth.AckNoCredits, e0.Add(1))
	if wc := drain(b.recv); len(wc) != 1 || wc[0].Opcode != cq.OpRecvRDMAWithImm || wc[0].Imm != 0xCAFE0001 || wc[0].ByteLen != 0 {
		t.Errorf("completions %v", wc)
	}
}

// TestResponderOrder: answers leave in the order of the requests, and
// acknowledgements of a batch merge.
func TestResponderOrder(t *testing.T) {
	b, _, region := server(t, pairConfig{})
	handle := func(d packet) { b.HandlePacket(b.net.now, build(t, b.peer.path, b.Num(), d)) }
	handle(packet{op: bth.RCSendOnly, psn: e0, ack: true})
	handle(packet{op: bth.RCWriteOnly, psn: e0.Add(1), ack: true, va: region.Addr(), key: region.RKey(), length: 4, payload: []byte("1234")})
	handle(packet{op: bth.RCReadRequest, psn: e0.Add(2), va: region.Addr(), key: region.RKey(), length: 2000})
	handle(packet{op: bth.RCSendOnly, psn: e0.Add(4), ack: true})
	b.collect()
	want := []line{{bth.RCAck, e0.Add(1)}, {bth.RCReadResponseFirst, e0.Add(2)}, {bth.RCReadResponseLast, e0.Add(3)}, {bth.RCAck, e0.Add(4)}}
	out := b.sent()
	if got := summary(out); !slices.Equal(got, want) {
		t.Fatalf("sent %v, want %v", got, want)
	}
	for i, msn := range []bth.MSN{2, 3, 3, 4} {
		if out[i].MSN() != msn {
			t.Errorf("packet %d: MSN %d, want %d", i, out[i].MSN(), msn)
		}
	}
}

// TestResponderLetsRequestPass: an acknowledgement alone lets one request pass,
// and only one; a NAK, or an answer to a READ, does not.
func TestResponderLetsRequestPass(t *testing.T) {
	for _, tt := range []struct {
		name string
		got  packet
		want []line
	}{
		{"acknowledgement", packet{op: bth.RCSendOnly, psn: e0, ack: true},
			[]line{{bth.RCSendOnly, s0}, {bth.RCAck, e0}, {bth.RCSendOnly, s0.Add(1)}}},
		{"NAK", packet{op: bth.RCSendOnly, psn: e0.Add(1), ack: true},
			[]line{{bth.RCAck, e0}, {bth.RCSendOnly, s0}, {bth.RCSendOnly, s0.Add(1)}}},
		{"READ", packet{op: bth.RCReadRequest, psn: e0, length: 4},
			[]line{{bth.RCReadResponseOnly, e0}, {bth.RCSendOnly, s0}, {bth.RCSendOnly, s0.Add(1)}}},
	} {
		for _, first := range []bool{false, true} { // EmitPassing first
			t.Run(fmt.Sprintf("%s/%v", tt.name, first), func(t *testing.T) {
				b, _, region := server(t, pairConfig{psnA: s0})
				if tt.got.length > 0 {
					tt.got.va, tt.got.key = region.Addr(), region.RKey()
				}
				b.HandlePacket(b.net.now, build(t, b.peer.path, b.Num(), tt.got))
				for range 2 {
					if err := b.PostSend(&qp.SendWR{Opcode: qp.Send, Inline: []byte("1234")}); err != nil {
						t.Fatal(err)
					}
				}
				if first {
					b.EmitPassing(b.net.now, b)
					if n := len(b.out); n != 1 && tt.want[0].Op == bth.RCSendOnly || n > 0 && tt.want[0].Op != bth.RCSendOnly {
						t.Errorf("%d packets before Emit", n)
					}
					b.EmitPassing(b.net.now, b) // one request is allowed to
				}
				b.collect()
				b.wantSent(tt.want...)
			})
		}
	}
}

// TestResponderBatch: the packets of a batch change the answers that already wait.
func TestResponderBatch(t *testing.T) {
	b, _, region := server(t, pairConfig{})
	handle := func(d packet) { b.HandlePacket(b.net.now, build(t, b.peer.path, b.Num(), d)) }
	handle(packet{op: bth.RCSendOnly, psn: e0})
	handle(packet{op: bth.RCSendOnly, psn: e0.Add(3), ack: true}) // a gap
	handle(packet{op: bth.RCSendOnly, psn: e0, ack: true})        // a duplicate must not remove the NAK
	b.collect()
	out := b.sent()
	if got := summary(out); !slices.Equal(got, []line{{bth.RCAck, e0.Add(1)}, {bth.RCAck, e0}}) || out[0].Syndrome() != bth.NAKSequence {
		t.Fatalf("sent %v", got)
	}
	// A READ that is still waiting to be answered is not answered twice.
	read := packet{op: bth.RCReadRequest, psn: e0.Add(1), va: region.Addr(), key: region.RKey(), length: 2000}
	handle(read)
	handle(read)
	b.collect()
	b.wantSent(line{bth.RCReadResponseFirst, e0.Add(1)}, line{bth.RCReadResponseLast, e0.Add(2)})
}

// TestResponderBacklog: the port has no room, and NAKs and acknowledgements fill the queue of answers. A READ without
// room for its answer is dropped, and executed when it is repeated. It is an error of the peer only if it sends more
// READs than were granted.
func TestResponderBacklog(t *testing.T) {
	b, _, region := server(t, pairConfig{rd: 2})
	for range 8 {
		must(0, b.PostRecv(&qp.RecvWR{SG: []mr.SGE{region.SGE(0, 64)}}))
	}
	handle := func(d packet) { b.HandlePacket(b.net.now, build(t, b.peer.path, b.Num(), d)) }
	for i := range 6 { // in turn an acknowledgement and a NAK, which do not merge
		handle(packet{op: bth.RCSendOnly, psn: e0.Add(i), ack: true})
		handle(packet{op: bth.RCSendOnly, psn: e0.Add(i + 2), ack: true})
	}
	read := packet{op: bth.RCReadRequest, psn: e0.Add(6), va: region.Addr(), key: region.RKey(), length: 8}
	handle(read)
	b.wantState(qp.RTS)
	b.collect()
	b.sent()
	b.inject(read)
	b.want(bth.RCReadResponseOnly, e0.Add(6))

	for i := range 9 {
		read.psn = e0.Add(7 + i)
		handle(read)
	}
	b.wantState(qp.Err)
}

// TestResponderCommEst: the first packet in RTR raises COMM_EST, once.
func TestResponderCommEst(t *testing.T) {
	b := newBench(t, pairConfig{psnB: e0, stopAt: qp.RTR})
	for i := range 3 {
		b.inject(packet{op: bth.RCWriteOnly, psn: e0.Add(i), ack: true})
		b.wantAck(bth.AckNoCredits, e0.Add(i))
	}
	if !slices.Equal(b.events, []qp.EventType{qp.EventCommEst}) {
		t.Errorf("events %v", b.events)
	}
}

// TestResponderInvalidate: a SEND_WITH_INV that names a key which cannot be
// invalidated is acknowledged; the error is the responder's own.
func TestResponderInvalidate(t *testing.T) {
	b, _, region := server(t, pairConfig{})
	b.inject(packet{op: bth.RCSendOnlyInv, psn: e0, imm: uint32(region.RKey()), ack: true})
	b.wantAck(bth.AckNoCredits, e0)
	b.wantState(qp.Err)
	if wc := drain(b.recv); len(wc) != 2 || wc[0].Status != cq.RemInvReqErr || wc[1].Status != cq.WRFlushErr {
		t.Errorf("completions %v", wc)
	}
}

// TestWrongPeer: packets from another address or of another transport are counted and dropped.
func TestWrongPeer(t *testing.T) {
	b, _, _ := server(t, pairConfig{})
	b.HandlePacket(1, build(t, b.path, b.Num(), packet{op: bth.RCSendOnly, psn: e0, ack: true})) // source and destination swapped
	b.inject(packet{op: bth.UDSendOnly, psn: e0})
	b.inject(packet{op: bth.UCSendOnly, psn: e0})
	b.wantSilence()
	if b.cnt.WrongPeer != 1 || b.cnt.WrongTransport != 2 {
		t.Errorf("counters %+v", b.cnt)
	}
}

// TestDuplicateReadOfDeadMemory: a READ whose data arrived long ago may be delivered once more after its key was
// invalidated. That is no violation: a requester that still misses a response needs the NAK, and the connection
// continues.
func TestDuplicateReadOfDeadMemory(t *testing.T) {
	b, _, region := server(t, pairConfig{})
	read := packet{op: bth.RCReadRequest, psn: e0, va: region.Addr(), key: region.RKey(), length: 3000}
	b.inject(read)
	b.inject(packet{op: bth.RCSendOnly, psn: e0.Add(3), ack: true})
	if n := len(b.sent()); n != 4 {
		t.Fatalf("%d answers", n)
	}
	if err := region.Deregister(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []packet{read, {op: bth.RCReadRequest, psn: e0.Add(2), va: region.Addr() + 2048, key: region.RKey(), length: 952}} {
		b.inject(p)
		b.wantAck(bth.NAKRemoteAccess, p.psn)
		b.wantState(qp.RTS)
	}
	b.inject(packet{op: bth.RCSendOnly, psn: e0.Add(4), ack: true})
	b.wantAck(bth.AckNoCredits, e0.Add(4))
	if len(b.events) != 0 || b.cnt.DupDropped != 2 || b.cnt.FatalNAKSent != 2 {
		t.Errorf("events %v, counters %+v", b.events, b.cnt)
	}
}
