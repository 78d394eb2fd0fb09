package suite

import (
	"encoding/binary"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// extendedTests are the tests of optional features: XRC, FLUSH, ATOMIC_WRITE, masked
// atomics, path migration.
var extendedTests = []Test{
	{Name: "TestQPEx/XRCSend", Checks: "SENDs of every size to a shared receive queue of an XRC domain", Needs: verbs.HasXRC, Probe: probeXRC, Run: func(t *T) { xrcSends(t, qp.Send) }},
	{Name: "TestQPEx/XRCSendImm", Checks: "immediate data arrives with messages of every size", Needs: verbs.HasXRC, Probe: probeXRC, Run: func(t *T) { xrcSends(t, qp.SendImm) }},
	{Name: "TestQPEx/XRCWriteRead", Checks: "WRITE and READ over XRC", Needs: verbs.HasXRC, Probe: probeXRC, Run: func(t *T) {
		x := t.xrc()
		data := x.a.fill(0, 5000, 9)
		x.a.sent(x.a.post(x.wr(qp.Write, 0, 5000, 0)))
		x.end.holds(0, data)
		x.a.sent(x.a.post(x.wr(qp.Read, 8192, 5000, 0)))
		x.a.holds(8192, data)
	}},
	{Name: "TestAtomic/XRCCmpAndSwap", Checks: "compare and swap over XRC", Needs: verbs.HasXRC, Probe: probeXRC, Run: func(t *T) { xrcAtomic(t, qp.CompareSwap) }},
	{Name: "TestAtomic/XRCFetchAndAdd", Checks: "fetch and add over XRC", Needs: verbs.HasXRC, Probe: probeXRC, Run: func(t *T) { xrcAtomic(t, qp.FetchAdd) }},
	{Name: "TestXRC/BadSRQ", Checks: "REM_INV_REQ_ERR for a shared receive queue that does not exist", Needs: verbs.HasXRC, Probe: probeXRC, Run: func(t *T) {
		x := t.xrc()
		w := x.wr(qp.Send, 0, 10, 0)
		w.SRQN ^= 0x5555
		x.a.sentAs(x.a.post(w), cq.RemInvReqErr)
	}},
	{Name: "TestQPEx/RCAtomicWrite", Checks: "8 bytes are written atomically", Needs: verbs.HasAtomicWrite, Probe: probeCap(capAtomicWrite), Run: func(t *T) {
		a, b := t.pair(extended)
		for i := range uint64(3) {
			a.sent(a.post(atomicWrite(a, i*8, 0x0102030405060708*i)))
			expect(t, b.Node, "word", b.word(i*8), 0x0102030405060708*i)
		}
	}},
	{Name: "TestQPEx/RCAtomicWriteNoAccess", Checks: "REM_ACCESS_ERR if the region does not grant WRITEs", Needs: verbs.HasAtomicWrite, Probe: probeCap(capAtomicWrite), Run: func(t *T) {
		a, _ := t.pairOf(defaults(extended), defaults(extended, func(c *config) { c.access = allRights &^ mr.RemoteWrite }))
		a.answeredAs(a.post(atomicWrite(a, 0, 1)), cq.RemAccessErr)
	}},
	{Name: "TestQPEx/RCFlush", Checks: "FLUSH of a range and of a region", NeedsRequester: verbs.HasFlushPost, NeedsResponder: verbs.HasFlush, Probe: probeFlush, Run: func(t *T) {
		a, b := flushPair(t)
		data := a.fill(0, 3000, 4)
		for _, level := range []bth.FlushSelectivity{bth.FlushRange, bth.FlushMR} {
			write, flush := a.wr(qp.Write, 0, 3000, 0), a.flush(bth.FlushGlobal, level)
			write.Flags = 0
			w := a.sent(a.post(write, flush))
			expect(t, a.Node, "opcode of the FLUSH", w.Opcode, cq.OpFlush)
			b.holds(0, data)
		}
	}},
	{Name: "TestQPEx/RCFlushTypeViolate", Checks: "REM_ACCESS_ERR for persistence that the region does not grant", NeedsRequester: verbs.HasFlushPost, NeedsResponder: verbs.HasFlush, Probe: probeFlush, Run: func(t *T) {
		a, _ := flushPair(t)
		a.answeredAs(a.post(a.flush(bth.FlushPersistent, bth.FlushRange)), cq.RemAccessErr)
	}},
	{Name: "TestAtomic/MaskedCmpAndSwap", Checks: "compares some bits and swaps others", Needs: verbs.HasMaskedAtomics, Run: func(t *T) {
		a, b := t.pair(func(c *config) { c.masked = true })
		b.setWord(8, 0x1111222233334444)
		w := a.wr(qp.MaskedCompareSwap, 0, 8, 8)
		w.CompareAdd, w.CompareMask, w.Swap, w.SwapMask = 0x4444, 0xFFFF, 0xAAAABBBBCCCCDDDD, 0x0000FFFF00000000
		a.sent(a.post(w))
		expect(t, b.Node, "word returned", a.word(0), uint64(0x1111222233334444))
		expect(t, b.Node, "word afterwards", b.word(8), uint64(0x1111BBBB33334444))
	}},
	{Name: "TestAtomic/MaskedFetchAndAdd", Checks: "adds field by field", Needs: verbs.HasMaskedAtomics, Run: func(t *T) {
		a, b := t.pair(func(c *config) { c.masked = true })
		b.setWord(8, 0xFFFFFFFF00000001)
		w := a.wr(qp.MaskedFetchAdd, 0, 8, 8)
		w.CompareAdd, w.Boundary = 0x00000001FFFFFFFF, 0x8000000080000000
		a.sent(a.post(w))
		expect(t, b.Node, "word afterwards", b.word(8), uint64(0))
	}},
	{Name: "TestRelaxedOrdering/RC", Checks: "traffic on memory registered with RELAXED_ORDERING", Run: func(t *T) {
		a, b := t.pair(func(c *config) { c.access |= mr.RelaxedOrdering })
		works(a, b)
		data := a.fill(0, 3000, 3)
		a.sent(a.post(a.wr(qp.Write, 0, 3000, 4096)))
		b.holds(4096, data)
	}},
	{Name: "TestRelaxedOrdering/UD", Checks: "traffic on memory registered with RELAXED_ORDERING", Clean: true, Run: func(t *T) {
		a, b := t.pair(func(c *config) { c.typ, c.access = qp.UD, c.access|mr.RelaxedOrdering })
		oneArrives(t, a, b)
	}},
	{Name: "TestQP/PathMigration", Checks: "both ends migrate to the alternate path and report it", Needs: verbs.HasPathMigration, Probe: probeMigration, Run: migration},
}

// Values of enum ibv_mig_state.
const (
	rearm = 1
	armed = 2
)

func probeXRC(n verbs.Node) error {
	_, err := n.OpenXRCD()
	return err
}

// xrcEnd is an XRC initiator and the target's side.
type xrcEnd struct {
	a   *end
	end *end // of the target, for its helper methods
	srq verbs.Sink
}

func (t *T) xrc() *xrcEnd {
	n := t.responder
	e := &end{Node: n, t: t, c: defaults(func(c *config) { c.typ, c.psn = qp.XRCRecv, 0x123 }), pd: must1(n.AllocPD())(t), rcq: must1(n.CreateCQ(63, 0, 0))(t)}
	xrcd := must1(n.OpenXRCD())(t)
	x := &xrcEnd{end: e, srq: must1(n.CreateXRCSRQ(e.pd, xrcd, e.rcq.H, verbs.SRQAttr{MaxWR: 15, MaxSGE: 2}))(t)}
	e.mr = e.register(16<<10, allRights)
	e.qp = must1(n.CreateQP(verbs.QPInit{Type: qp.XRCRecv, XRCD: xrcd}))(t)
	x.a = t.newEnd(t.requester, defaults(service(qp.XRCSend)))
	x.a.peer, e.peer = e, x.a
	e.toInit()
	x.a.toInit()
	e.toRTR(x.a)
	x.a.toRTR(e)
	x.a.toRTS()
	return x
}

func (x *xrcEnd) wr(op qp.Opcode, off, n, remote uint64) verbs.SendWR {
	w := x.a.wr(op, off, n, remote)
	w.SRQN = x.srq.Num
	return w
}

func xrcSends(t *T, op qp.Opcode) {
	x := t.xrc()
	for i, n := range sizes {
		data := x.a.fill(0, n, byte(i))
		r := verbs.RecvWR{ID: t.id(), SG: []mr.SGE{x.end.mr.SGE(0, n)}}
		t.must(x.end.PostSRQRecv(x.srq.H, r))
		w := x.wr(op, 0, n, 0)
		w.Imm = 7 + uint32(i)
		x.a.sent(x.a.post(w))
		got := x.end.received(r.ID)
		checkRecv(t, x.end, got, cq.OpRecv, uint32(n))
		if op == qp.SendImm {
			checkImm(t, x.end, got, w.Imm)
		}
		x.end.holds(0, data)
	}
}

func xrcAtomic(t *T, op qp.Opcode) {
	x := t.xrc()
	x.end.setWord(8, 5)
	w := x.wr(op, 0, 8, 8)
	w.CompareAdd, w.Swap = 5, 10
	x.a.sent(x.a.post(w))
	expect(t, x.end, "word returned", x.a.word(0), uint64(5))
	expect(t, x.end, "word afterwards", x.end.word(8), uint64(10))
}

// Bits of device_cap_flags_ex.
const (
	capFlushGlobal = 1 << 38
	capAtomicWrite = 1 << 40
)

// probeCap returns a probe for a feature with a bit in the device capabilities.
func probeCap(bit uint64) func(verbs.Node) error {
	return func(n verbs.Node) error {
		flags, err := n.CapFlags()
		if err == nil && flags&bit == 0 {
			err = errUnsupported
		}
		return err
	}
}

func atomicWrite(a *end, remote, v uint64) verbs.SendWR {
	w := a.wr(qp.AtomicWrite, 0, 8, remote)
	w.SG, w.Inline = nil, binary.NativeEndian.AppendUint64(nil, v)
	return w
}

// probeFlush reports FLUSH as unsupported without trying it if the device has FLUSH, but its
// library has no call for it.
func probeFlush(n verbs.Node) error {
	if n.Offers()&verbs.HasFlush != 0 {
		return errUnsupported
	}
	return probeCap(capFlushGlobal)(n)
}

func flushPair(t *T) (a, b *end) {
	return t.pair(func(c *config) {
		c.rights |= mr.FlushGlobal | mr.FlushPersistent
		c.access |= mr.FlushGlobal
		c.extended = true
	})
}

// flush makes a FLUSH of the first 3000 bytes of the peer's memory.
func (e *end) flush(how bth.FlushType, level bth.FlushSelectivity) verbs.SendWR {
	w := e.wr(qp.Flush, 0, 0, 0)
	w.SG, w.FlushType, w.FlushLevel, w.FlushLength = nil, how, level, 3000
	return w
}

// probeMigration tries to load an alternate path.
func probeMigration(n verbs.Node) error {
	t := &T{requester: n, responder: n}
	var err error
	t.run(func(t *T) {
		a, b := t.pair()
		err = a.modify(qp.RTS, &verbs.QPAttr{Alt: a.toward(b)}, qp.AttrState|qp.AttrAltPath)
	})
	return err
}

func migration(t *T) {
	a, b := t.pair()
	for _, e := range []*end{a, b} {
		own, _ := e.Alternate()
		_, peer := e.peer.Alternate()
		v := &verbs.QPAttr{MigState: rearm, Alt: verbs.AH{Port: 1, SGIDIndex: own, DGID: peer}, AltTimeout: 14}
		t.must(e.modify(qp.RTS, v, qp.AttrState|qp.AttrAltPath|qp.AttrPathMigState))
	}
	works(a, b) // so that each end knows that the other is ready
	works(b, a)
	for _, e := range []*end{a, b} {
		got, _, err := e.QueryQP(e.qp.H, allAttrs)
		t.must(err)
		expect(t, e.Node, "migration state", got.MigState, armed)
	}
	t.must(a.modify(qp.RTS, &verbs.QPAttr{MigState: 0}, qp.AttrState|qp.AttrPathMigState))
	works(a, b)
	works(b, a)
	a.event(eventPathMig, a.qp.H)
	b.event(eventPathMig, b.qp.H)
}
