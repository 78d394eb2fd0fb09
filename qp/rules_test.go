package qp_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// The tables in this file test the rules of the transport services one by one, if no other test covers them. Rules
// that need several packets in both directions have tests of their own.

// zeros is a payload that leaves no trace in memory, which holds zeros.
var zeros = make([]byte, 1024)

// TestResponderRules completes TestResponderErrors: the other ways in which a
// request to an RC responder can be wrong (IBTA 9.7.4.1, table 58). PSN gaps
// are in TestResponderGap, missing receives in TestResponderRNR, too many READs
// in TestResponderBacklog, keys that cannot be invalidated in
// TestResponderInvalidate, FLUSH and ATOMIC_WRITE in TestPlacementErrors.
func TestResponderRules(t *testing.T) {
	long := make([]byte, 1028)
	// invalid is refused by NAK 0x61. No receive is in use that could report it.
	invalid := func(name string, p packet, prior ...packet) refusal {
		return refusal{name: name, prior: prior, bad: func(*mr.MR) packet { p.psn = bth.PSN(len(prior)); return p },
			nak: bth.NAKInvalidRequest, recv: cq.WRFlushErr, event: qp.EventReqErr}
	}
	// midSend is the same in the middle of a SEND, whose receive reports it.
	midSend := func(name string, p packet) refusal {
		r := invalid(name, p, packet{op: bth.RCSendFirst, payload: zeros})
		r.recv, r.event = cq.RemInvReqErr, 0
		return r
	}
	// midWrite is the same behind the first packet of a WRITE of n bytes.
	midWrite := func(name string, n uint32, p packet) refusal {
		return invalid(name, p, packet{op: bth.RCWriteFirst, length: n, payload: zeros})
	}
	rules := []refusal{
		invalid("WRITE_MIDDLE without FIRST", packet{op: bth.RCWriteMiddle, payload: zeros}),
		invalid("WRITE_LAST without FIRST", packet{op: bth.RCWriteLast, payload: zeros}),
		midSend("SEND_FIRST inside a SEND", packet{op: bth.RCSendFirst, payload: zeros}),
		midSend("WRITE_ONLY inside a SEND", packet{op: bth.RCWriteOnly}),
		midSend("atomic inside a SEND", packet{op: bth.RCFetchAdd}),
		midWrite("WRITE_FIRST inside a WRITE", 3000, packet{op: bth.RCWriteFirst, length: 2000, payload: zeros}),
		midWrite("WRITE_ONLY inside a WRITE", 3000, packet{op: bth.RCWriteOnly}),
		midWrite("SEND_MIDDLE inside a WRITE", 3000, packet{op: bth.RCSendMiddle, payload: zeros}),
		midWrite("SEND_ONLY inside a WRITE", 3000, packet{op: bth.RCSendOnly}),
		midWrite("READ inside a WRITE", 3000, packet{op: bth.RCReadRequest}),

		invalid("SEND_FIRST longer than the MTU", packet{op: bth.RCSendFirst, payload: long}),
		midSend("SEND_MIDDLE shorter than the MTU", packet{op: bth.RCSendMiddle, payload: zeros[:1020]}),
		midSend("SEND_MIDDLE longer than the MTU", packet{op: bth.RCSendMiddle, payload: long}),
		midSend("SEND_LAST longer than the MTU", packet{op: bth.RCSendLast, payload: long}),
		midWrite("WRITE_MIDDLE shorter than the MTU", 4000, packet{op: bth.RCWriteMiddle, payload: zeros[:1020]}),
		midWrite("WRITE_MIDDLE longer than the MTU", 4000, packet{op: bth.RCWriteMiddle, payload: long}),
		midWrite("WRITE_LAST without payload", 2000, packet{op: bth.RCWriteLast}),

		invalid("WRITE_FIRST of a message of one packet", packet{op: bth.RCWriteFirst, length: 1024, payload: zeros}),
		invalid("WRITE_ONLY with more than its RETH length", packet{op: bth.RCWriteOnly, length: 3, payload: zeros[:4]}),
		midWrite("WRITE_LAST with a byte too few", 2000, packet{op: bth.RCWriteLast, payload: zeros[:975]}),
		midWrite("WRITE_LAST with a byte too many", 2000, packet{op: bth.RCWriteLast, payload: zeros[:977]}),
		midWrite("WRITE_LAST where a MIDDLE is due", 3000, packet{op: bth.RCWriteLast, payload: zeros}),
		midWrite("WRITE_MIDDLE where the LAST is due", 2048, packet{op: bth.RCWriteMiddle, payload: zeros}),
	}

	const all = mr.LocalWrite | mr.RemoteWrite | mr.RemoteRead | mr.RemoteAtomic
	region := func(pd func(*bench) *mr.PD, rights mr.Access) func(*bench) *mr.MR {
		return func(b *bench) *mr.MR { return must(b.mem.Register(pd(b), make([]byte, 4096), rights, mr.Options{})) }
	}
	own := func(b *bench) *mr.PD { return b.pd }
	foreign := func(*bench) *mr.PD { return new(mr.PD) }
	for _, a := range []struct {
		p     packet
		right mr.Access
	}{
		{packet{op: bth.RCWriteOnly, length: 8, payload: zeros[:8]}, mr.RemoteWrite},
		{packet{op: bth.RCReadRequest, length: 8}, mr.RemoteRead},
		{packet{op: bth.RCFetchAdd}, mr.RemoteAtomic},
		{packet{op: bth.RCCompareSwap}, mr.RemoteAtomic},
	} {
		at := func(off uint64) func(m *mr.MR) packet {
			return func(m *mr.MR) packet { a.p.va, a.p.key = m.Addr()+off, m.RKey(); return a.p }
		}
		add := func(what string, r refusal) {
			r.name, r.recv = fmt.Sprintf("%v: %s", a.p.op, what), cq.WRFlushErr
			if r.bad == nil {
				r.bad = at(0)
			}
			if r.nak == 0 {
				r.nak, r.event = bth.NAKRemoteAccess, qp.EventAccessErr
			}
			rules = append(rules, r)
		}
		add("region without the right", refusal{region: region(own, all&^a.right)})
		add("region of another protection domain", refusal{region: region(foreign, all)})
		add("range begins before the region", refusal{bad: func(m *mr.MR) packet { return at(^uint64(7))(m) }})
		add("range ends behind the region", refusal{bad: func(m *mr.MR) packet { return at(uint64(m.Length()))(m) }})
		add("region was deregistered", refusal{bad: func(m *mr.MR) packet { p := at(0)(m); must(0, m.Deregister()); return p }})
		add("queue pair without the right", refusal{config: pairConfig{access: all &^ a.right}, nak: bth.NAKInvalidRequest, event: qp.EventReqErr})
		if a.right != mr.RemoteWrite {
			add("max_dest_rd_atomic is 0", refusal{config: pairConfig{rd: none}, nak: bth.NAKInvalidRequest, event: qp.EventReqErr})
		}
	}
	checkRefusals(t, rules)
}

// TestResponderReceives: receives that cannot hold the message. The error is that of this side, so the receive
// reports it, and the peer gets a NAK.
func TestResponderReceives(t *testing.T) {
	for _, c := range []struct {
		name   string
		rights mr.Access
		sge    func(*mr.MR) mr.SGE
		nak    bth.Syndrome
		want   cq.Status
	}{
		{"a byte too short", mr.LocalWrite, func(m *mr.MR) mr.SGE { return m.SGE(0, 7) }, bth.NAKInvalidRequest, cq.LocLenErr},
		{"no scatter/gather element", mr.LocalWrite, func(*mr.MR) mr.SGE { return mr.SGE{} }, bth.NAKInvalidRequest, cq.LocLenErr},
		{"region without local write", mr.RemoteRead, func(m *mr.MR) mr.SGE { return m.SGE(0, 8) }, bth.NAKRemoteOp, cq.LocProtErr},
		{"unknown L_Key", mr.LocalWrite, func(m *mr.MR) mr.SGE { s := m.SGE(0, 8); s.LKey++; return s }, bth.NAKRemoteOp, cq.LocProtErr},
		{"behind the region", mr.LocalWrite, func(m *mr.MR) mr.SGE { s := m.SGE(0, 8); s.Addr += 4089; return s }, bth.NAKRemoteOp, cq.LocProtErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, pairConfig{psnB: e0})
			m := must(b.mem.Register(b.pd, make([]byte, 4096), c.rights, mr.Options{}))
			for range 2 {
				must(0, b.PostRecv(&qp.RecvWR{SG: []mr.SGE{c.sge(m)}}))
			}
			b.inject(packet{op: bth.RCSendOnly, psn: e0, payload: []byte("12345678")})
			b.wantAck(c.nak, e0)
			b.wantState(qp.Err)
			if got := statuses(drain(b.recv)); !slices.Equal(got, []cq.Status{c.want, cq.WRFlushErr}) {
				t.Errorf("completions %v, want %v and a flush", got, c.want)
			}
		})
	}
}

// TestResponderOverflow: if the completion queue has no room for a receive completion, the completion is lost and the
// queue pair fails.
func TestResponderOverflow(t *testing.T) {
	b := newBench(t, pairConfig{psnB: e0, cqEntries: 1})
	for range 3 {
		must(0, b.PostRecv(&qp.RecvWR{}))
	}
	b.inject(packet{op: bth.RCSendOnly, psn: e0})
	b.inject(packet{op: bth.RCSendOnly, psn: e0.Add(1)})
	b.wantState(qp.Err)
	b.wantEvents(qp.EventFatal) // no completion reports it
}

// statuses lists the statuses of completions.
func statuses(wcs []cq.WC) (out []cq.Status) {
	for _, wc := range wcs {
		out = append(out, wc.Status)
	}
	return out
}

// TestRequesterStatus is the table of the causes of each completion status of a send work request (IBTA 10.8.3,
// 11.6.2). The cause hits the second of three SENDs or READs: the first succeeds, and the third is flushed.
// MW_BIND_ERR belongs to memory windows.
func TestRequesterStatus(t *testing.T) {
	psn := s0.Add(1) // of the second
	data := func(n int) packet {
		return packet{op: bth.RCReadResponseOnly, psn: psn, syndrome: bth.AckNoCredits, payload: make([]byte, n)}
	}
	say := func(ps ...packet) func(*bench) {
		return func(b *bench) {
			for _, p := range ps {
				b.inject(p)
			}
		}
	}
	expire := func(n int) func(*bench) {
		return func(b *bench) {
			for range n {
				b.net.now = b.NextTimeout()
				b.HandleTimeout(b.net.now)
				b.collect()
			}
		}
	}
	for _, c := range []struct {
		name  string
		read  bool             // the second is a READ of 8 bytes
		bad   func(*qp.SendWR) // changes the second
		cause func(*bench)
		want  cq.Status
	}{
		{name: "acknowledged", cause: say(ack(psn)), want: cq.Success},
		{name: "READ answered", read: true, cause: say(data(8)), want: cq.Success},
		{name: "answer longer than the READ", read: true, cause: say(data(12)), want: cq.LocLenErr},
		{name: "answer shorter than the READ", read: true, cause: say(data(4)), want: cq.LocLenErr},
		{name: "unknown L_Key", bad: func(wr *qp.SendWR) { wr.SG[0].LKey++ }, want: cq.LocProtErr},
		{name: "data behind the region", bad: func(wr *qp.SendWR) { wr.SG[0].Addr += 64 << 10 }, want: cq.LocProtErr},
		{name: "READ into an unknown L_Key", read: true, bad: func(wr *qp.SendWR) { wr.SG[0].LKey++ }, cause: say(data(8)), want: cq.LocProtErr},
		{name: "READ into memory without local write", read: true, bad: func(wr *qp.SendWR) { wr.SG = nil }, cause: say(data(8)), want: cq.LocProtErr},
		{name: "READ response to a SEND", cause: say(data(4)), want: cq.BadRespErr},
		{name: "ATOMIC ACKNOWLEDGE to a SEND", cause: say(packet{op: bth.RCAtomicAck, psn: psn, syndrome: bth.AckNoCredits}), want: cq.BadRespErr},
		{name: "ATOMIC ACKNOWLEDGE to a READ", read: true, cause: say(packet{op: bth.RCAtomicAck, psn: psn, syndrome: bth.AckNoCredits}), want: cq.BadRespErr},
		{name: "reserved NAK code", cause: say(nak(0x7F, psn)), want: cq.BadRespErr},
		{name: "NAK invalid request", cause: say(nak(bth.NAKInvalidRequest, psn)), want: cq.RemInvReqErr},
		{name: "NAK remote access", cause: say(nak(bth.NAKRemoteAccess, psn)), want: cq.RemAccessErr},
		{name: "NAK remote operation", cause: say(nak(bth.NAKRemoteOp, psn)), want: cq.RemOpErr},
		{name: "NAK in answer to a READ", read: true, cause: say(nak(bth.NAKRemoteAccess, psn)), want: cq.RemAccessErr},
		{name: "no answer", cause: expire(3), want: cq.RetryExcErr},
		{name: "sequence NAKs", cause: func(b *bench) {
			say(nak(bth.NAKSequence, psn))(b)
			expire(1)(b)
			say(nak(bth.NAKSequence, psn))(b) // may be about earlier packets
			b.wantState(qp.RTS)
			expire(1)(b)
		}, want: cq.RetryExcErr},
		{name: "answers beyond a READ", read: true, cause: func(b *bench) {
			say(ack(psn.Add(1)))(b)
			expire(1)(b)
			say(ack(psn.Add(1)))(b)
			b.wantState(qp.RTS)
			expire(1)(b)
		}, want: cq.RetryExcErr},
		{name: "receiver not ready", cause: func(b *bench) {
			for range 3 {
				b.inject(nak(bth.RNR(1), psn))
				if b.State() == qp.RTS {
					b.sent()
					b.expire()
				}
			}
		}, want: cq.RNRRetryExcErr},
		{name: "flushed", cause: func(b *bench) { must(0, b.Modify(&qp.Attr{State: qp.Err}, qp.AttrState)) }, want: cq.WRFlushErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, _, m := client(t, pairConfig{retry: 2, rnr: 2})
			readOnly := must(b.mem.Register(b.pd, make([]byte, 64), mr.RemoteRead, mr.Options{}))
			wr := send(m, 8)
			if c.read {
				wr = read(m, 8)
			}
			if c.bad != nil {
				if c.bad(&wr); wr.SG == nil {
					wr.SG = []mr.SGE{readOnly.SGE(0, 8)}
				}
			}
			b.post(send(m, 1))
			b.post(wr)
			b.post(send(m, 1))
			b.inject(ack(s0))
			if c.cause != nil {
				c.cause(b)
			}
			want := []cq.Status{cq.Success, c.want, cq.WRFlushErr}
			if c.want == cq.Success {
				b.inject(ack(psn.Add(1)))
				want[2] = cq.Success
				b.wantState(qp.RTS)
			} else {
				b.wantState(qp.Err)
				if b.NextTimeout() != mono.Never {
					t.Error("a timer runs in ERR")
				}
			}
			b.wantDone(want...)
			b.sent()
			b.post(send(m, 1))
			if c.want != cq.Success {
				b.wantDone(cq.WRFlushErr)
				b.wantSilence()
			}
		})
	}
}

// TestUCRules is the table of the reactions of a UC receiver to packets (IBTA 9.8.2.2). PSNs are relative to the
// expected one. The receiver never answers.
func TestUCRules(t *testing.T) {
	b1, b2 := []byte("one"), []byte("two")
	only := func(psn int, data []byte) packet { return packet{op: bth.UCSendOnly, psn: e0.Add(psn), payload: data} }
	part := func(op bth.Opcode, psn int) packet { return packet{op: op, psn: e0.Add(psn), payload: zeros} }
	fin := func(psn int, data []byte) packet { return packet{op: bth.UCSendLast, psn: e0.Add(psn), payload: data} }
	for _, c := range []struct {
		name   string
		access mr.Access
		ps     []packet
		writes bool // the WRITEs go to memory that is there
		want   []outcome
		bytes  []uint32 // of the successes
		state  qp.State // 0: RTS
	}{
		{name: "in order", ps: []packet{only(0, b1), only(1, b2)}, want: []outcome{{0, cq.Success}, {1, cq.Success}}, bytes: []uint32{3, 3}},
		{name: "LAST without payload", ps: []packet{part(bth.UCSendFirst, 0), fin(1, nil), only(2, b2)}, want: []outcome{{0, cq.Success}}, bytes: []uint32{3}},
		{name: "message of two packets", ps: []packet{part(bth.UCSendFirst, 0), fin(1, b1)}, want: []outcome{{0, cq.Success}}, bytes: []uint32{1027}},
		{name: "gap before ONLY", ps: []packet{only(5, b1), only(6, b2)}, want: []outcome{{0, cq.Success}, {1, cq.Success}}, bytes: []uint32{3, 3}},
		{name: "gap before FIRST", ps: []packet{part(bth.UCSendFirst, 5), fin(6, b1)}, want: []outcome{{0, cq.Success}}, bytes: []uint32{1027}},
		{name: "older PSN in ONLY", ps: []packet{only(0, b1), only(-9, b2)}, want: []outcome{{0, cq.Success}, {1, cq.Success}}, bytes: []uint32{3, 3}},
		{name: "MIDDLE lost", ps: []packet{part(bth.UCSendFirst, 0), fin(2, b1), only(3, b2)}, want: []outcome{{0, cq.Success}}, bytes: []uint32{3}},
		{name: "FIRST lost", ps: []packet{part(bth.UCSendMiddle, 1), part(bth.UCSendMiddle, 2), fin(3, b1), only(4, b2)},
			want: []outcome{{0, cq.Success}}, bytes: []uint32{3}},
		{name: "LAST lost", ps: []packet{part(bth.UCSendFirst, 0), only(2, b2)}, want: []outcome{{0, cq.Success}}, bytes: []uint32{3}},
		{name: "ONLY inside a message", ps: []packet{part(bth.UCSendFirst, 0), only(1, b1)}, want: []outcome{{0, cq.Success}}, bytes: []uint32{3}},
		{name: "WRITE inside a SEND", ps: []packet{part(bth.UCSendFirst, 0), {op: bth.UCWriteOnly, psn: e0.Add(1)}, fin(2, b1), only(3, b2)},
			want: []outcome{{0, cq.Success}}, bytes: []uint32{3}},
		{name: "SEND_LAST inside a WRITE", writes: true, ps: []packet{{op: bth.UCWriteFirst, psn: e0, length: 2000, payload: zeros}, fin(1, b1), only(2, b2)},
			want: []outcome{{0, cq.Success}}, bytes: []uint32{3}},
		{name: "no receive", ps: []packet{only(0, b1), only(1, b2), only(2, b1)}, want: []outcome{{0, cq.Success}, {1, cq.Success}}, bytes: []uint32{3, 3}},
		{name: "no right to write", access: mr.RemoteRead, writes: true, ps: []packet{{op: bth.UCWriteOnlyImm, psn: e0, length: 4, payload: zeros[:4]}, only(1, b1)},
			want: []outcome{{0, cq.Success}}, bytes: []uint32{3}},
		{name: "unknown R_Key", ps: []packet{{op: bth.UCWriteOnlyImm, psn: e0, length: 4, payload: zeros[:4], key: 1}, only(1, b1)},
			want: []outcome{{0, cq.Success}}, bytes: []uint32{3}},
		{name: "WRITE_LAST with immediate takes a receive", writes: true,
			ps:   []packet{{op: bth.UCWriteFirst, psn: e0, length: 1030, payload: zeros}, {op: bth.UCWriteLastImm, psn: e0.Add(1), payload: zeros[:6]}},
			want: []outcome{{0, cq.Success}}, bytes: []uint32{1030}},
		{name: "FIRST shorter than the MTU", ps: []packet{{op: bth.UCSendFirst, psn: e0, payload: zeros[:1020]}, fin(1, b1), only(2, b2)},
			want: []outcome{{0, cq.Success}}, bytes: []uint32{3}},
		{name: "ONLY longer than the MTU", ps: []packet{only(0, make([]byte, 1028)), only(1, b2)}, want: []outcome{{0, cq.Success}}, bytes: []uint32{3}},
		{name: "WRITE unlike its RETH length", writes: true, ps: []packet{{op: bth.UCWriteOnlyImm, psn: e0, length: 5, payload: zeros[:4]}, only(1, b2)},
			want: []outcome{{0, cq.Success}}, bytes: []uint32{3}},
		{name: "longer than the receive", ps: []packet{part(bth.UCSendFirst, 0), part(bth.UCSendMiddle, 1), fin(2, b1)},
			want: []outcome{{0, cq.LocLenErr}, {1, cq.WRFlushErr}}, state: qp.Err},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, mem, m := receiver(t, pairConfig{access: c.access})
			before := bytes.Clone(mem)
			for _, p := range c.ps {
				if c.writes {
					p.va, p.key = m.Addr(), m.RKey()
				}
				b.inject(p)
			}
			b.wantSilence()
			wcs := drain(b.recv)
			if got := ids(wcs); !slices.Equal(got, c.want) {
				t.Errorf("completed %v, want %v", got, c.want)
			}
			for i, n := range c.bytes {
				if i < len(wcs) && wcs[i].ByteLen != n {
					t.Errorf("completion %d has %d bytes, want %d", i, wcs[i].ByteLen, n)
				}
			}
			if c.state == 0 {
				c.state = qp.RTS
			}
			b.wantState(c.state)
			if !bytes.Equal(mem, before) {
				t.Error("memory was changed")
			}
			if len(b.events) != 0 {
				t.Errorf("events %v", b.events)
			}
		})
	}
}

// TestUDRules is the table of the reactions of a UD receiver to datagrams.
func TestUDRules(t *testing.T) {
	const key = 0x11111111
	d := packet{op: bth.UDSendOnly, qkey: key, payload: []byte("data")}
	with := func(change func(*packet)) packet { p := d; change(&p); return p }
	for _, c := range []struct {
		name  string
		state qp.State // 0: RTS
		room  []int    // of the receives, in bytes
		ps    []packet
		want  []uint32 // bytes of what is delivered
		imm   bool
	}{
		{name: "delivered behind the GRH area", room: []int{100}, ps: []packet{d}, want: []uint32{44}},
		{name: "exactly fits", room: []int{44}, ps: []packet{d}, want: []uint32{44}},
		{name: "empty", room: []int{40}, ps: []packet{with(func(p *packet) { p.payload = nil })}, want: []uint32{40}},
		{name: "immediate", room: []int{44}, ps: []packet{with(func(p *packet) { p.op, p.imm = bth.UDSendOnlyImm, 7 })}, want: []uint32{44}, imm: true},
		{name: "any PSN", room: []int{44, 44, 44}, ps: []packet{d, with(func(p *packet) { p.psn = 0x800000 }), d}, want: []uint32{44, 44, 44}},
		{name: "wrong Q_Key", room: []int{44}, ps: []packet{with(func(p *packet) { p.qkey++ }), d}, want: []uint32{44}},
		{name: "Q_Key with another top bit", room: []int{44}, ps: []packet{with(func(p *packet) { p.qkey |= 1 << 31 }), d}, want: []uint32{44}},
		{name: "no receive", ps: []packet{d}},
		{name: "receive too small, kept", room: []int{43}, ps: []packet{d, with(func(p *packet) { p.payload = []byte("dat") })}, want: []uint32{43}},
		{name: "no room for the GRH area", room: []int{39}, ps: []packet{with(func(p *packet) { p.payload = nil })}},
		{name: "in RTR", state: qp.RTR, room: []int{44}, ps: []packet{d}, want: []uint32{44}},
		{name: "in INIT", state: qp.Init, room: []int{44}, ps: []packet{d}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.state == 0 {
				c.state = qp.RTS
			}
			b := newBench(t, pairConfig{typ: qp.UD, stopAt: inReset})
			walk(t, b.node, c.state)
			_, m := b.region(t, 128)
			for i, n := range c.room {
				must(0, b.PostRecv(&qp.RecvWR{ID: uint64(i), SG: []mr.SGE{m.SGE(0, n)}}))
			}
			for _, p := range c.ps {
				b.inject(p)
			}
			b.wantSilence()
			b.wantState(c.state)
			var got []uint32
			for i, wc := range drain(b.recv) {
				got = append(got, wc.ByteLen)
				if wc.Status != cq.Success || wc.ID != uint64(i) || wc.SrcQPN != 0x22 || wc.Flags&cq.GRH == 0 || (wc.Flags&cq.WithImm != 0) != c.imm {
					t.Errorf("completion %+v", wc)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("delivered %v, want %v", got, c.want)
			}
		})
	}
}
