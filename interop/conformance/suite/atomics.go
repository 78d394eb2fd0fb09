package suite

import (
	"encoding/binary"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// atomicTests are the tests of pyverbs test_atomic.
var atomicTests = []Test{
	{Name: "TestAtomic/CmpAndSwap", Checks: "swaps if the word is equal; returns the old word in both cases", Run: func(t *T) { compareSwap(t) }},
	{Name: "TestAtomic/CmpAndSwapEx", Checks: "the same by the ibv_wr_* calls", Needs: verbs.HasExtendedPost, Run: func(t *T) { compareSwap(t, extended) }},
	{Name: "TestAtomic/FetchAndAdd", Checks: "adds modulo 2^64; returns the old word", Run: func(t *T) { fetchAdd(t) }},
	{Name: "TestAtomic/FetchAndAddEx", Checks: "the same by the ibv_wr_* calls", Needs: verbs.HasExtendedPost, Run: func(t *T) { fetchAdd(t, extended) }},
	{Name: "TestAtomic/Concurrent", Checks: "atomics of several connections on one word are all executed, each once", Run: concurrentAtomics},
	{Name: "TestAtomic/InvalidQPAccess", Checks: "REM_INV_REQ_ERR if the queue pair does not grant atomics", Run: refusedRemotely(qp.FetchAdd, cq.RemInvReqErr, nil, func(c *config) { c.rights = qpRights &^ mr.RemoteAtomic })},
	{Name: "TestAtomic/InvalidMRAccess", Checks: "REM_ACCESS_ERR if the region does not grant atomics", Run: refusedRemotely(qp.FetchAdd, cq.RemAccessErr, nil, func(c *config) { c.access = allRights &^ mr.RemoteAtomic })},
	{Name: "TestAtomic/InvalidLKey", Checks: "LOC_PROT_ERR if the local key for the result is wrong", Run: badLKey(qp.FetchAdd, 8)},
	{Name: "TestAtomic/InvalidRKey", Checks: "REM_ACCESS_ERR for a key that does not exist", Run: refusedRemotely(qp.FetchAdd, cq.RemAccessErr, func(w *verbs.SendWR) { w.RKey += 1 << 8 })},
	{Name: "TestAtomic/OldKey", Checks: "REM_ACCESS_ERR for a key of another generation", Run: refusedRemotely(qp.FetchAdd, cq.RemAccessErr, func(w *verbs.SendWR) { w.RKey ^= 1 })},
	{Name: "TestAtomic/NotGranted", Checks: "REM_INV_REQ_ERR if the responder grants no atomics at all", Run: func(t *T) {
		a, _ := t.pairOf(defaults(), defaults(func(c *config) { c.dest = 0 }))
		a.answeredAs(a.post(a.wr(qp.FetchAdd, 0, 8, 0)), cq.RemInvReqErr)
	}},
}

// setWord writes a 64-bit word of the memory, in the byte order of the hosts, which have the same.
func (e *end) setWord(off, v uint64) {
	b := make([]byte, 8)
	binary.NativeEndian.PutUint64(b, v)
	e.t.must(e.WriteMem(e.mr.Addr+off, b))
}

func (e *end) word(off uint64) uint64 {
	return binary.NativeEndian.Uint64(must1(e.ReadMem(e.mr.Addr+off, 8))(e.t))
}

func compareSwap(t *T, with ...func(*config)) {
	a, b := t.pair(with...)
	const first, second = 0x0102030405060708, 0xF1F2F3F4F5F6F7F8
	for _, x := range []struct{ there, compare, swap, after uint64 }{
		{first, first, second, second}, {second, first, 7, second}, {0, 0, 1, 1},
	} {
		b.setWord(64, x.there)
		w := a.wr(qp.CompareSwap, 0, 8, 64)
		w.CompareAdd, w.Swap = x.compare, x.swap
		got := a.sent(a.post(w))
		expect(t, a.Node, "opcode of the atomic", got.Opcode, cq.OpCompSwap)
		expect(t, a.Node, "length of the atomic", got.ByteLen, 8)
		expect(t, b.Node, "word returned", a.word(0), x.there)
		expect(t, b.Node, "word afterwards", b.word(64), x.after)
	}
}

func fetchAdd(t *T, with ...func(*config)) {
	a, b := t.pair(with...)
	for _, x := range []struct{ there, add uint64 }{{0, 1}, {0x0102030405060708, 5}, {^uint64(0), 2}, {3, ^uint64(0)}} {
		b.setWord(8, x.there)
		w := a.wr(qp.FetchAdd, 16, 8, 8)
		w.CompareAdd = x.add
		got := a.sent(a.post(w))
		expect(t, a.Node, "opcode of the atomic", got.Opcode, cq.OpFetchAdd)
		expect(t, b.Node, "word returned", a.word(16), x.there)
		expect(t, b.Node, "word afterwards", b.word(8), x.there+x.add)
	}
}

func concurrentAtomics(t *T) {
	var as []*end
	var first *end
	for range 3 {
		a, b := t.pair(func(c *config) {
			if first != nil {
				c.onPD = first.pd
			}
		})
		if first == nil {
			first = b
			// Each requester has its own protection domain, the responders share one.
		}
		as = append(as, a)
	}
	const rounds = 16
	for _, a := range as {
		var wrs []verbs.SendWR
		for i := range uint64(rounds) {
			w := a.wr(qp.FetchAdd, i*8, 8, 0)
			w.RKey, w.RemoteAddr, w.CompareAdd = first.mr.RKey, first.mr.Addr, 1
			wrs = append(wrs, w)
		}
		a.post(wrs...)
	}
	seen := map[uint64]bool{}
	for _, a := range as {
		for range rounds {
			if w := a.next(a.scq, "atomic"); w.Status != cq.Success {
				t.fatalf("%s: %v", a.Label(), w.Status)
			}
		}
		for i := range uint64(rounds) {
			seen[a.word(i*8)] = true
		}
	}
	expect(t, first.Node, "sum", first.word(0), uint64(rounds*len(as)))
	expect(t, first.Node, "different values returned", len(seen), rounds*len(as))
}
