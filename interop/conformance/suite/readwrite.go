package suite

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/qp"
)

// readWriteTests are RDMA WRITE and READ on RC: pyverbs test_qpex, test_mr.
var readWriteTests = []Test{
	{Name: "TestQPEx/RCWrite", Checks: "WRITEs of every size arrive, and the memory around them does not change", Run: func(t *T) { writes(t) }},
	{Name: "TestQPEx/RCWriteEx", Checks: "the same by the ibv_wr_* calls", Needs: verbs.HasExtendedPost, Run: func(t *T) { writes(t, extended) }},
	{Name: "TestQPEx/RCWriteImm", Checks: "a WRITE with immediate data takes a receive, does not change its buffer, and reports the length", Run: func(t *T) { writeImm(t, qp.RC) }},
	{Name: "TestQPEx/RCWriteZeroSize", Checks: "an operation of no bytes needs neither key nor address", Run: func(t *T) { noBytes(t, qp.Write) }},
	{Name: "TestQPEx/RCRead", Checks: "READs of every size return the data, and the memory around it does not change", Run: func(t *T) { reads(t) }},
	{Name: "TestQPEx/RCReadEx", Checks: "the same by the ibv_wr_* calls", Needs: verbs.HasExtendedPost, Run: func(t *T) { reads(t, extended) }},
	{Name: "TestQPEx/RCReadZeroSize", Checks: "an operation of no bytes needs neither key nor address", Run: func(t *T) { noBytes(t, qp.Read) }},
	{Name: "TestQP/RCReadsQueue", Checks: "with more READs than may be outstanding the rest waits, and all complete in order", Run: func(t *T) {
		a, b := t.pair(func(c *config) { c.rd, c.dest = 2, 2 })
		data := b.fill(0, 8192, 3)
		var wrs []verbs.SendWR
		for i := range uint64(16) {
			wrs = append(wrs, a.wr(qp.Read, i*512, 512, i*512))
		}
		a.post(wrs...)
		for _, w := range wrs {
			a.sent(w.ID)
		}
		a.holds(0, data)
	}},
	{Name: "TestQP/RCReadFence", Checks: "a fenced SEND sends the data of the READ before it", Run: func(t *T) {
		a, b := t.pair()
		data := b.fill(0, 3000, 8)
		r := b.recv(4096, 3000)
		read, send := a.wr(qp.Read, 0, 3000, 0), a.wr(qp.Send, 0, 3000, 0)
		send.Flags |= qp.Fence
		a.post(read, send)
		a.sent(read.ID)
		a.sent(send.ID)
		b.received(r)
		b.holds(4096, data)
	}},
	{Name: "TestQP/RCWriteBeforeSend", Checks: "the data of a WRITE has arrived when the SEND after it arrives", Run: func(t *T) {
		a, b := t.pair()
		for i := range byte(10) {
			data := a.fill(0, 5000, i)
			r := b.recv(8192, 10)
			w := a.wr(qp.Write, 0, 5000, 0)
			w.Flags = 0
			id := a.post(w, a.wr(qp.Send, 0, 10, 0))
			b.received(r)
			b.holds(0, data)
			a.sent(id)
		}
	}},
	{Name: "TestQP/RCLargeMessages", Checks: "1 MiB by WRITE, READ and SEND", Run: func(t *T) {
		const n = 1 << 20
		a, b := t.pair(func(c *config) { c.size = n })
		data := a.fill(0, n, 200)
		a.sent(a.post(a.wr(qp.Write, 0, n, 0)))
		b.holds(0, data)
		a.fill(0, n, 0)
		a.sent(a.post(a.wr(qp.Read, 0, n, 0)))
		a.holds(0, data)
		b.fill(0, n, 0)
		r := b.recv(0, n)
		a.sent(a.post(a.wr(qp.Send, 0, n, 0)))
		checkRecv(t, b, b.received(r), cq.OpRecv, n)
		b.holds(0, data)
	}},
	{Name: "TestMR/RegIova", Checks: "a region with an address that the program has chosen", Run: func(t *T) {
		a, b := t.pair()
		const iova = 0x7000_0000_1000
		at := must1(b.Alloc(8192))(t)
		m := must1(b.RegMRIova(b.pd, at, 8192, iova, allRights))(t)
		data := a.fill(0, 3000, 1)
		w := a.wr(qp.Write, 0, 3000, 0)
		w.RKey, w.RemoteAddr = m.RKey, iova+100
		a.sent(a.post(w))
		expect(t, b.Node, "data of the WRITE", string(must1(b.ReadMem(at+100, 3000))(t)), string(data))
		w = a.wr(qp.Read, 8192, 3000, 0)
		w.RKey, w.RemoteAddr = m.RKey, iova+100
		a.sent(a.post(w))
		a.holds(8192, data)
	}},
	{Name: "TestQP/RCPathMTUs", Checks: "transfers with every path MTU up to the port's", Run: func(t *T) {
		for _, m := range []bth.MTU{bth.MTU256, bth.MTU512, bth.MTU1024} {
			a, b := t.pair(func(c *config) { c.mtu = m })
			data := a.fill(0, 3001, byte(m))
			a.sent(a.post(a.wr(qp.Write, 0, 3001, 4000)))
			b.holds(4000, data)
			a.sent(a.post(a.wr(qp.Read, 8192, 3001, 4000)))
			a.holds(8192, data)
		}
	}},
}

// around is the number of bytes before and after the written bytes that a test checks.
const around = 16

func writes(t *T, with ...func(*config)) {
	a, b := t.pair(with...)
	for i, n := range sizes {
		data := a.fill(0, n, byte(i))
		before := b.fill(0, n+2*around, 0x80)
		expect(t, a.Node, "opcode of the WRITE", a.sent(a.post(a.wr(qp.Write, 0, n, around))).Opcode, cq.OpRDMAWrite)
		copy(before[around:], data)
		b.holds(0, before)
	}
	b.idle(b.rcq)
}

func reads(t *T, with ...func(*config)) {
	a, b := t.pair(with...)
	for i, n := range sizes {
		data := b.fill(0, n, byte(i))
		before := a.fill(0, n+2*around, 0x80)
		w := a.sent(a.post(a.wr(qp.Read, around, n, 0)))
		expect(t, a.Node, "opcode of the READ", w.Opcode, cq.OpRDMARead)
		expect(t, a.Node, "length of the READ", w.ByteLen, uint32(n))
		copy(before[around:], data)
		a.holds(0, before)
	}
}

func writeImm(t *T, typ qp.Type) {
	a, b := t.pair(service(typ))
	for i, n := range sizes {
		data := a.fill(0, n, byte(i))
		untouched := b.fill(15<<10, 100, 1)
		r := b.recv(15<<10, 100)
		w := a.wr(qp.WriteImm, 0, n, 0)
		w.Imm = 0x01020304 + uint32(i)
		a.sent(a.post(w))
		got := b.received(r)
		checkRecv(t, b, got, cq.OpRecvRDMAWithImm, uint32(n))
		checkImm(t, b, got, w.Imm)
		b.holds(0, data)
		b.holds(15<<10, untouched)
	}
}

func noBytes(t *T, op qp.Opcode) {
	a, b := t.pair()
	w := a.wr(op, 0, 0, 0)
	w.SG, w.RKey, w.RemoteAddr = nil, 0xDEADBEEF, 1
	a.sent(a.post(w))
	works(a, b)
}
