package qp_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// TestPlacementErrors is the table of FLUSHes and ATOMIC_WRITEs that a responder
// must refuse. An ATOMIC_WRITE without data once made rxe store eight bytes of
// its own memory.
func TestPlacementErrors(t *testing.T) {
	data := []byte("0123456789abcdef")
	all := mr.RemoteWrite | mr.RemoteRead | mr.RemoteAtomic | mr.FlushGlobal | mr.FlushPersistent
	flush := func(change func(m *mr.MR, p *packet)) func(*mr.MR) packet {
		return func(m *mr.MR) packet {
			p := packet{op: bth.RCFlush, place: bth.FlushGlobal, va: m.Addr(), key: m.RKey(), length: 64}
			change(m, &p)
			return p
		}
	}
	write := func(change func(m *mr.MR, p *packet)) func(*mr.MR) packet {
		return func(m *mr.MR) packet {
			p := packet{op: bth.RCAtomicWrite, va: m.Addr(), key: m.RKey(), length: 8, payload: data[:8]}
			change(m, &p)
			return p
		}
	}
	invalid := func(name string, bad func(*mr.MR) packet) refusal {
		return refusal{name: name, config: pairConfig{access: all}, bad: bad,
			nak: bth.NAKInvalidRequest, recv: cq.WRFlushErr, event: qp.EventReqErr}
	}
	denied := func(name string, bad func(*mr.MR) packet) refusal {
		return refusal{name: name, config: pairConfig{access: all}, bad: bad,
			nak: bth.NAKRemoteAccess, recv: cq.WRFlushErr, event: qp.EventAccessErr}
	}
	table := []refusal{
		invalid("FLUSH to nowhere", flush(func(_ *mr.MR, p *packet) { p.place = 0 })),
		invalid("FLUSH to an unknown place", flush(func(_ *mr.MR, p *packet) { p.place = 5 })),
		invalid("FLUSH of unknown selectivity", flush(func(_ *mr.MR, p *packet) { p.sel = 2 })),
		invalid("FLUSH with payload", flush(func(_ *mr.MR, p *packet) { p.payload = data[:4] })),
		invalid("FLUSH longer than 2^31", flush(func(_ *mr.MR, p *packet) { p.length = 1<<31 + 1 })),
		denied("FLUSH, unknown key", flush(func(_ *mr.MR, p *packet) { p.key ^= 1 })),
		denied("FLUSH of nothing, unknown key", flush(func(_ *mr.MR, p *packet) { p.key, p.length = p.key^1, 0 })),
		denied("FLUSH of a region, unknown key", flush(func(_ *mr.MR, p *packet) { p.key, p.sel = p.key^1, bth.FlushMR })),
		denied("FLUSH of a region, key of no slot", flush(func(_ *mr.MR, p *packet) { p.key, p.sel = ^p.key, bth.FlushMR })),
		denied("FLUSH beyond the region", flush(func(m *mr.MR, p *packet) { p.length = uint32(m.Length()) + 1 })),
		denied("FLUSH of an address that wraps", flush(func(_ *mr.MR, p *packet) { p.va = ^uint64(0) - 7 })),
		denied("FLUSH to persistence that the region has not", flush(func(_ *mr.MR, p *packet) { p.place = bth.FlushPersistent })),
		denied("FLUSH to both", flush(func(_ *mr.MR, p *packet) { p.place = bth.FlushGlobal | bth.FlushPersistent })),
		invalid("ATOMIC_WRITE of nothing", write(func(_ *mr.MR, p *packet) { p.length, p.payload = 0, nil })),
		invalid("ATOMIC_WRITE without data", write(func(_ *mr.MR, p *packet) { p.payload = nil })),
		invalid("ATOMIC_WRITE of no length", write(func(_ *mr.MR, p *packet) { p.length = 0 })),
		invalid("ATOMIC_WRITE of 4 bytes", write(func(_ *mr.MR, p *packet) { p.length, p.payload = 4, data[:4] })),
		invalid("ATOMIC_WRITE of 7 bytes and pad", write(func(_ *mr.MR, p *packet) { p.payload = data[:7] })),
		invalid("ATOMIC_WRITE of 16 bytes", write(func(_ *mr.MR, p *packet) { p.length, p.payload = 16, data })),
		invalid("ATOMIC_WRITE, unaligned", write(func(_ *mr.MR, p *packet) { p.va += 4 })),
		denied("ATOMIC_WRITE, unknown key", write(func(_ *mr.MR, p *packet) { p.key ^= 1 })),
		denied("ATOMIC_WRITE beyond the region", write(func(m *mr.MR, p *packet) { p.va += uint64(m.Length()) })),
	}
	for _, c := range []struct {
		name   string
		access mr.Access
		bad    func(*mr.MR) packet
	}{
		{"FLUSH without the right", all &^ mr.FlushGlobal, flush(func(*mr.MR, *packet) {})},
		{"FLUSH of no placement without a right", all &^ (mr.FlushGlobal | mr.FlushPersistent), flush(func(_ *mr.MR, p *packet) { p.place = 0 })},
		{"FLUSH to persistence without the right", all &^ mr.FlushPersistent, flush(func(_ *mr.MR, p *packet) { p.place = bth.FlushPersistent })},
		{"ATOMIC_WRITE without the right", all &^ mr.RemoteWrite, write(func(*mr.MR, *packet) {})},
	} {
		r := invalid(c.name, c.bad)
		r.config.access = c.access
		table = append(table, r)
	}
	for _, place := range []packet{{op: bth.RCFlush, place: bth.FlushGlobal}, {op: bth.RCAtomicWrite, length: 8, payload: data[:8]}} {
		table = append(table, refusal{name: place.op.String() + " inside a SEND",
			prior: []packet{{op: bth.RCSendFirst, payload: make([]byte, 1024)}},
			bad: func(m *mr.MR) packet {
				p := place
				p.psn, p.va, p.key = 1, m.Addr(), m.RKey()
				return p
			}, nak: bth.NAKInvalidRequest, recv: cq.RemInvReqErr})
	}
	checkRefusals(t, table)
}

// TestResponderFlush: WRITE, FLUSH and ATOMIC_WRITE are answered in order, and the MSN counts them. The answer to a
// FLUSH replaces the acknowledgement before it. Repeated requests are answered and not executed.
func TestResponderFlush(t *testing.T) {
	b, mem, region := server(t, pairConfig{})
	handle := func(d packet) { b.HandlePacket(b.net.now, build(t, b.peer.path, b.Num(), d)) }
	word := binary.NativeEndian.AppendUint64(nil, 0x1122334455667788)
	requests := []packet{
		{op: bth.RCWriteOnly, ack: true, va: region.Addr(), key: region.RKey(), length: 4, payload: []byte("1234")},
		{op: bth.RCFlush, place: bth.FlushGlobal, va: region.Addr(), key: region.RKey(), length: 4},
		{op: bth.RCAtomicWrite, va: region.Addr() + 8, key: region.RKey(), length: 8, payload: word},
		{op: bth.RCFlush, place: bth.FlushGlobal, sel: bth.FlushMR, va: 0xDEAD, key: region.RKey(), length: 1<<32 - 1},
		{op: bth.RCFlush, place: bth.FlushGlobal, va: region.Addr() + uint64(len(mem)), key: region.RKey()},
	}
	for i, r := range requests {
		r.psn = e0.Add(i)
		handle(r)
	}
	if got := region.Flushes(); got != 3 {
		t.Errorf("%d FLUSHes executed, want 3", got)
	}
	if string(mem[:4]) != "1234" || !bytes.Equal(mem[8:16], word) {
		t.Errorf("memory %q", mem[:16])
	}
	b.collect()
	want := []line{{bth.RCReadResponseOnly, e0.Add(1)}, {bth.RCReadResponseOnly, e0.Add(2)}, {bth.RCReadResponseOnly, e0.Add(3)}, {bth.RCReadResponseOnly, e0.Add(4)}}
	out := b.sent()
	if got := summary(out); !slices.Equal(got, want) {
		t.Fatalf("sent %v, want %v", got, want)
	}
	for i, p := range out {
		if p.MSN() != bth.MSN(i+2) || p.PayloadLen() != 0 || p.Syndrome() != bth.AckNoCredits {
			t.Errorf("answer %d: MSN %d, %d bytes, syndrome %v", i, p.MSN(), p.PayloadLen(), p.Syndrome())
		}
	}
	clear(mem)
	for i := range []int{1, 2, 3, 4} {
		r := requests[i+1]
		r.psn = e0.Add(i + 1)
		b.inject(r)
		if p := b.want(bth.RCReadResponseOnly, r.psn); p.MSN() != 5 || p.PayloadLen() != 0 {
			t.Errorf("repeated %v: MSN %d, %d bytes", r.op, p.MSN(), p.PayloadLen())
		}
	}
	if got := region.Flushes(); got != 3 || !bytes.Equal(mem, make([]byte, len(mem))) {
		t.Errorf("executed again: %d FLUSHes, memory %x", got, mem[:16])
	}
	// The answer to a repeated WRITE acknowledges everything up to the last FLUSH. The answer to a repeated FLUSH
	// replaces no acknowledgement of a newer request.
	b.inject(packet{op: bth.RCWriteOnly, psn: e0, ack: true})
	b.wantAck(bth.AckNoCredits, e0.Add(4))
	handle(packet{op: bth.RCWriteOnly, psn: e0.Add(5), ack: true})
	again := requests[1]
	again.psn = e0.Add(1)
	handle(again)
	b.collect()
	b.wantSent(line{bth.RCReadResponseOnly, e0.Add(1)}, line{bth.RCAck, e0.Add(5)})
	b.wantState(qp.RTS)
}

// TestResponderFlushLimits: a FLUSH takes no place among the granted READs,
// since rxe counts none, and many of them do not keep a READ from being
// answered. Those that find no room are dropped and executed when repeated.
func TestResponderFlushLimits(t *testing.T) {
	b, _, region := server(t, pairConfig{rd: 1})
	handle := func(d packet) { b.HandlePacket(b.net.now, build(t, b.peer.path, b.Num(), d)) }
	psn := e0
	flush := packet{op: bth.RCFlush, place: bth.FlushGlobal, va: region.Addr(), key: region.RKey(), length: 8}
	read := packet{op: bth.RCReadRequest, va: region.Addr(), key: region.RKey(), length: 8}
	write := packet{op: bth.RCWriteOnly, ack: true}
	for range 64 {
		flush.psn, write.psn = psn, psn.Add(1)
		handle(flush)
		handle(write)
		psn = psn.Add(2)
	}
	read.psn = psn
	handle(read)
	flush.psn = psn.Add(1)
	handle(flush) // no room for this one
	b.wantState(qp.RTS)
	b.collect()
	b.collect()
	out := summary(b.sent())
	if len(out) != 66 || out[64] != (line{bth.RCAck, psn.Add(-1)}) || out[65] != (line{bth.RCReadResponseOnly, psn}) {
		t.Fatalf("%d answers, the last %v", len(out), out[max(0, len(out)-3):])
	}
	if b.cnt.DupDropped != 1 || region.Flushes() != 64 {
		t.Errorf("%d dropped, %d executed", b.cnt.DupDropped, region.Flushes())
	}
	b.inject(flush)
	b.want(bth.RCReadResponseOnly, psn.Add(1))
}

// TestResponderFlushPersistent: Persist runs before the answer. If it fails, the answer is a NAK.
func TestResponderFlushPersistent(t *testing.T) {
	b := newBench(t, pairConfig{psnB: e0, access: mr.FlushPersistent})
	mem, bad := make([]byte, 64), error(nil)
	var ranges [][]byte
	region := must(b.mem.Register(b.pd, mem, mr.FlushPersistent, mr.Options{Persist: func(p []byte) error {
		ranges = append(ranges, p)
		return bad
	}}))
	flush := packet{op: bth.RCFlush, psn: e0, place: bth.FlushPersistent, va: region.Addr() + 8, key: region.RKey(), length: 16}
	b.inject(flush)
	b.want(bth.RCReadResponseOnly, e0)
	b.inject(flush) // not again
	b.want(bth.RCReadResponseOnly, e0)
	flush.psn, flush.sel = e0.Add(1), bth.FlushMR
	b.inject(flush)
	b.want(bth.RCReadResponseOnly, e0.Add(1))
	if len(ranges) != 2 || &ranges[0][0] != &mem[8] || len(ranges[0]) != 16 || &ranges[1][0] != &mem[0] || len(ranges[1]) != 64 {
		t.Fatalf("made persistent: %d ranges", len(ranges))
	}
	flush.psn, bad = e0.Add(2), errors.New("worn out")
	b.inject(flush)
	b.wantAck(bth.NAKRemoteOp, e0.Add(2))
	b.wantState(qp.Err)
	if !slices.Equal(b.events, []qp.EventType{qp.EventFatal}) {
		t.Errorf("events %v", b.events)
	}
}

func flushWR(sel bth.FlushSelectivity) qp.SendWR {
	return qp.SendWR{Opcode: qp.Flush, RemoteAddr: 0x1000, RKey: 0x77, Length: 64, FlushType: bth.FlushGlobal, Selectivity: sel}
}

func atomicWriteWR(word string) qp.SendWR {
	return qp.SendWR{Opcode: qp.AtomicWrite, RemoteAddr: 0x1008, RKey: 0x77, Inline: []byte(word)}
}

// TestRequesterFlush: the fields of the requests, and the answers that complete them.
func TestRequesterFlush(t *testing.T) {
	b, mem, m := client(t, pairConfig{})
	b.post(flushWR(bth.FlushMR))
	p := b.want(bth.RCFlush, s0)
	if p.FlushType() != bth.FlushGlobal || p.FlushSelectivity() != bth.FlushMR || p.VA() != 0x1000 || p.RKey() != 0x77 ||
		p.DMALen() != 64 || !p.AckReq() || p.PayloadLen() != 0 {
		t.Errorf("sent %+v", bth.Decode(&p.Packet))
	}
	b.post(atomicWriteWR("abcdefgh"))
	p = b.want(bth.RCAtomicWrite, s0.Add(1))
	if string(p.Payload()) != "abcdefgh" || p.VA() != 0x1008 || p.DMALen() != 8 {
		t.Errorf("sent %+v", bth.Decode(&p.Packet))
	}
	b.post(qp.SendWR{Opcode: qp.AtomicWrite, SG: []mr.SGE{m.SGE(1, 3), m.SGE(10, 5)}})
	if p = b.want(bth.RCAtomicWrite, s0.Add(2)); !bytes.Equal(p.Payload(), slices.Concat(mem[1:4], mem[10:15])) {
		t.Errorf("gathered %x", p.Payload())
	}
	for i := range 3 {
		b.inject(packet{op: bth.RCReadResponseOnly, psn: s0.Add(i), syndrome: bth.AckNoCredits})
		wcs := drain(b.send)
		want := [...]cq.Opcode{cq.OpFlush, cq.OpAtomicWrite, cq.OpAtomicWrite}[i]
		if len(wcs) != 1 || wcs[0].Status != cq.Success || wcs[0].Opcode != want {
			t.Errorf("completions %+v, want %v", wcs, want)
		}
	}
}

// TestRequesterFlushImplied: an answer of any kind beyond a FLUSH or ATOMIC_WRITE completes it, and returns its
// credit.
func TestRequesterFlushImplied(t *testing.T) {
	for _, answer := range []packet{
		{op: bth.RCAck, psn: s0.Add(2)},
		{op: bth.RCReadResponseOnly, psn: s0.Add(1)},
		{op: bth.RCAck, psn: s0.Add(1)}, // the answer of rxe to emitFlushQuery
	} {
		b, _, m := client(t, pairConfig{rd: 2})
		answer.syndrome = bth.AckNoCredits
		b.post(flushWR(0))
		b.post(atomicWriteWR("abcdefgh"))
		b.post(send(m, 8))
		b.post(flushWR(0)) // no credit is left
		b.wantSent(line{bth.RCFlush, s0}, line{bth.RCAtomicWrite, s0.Add(1)}, line{bth.RCSendOnly, s0.Add(2)})
		b.inject(answer)
		if answer.psn == s0.Add(2) {
			b.wantDone(cq.Success, cq.Success, cq.Success)
		} else {
			b.wantDone(cq.Success, cq.Success)
		}
		b.wantSent(line{bth.RCFlush, s0.Add(3)})
		b.post(flushWR(0))
		b.wantSent(line{bth.RCFlush, s0.Add(4)})
		b.post(flushWR(0))
		b.wantSilence()
	}
}

// TestRequesterFlushFails: a NAK or an answer of the wrong kind fails a FLUSH.
func TestRequesterFlushFails(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer packet
		want   cq.Status
	}{
		{"invalid request", nak(bth.NAKInvalidRequest, s0), cq.RemInvReqErr},
		{"access", nak(bth.NAKRemoteAccess, s0), cq.RemAccessErr},
		{"failed", nak(bth.NAKRemoteOp, s0), cq.RemOpErr},
		{"data", packet{op: bth.RCReadResponseOnly, psn: s0, syndrome: bth.AckNoCredits, payload: make([]byte, 64)}, cq.BadRespErr},
		{"FIRST", packet{op: bth.RCReadResponseFirst, psn: s0, syndrome: bth.AckNoCredits}, cq.BadRespErr},
		{"syndrome", packet{op: bth.RCReadResponseOnly, psn: s0, syndrome: bth.NAKRemoteOp}, cq.BadRespErr},
		{"atomic", packet{op: bth.RCAtomicAck, psn: s0, syndrome: bth.AckNoCredits}, cq.BadRespErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, _, m := client(t, pairConfig{})
			b.post(flushWR(0))
			b.post(send(m, 1))
			b.sent()
			b.inject(c.answer)
			b.wantDone(c.want, cq.WRFlushErr)
			b.wantState(qp.Err)
		})
	}
	b, _, m := client(t, pairConfig{})
	sge := m.SGE(0, 8)
	sge.LKey++
	b.post(send(m, 1))
	b.post(qp.SendWR{Opcode: qp.AtomicWrite, SG: []mr.SGE{sge}})
	b.wantSent(line{bth.RCSendOnly, s0})
	b.inject(ack(s0))
	b.wantDone(cq.Success, cq.LocProtErr)
}

// TestRequesterFlushRetry: a FLUSH without an answer is repeated. To rxe the requester first sends a WRITE of no
// bytes, which rxe takes for a duplicate: the answer shows whether rxe has executed the FLUSH.
func TestRequesterFlushRetry(t *testing.T) {
	b, _, _ := client(t, pairConfig{})
	b.post(flushWR(0))
	b.sent()
	b.expire()
	b.wantSent(line{bth.RCFlush, s0})

	b, _, m := client(t, pairConfig{})
	b.quirk(t)
	b.post(send(m, 1))
	b.post(flushWR(0))
	b.wantSent(line{bth.RCSendOnly, s0}, line{bth.RCFlush, s0.Add(1)})
	b.expire() // the FLUSH is not the oldest request: the repeated SEND has the same effect
	b.wantSent(line{bth.RCSendOnly, s0}, line{bth.RCFlush, s0.Add(1)})
	b.inject(ack(s0))
	b.wantDone(cq.Success)
	for range 2 {
		b.expire()
		out := b.sent()
		if got := summary(out); !slices.Equal(got, []line{{bth.RCWriteOnly, s0}, {bth.RCFlush, s0.Add(1)}}) {
			t.Fatalf("sent %v", got)
		}
		if p := out[0]; p.DMALen() != 0 || p.PayloadLen() != 0 || !p.AckReq() {
			t.Errorf("asked with %+v", bth.Decode(&p.Packet))
		}
	}
	b.inject(ack(s0)) // not executed yet
	b.wantDone()
	b.inject(ack(s0.Add(1)))
	b.wantDone(cq.Success)
}

// quirk makes the peer of a queue pair one that computes the ICRC of a FLUSH as
// rxe does.
func (n *node) quirk(t testing.TB) {
	t.Helper()
	if err := n.Modify(&qp.Attr{FlushICRCQuirk: true}, qp.AttrFlushICRCQuirk); err != nil {
		t.Fatal(err)
	}
}

// TestFlushICRCQuirk: with the quirk, FLUSHes and only FLUSHes have the other ICRC, in both directions. RESET ends
// the quirk.
func TestFlushICRCQuirk(t *testing.T) {
	b, _, m := client(t, pairConfig{})
	b.post(flushWR(0))
	plain := b.want(bth.RCFlush, s0)
	if !b.CheckICRC(plain) || plain.CheckICRCFlushQuirk() {
		t.Error("without the quirk")
	}
	b.quirk(t)
	if a, _ := b.Query(); !a.FlushICRCQuirk {
		t.Error("Query does not show it")
	}
	if b.CheckICRC(plain) {
		t.Error("a FLUSH with the ICRC of the standard is accepted")
	}
	b.post(flushWR(0))
	if p := b.want(bth.RCFlush, s0.Add(1)); !b.CheckICRC(p) || p.CheckICRC() {
		t.Error("with the quirk")
	}
	b.post(send(m, 64))
	if p := b.want(bth.RCSendOnly, s0.Add(2)); !p.CheckICRC() || !b.CheckICRC(p) {
		t.Error("a SEND is different")
	}
	if err := b.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState); err != nil {
		t.Fatal(err)
	}
	if !b.CheckICRC(plain) {
		t.Error("the quirk outlives RESET")
	}
	u := newBench(t, pairConfig{typ: qp.UC})
	if err := u.Modify(&qp.Attr{FlushICRCQuirk: true}, qp.AttrFlushICRCQuirk); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("on UC: %v", err)
	}
}

// TestPostPlacementErrors: PostSend refuses these FLUSHes and ATOMIC_WRITEs.
func TestPostPlacementErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(flush, write *qp.SendWR, m *mr.MR)
	}{
		{"FLUSH to nowhere", func(f, _ *qp.SendWR, _ *mr.MR) { f.FlushType = 0 }},
		{"FLUSH to an unknown place", func(f, _ *qp.SendWR, _ *mr.MR) { f.FlushType = 4 }},
		{"FLUSH of unknown selectivity", func(f, _ *qp.SendWR, _ *mr.MR) { f.Selectivity = 2 }},
		{"FLUSH longer than 2^31", func(f, _ *qp.SendWR, _ *mr.MR) { f.Length = 1<<31 + 1 }},
		{"FLUSH with data", func(f, _ *qp.SendWR, m *mr.MR) { f.SG = []mr.SGE{m.SGE(0, 8)} }},
		{"FLUSH with inline data", func(f, _ *qp.SendWR, m *mr.MR) { f.Inline = make([]byte, 8) }},
		{"ATOMIC_WRITE of nothing", func(_, w *qp.SendWR, _ *mr.MR) { w.Inline = nil }},
		{"ATOMIC_WRITE of 7 bytes", func(_, w *qp.SendWR, _ *mr.MR) { w.Inline = w.Inline[:7] }},
		{"ATOMIC_WRITE of 16 bytes", func(_, w *qp.SendWR, m *mr.MR) { w.Inline, w.SG = nil, []mr.SGE{m.SGE(0, 16)} }},
		{"ATOMIC_WRITE inline and list", func(_, w *qp.SendWR, m *mr.MR) { w.Inline, w.SG = w.Inline[:4], []mr.SGE{m.SGE(0, 4)} }},
		{"ATOMIC_WRITE, unaligned", func(_, w *qp.SendWR, _ *mr.MR) { w.RemoteAddr += 4 }},
	} {
		b, _, m := client(t, pairConfig{})
		f, w := flushWR(0), atomicWriteWR("abcdefgh")
		c.change(&f, &w, m)
		if ef, ew := b.PostSend(&f), b.PostSend(&w); !errors.Is(errors.Join(ef, ew), syscall.EINVAL) {
			t.Errorf("%s: %v, %v", c.name, ef, ew)
		}
	}
	uc := newBench(t, pairConfig{typ: qp.UC})
	for _, wr := range []qp.SendWR{flushWR(0), atomicWriteWR("abcdefgh")} {
		if err := uc.PostSend(&wr); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%v on UC: %v", wr.Opcode, err)
		}
	}
}
