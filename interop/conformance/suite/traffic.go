package suite

import (
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// trafficTests are the tests of SENDs on RC: pyverbs test_qpex, test_cqex and the generic traffic.
var trafficTests = []Test{
	{Name: "TestQPEx/RCSend", Checks: "SENDs of every size arrive complete and in order", Run: func(t *T) { sends(t, qp.Send) }},
	{Name: "TestQPEx/RCSendEx", Checks: "the same by the ibv_wr_* calls", Needs: verbs.HasExtendedPost, Run: func(t *T) { sends(t, qp.Send, extended) }},
	{Name: "TestQPEx/RCSendImm", Checks: "immediate data arrives with messages of every size", Run: func(t *T) { sends(t, qp.SendImm) }},
	{Name: "TestQPEx/RCSendImmEx", Checks: "the same by the ibv_wr_* calls", Needs: verbs.HasExtendedPost, Run: func(t *T) { sends(t, qp.SendImm, extended) }},
	{Name: "TestQP/RCPingPong", Checks: "100 messages in each direction at the same time", Run: pingPong},
	{Name: "TestQP/RCSendInline", Checks: "inline data needs no memory region, and the program may change it after the post", Run: sendInline},
	{Name: "TestQP/RCMultiSGE", Checks: "a message is gathered from several pieces and scattered to several pieces", Run: multiSGE},
	{Name: "TestQP/RCUnsignaled", Checks: "no completion for unsignaled work requests", Run: unsignaled},
	{Name: "TestQP/RCSignalAll", Checks: "a completion for every work request if the queue pair signals all", Run: func(t *T) {
		a, b := t.pair(func(c *config) { c.sigAll = true })
		b.recv(0, 100)
		w := a.wr(qp.Send, 0, 10, 0)
		w.Flags = 0
		a.sent(a.post(w))
	}},
	{Name: "TestQP/RCSharedCQ", Checks: "one completion queue for both directions", Run: sharedCQ},
	{Name: "TestQP/RCOneSidedSelf", Checks: "traffic between two queue pairs of one device", Single: true, Run: selfTraffic},
	{Name: "TestQP/RCManyQPs", Checks: "four connections at once do not mix up their messages", Run: manyQPs},
	{Name: "TestQP/RCReceiveLate", Checks: "a SEND waits for a receive that is posted later (RNR)", Run: func(t *T) {
		a, b := t.pair(func(c *config) { c.rnrTimer = 1 })
		data := a.fill(0, 3000, 9)
		id := a.post(a.wr(qp.Send, 0, 3000, 0))
		r := b.recv(4096, 3000)
		a.sent(id)
		b.received(r)
		b.holds(4096, data)
	}},
}

// sends sends messages of every size, and checks the completions and the data.
func sends(t *T, op qp.Opcode, with ...func(*config)) {
	a, b := t.pair(with...)
	sendSizes(t, a, b, op)
}

// sendSizes sends messages of every size from a to b.
func sendSizes(t *T, a, b *end, op qp.Opcode) {
	for i, n := range sizes {
		data := a.fill(0, n, byte(i))
		r := b.recv(0, n)
		w := a.wr(op, 0, n, 0)
		w.Imm = 0xCAFE0000 + uint32(i)
		if n == 0 {
			w.SG = nil
		}
		expect(t, a.Node, "opcode of the send", a.sent(a.post(w)).Opcode, cq.OpSend)
		got := b.received(r)
		checkRecv(t, b, got, cq.OpRecv, uint32(n))
		if op == qp.SendImm {
			checkImm(t, b, got, w.Imm)
		}
		b.holds(0, data)
	}
}

// checkRecv checks opcode and length of a receive.
func checkRecv(t *T, e *end, w cq.WC, op cq.Opcode, n uint32) {
	expect(t, e.Node, "opcode of the receive", w.Opcode, op)
	expect(t, e.Node, "length of the receive", w.ByteLen, n)
}

func checkImm(t *T, e *end, w cq.WC, imm uint32) {
	expect(t, e.Node, "immediate data is flagged", w.Flags&cq.WithImm != 0, true)
	expect(t, e.Node, "immediate data", w.Imm, imm)
}

func pingPong(t *T) {
	a, b := t.pair()
	const rounds, size = 25, 1500
	for round := range rounds {
		// Each side posts its receives before the other side sends.
		var ra, rb [2]uint64
		for i := range ra {
			ra[i], rb[i] = a.recv(8192+uint64(i)*2000, size), b.recv(8192+uint64(i)*2000, size)
		}
		da, db := a.fill(0, size, byte(round)), b.fill(0, size, byte(round)+100)
		var wa, wb [2]verbs.SendWR
		for i := range wa {
			wa[i], wb[i] = a.wr(qp.Send, 0, size, 0), b.wr(qp.Send, 0, size, 0)
		}
		a.post(wa[:]...)
		b.post(wb[:]...)
		for i := range ra {
			a.sent(wa[i].ID)
			b.sent(wb[i].ID)
			a.received(ra[i])
			b.received(rb[i])
			a.holds(8192+uint64(i)*2000, db)
			b.holds(8192+uint64(i)*2000, da)
		}
	}
}

func sendInline(t *T) {
	a, b := t.pair()
	for _, n := range []int{1, 7, 64} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(i + n)
		}
		r := b.recv(0, 100)
		w := a.wr(qp.Send, 0, 0, 0)
		w.SG, w.Inline = nil, append([]byte(nil), data...)
		a.post(w)
		clear(w.Inline)
		a.sent(w.ID)
		checkRecv(t, b, b.received(r), cq.OpRecv, uint32(n))
		b.holds(0, data)
		w = a.wr(qp.Write, 0, 0, 512)
		w.SG, w.Inline = nil, data
		a.sent(a.post(w))
		b.holds(512, data)
	}
}

func multiSGE(t *T) {
	a, b := t.pair()
	data := a.fill(0, 5000, 1)
	w := a.wr(qp.Send, 0, 0, 0)
	w.SG = []mr.SGE{a.mr.SGE(0, 1), a.mr.SGE(1, 2047), a.mr.SGE(2048, 0), a.mr.SGE(2048, 2952)}
	r := verbs.RecvWR{ID: t.id(), SG: []mr.SGE{b.mr.SGE(0, 1000), b.mr.SGE(1000, 3), b.mr.SGE(1003, 4100)}}
	t.must(b.PostRecv(b.qp.H, r))
	a.sent(a.post(w))
	checkRecv(t, b, b.received(r.ID), cq.OpRecv, 5000)
	b.holds(0, data)
	// A READ scatters, too.
	b.fill(8192, 3000, 5)
	w = a.wr(qp.Read, 0, 0, 8192)
	w.SG = []mr.SGE{a.mr.SGE(8192, 10), a.mr.SGE(8202, 2000), a.mr.SGE(10202, 990)}
	a.sent(a.post(w))
	a.holds(8192, must1(b.ReadMem(b.mr.Addr+8192, 3000))(t))
}

func unsignaled(t *T) {
	a, b := t.pair()
	var wrs []verbs.SendWR
	for i := range 5 {
		b.recv(0, 100)
		w := a.wr(qp.Send, 0, 10, 0)
		if i < 4 {
			w.Flags = 0
		}
		wrs = append(wrs, w)
	}
	a.sent(a.post(wrs...))
	a.idle(a.scq)
}

func sharedCQ(t *T) {
	a, b := t.newEnd(t.requester, defaults()), t.newEnd(t.responder, defaults())
	for _, e := range []*end{a, b} {
		t.must(e.DestroyQP(e.qp.H))
		e.rcq = e.scq
		e.qp = must1(e.CreateQP(e.init()))(t)
	}
	join(a, b)
	r := b.recv(0, 100)
	a.sent(a.post(a.wr(qp.Send, 0, 10, 0)))
	b.received(r)
	r = a.recv(0, 100)
	b.sent(b.post(b.wr(qp.Send, 0, 10, 0)))
	a.received(r)
}

// selfTraffic connects two queue pairs of one device.
func selfTraffic(t *T) {
	t.responder = t.requester
	a, b := t.pair()
	sendSizes(t, a, b, qp.Send)
	data := a.fill(0, 5000, 77)
	a.sent(a.post(a.wr(qp.Write, 0, 5000, 8192)))
	b.holds(8192, data)
	a.sent(a.post(a.wr(qp.Read, 8192, 5000, 8192)))
	a.holds(8192, data)
}

func manyQPs(t *T) {
	var as, bs []*end
	for range 4 {
		a, b := t.pair()
		as, bs = append(as, a), append(bs, b)
	}
	var ids, recvs []uint64
	for i, a := range as {
		a.fill(0, 4000, byte(i*11))
		recvs = append(recvs, bs[i].recv(0, 4000))
		ids = append(ids, a.post(a.wr(qp.Send, 0, 4000, 0)))
	}
	for i, a := range as {
		a.sent(ids[i])
		bs[i].received(recvs[i])
		bs[i].holds(0, must1(a.ReadMem(a.mr.Addr, 4000))(t))
	}
}
