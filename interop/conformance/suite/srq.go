package suite

import (
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// srqTests are the tests of shared receive queues: those of pyverbs test_srq, and more.
var srqTests = []Test{
	{Name: "TestSRQ/RCTraffic", Checks: "two connections take their receives from one queue", Needs: verbs.HasSRQ, Run: func(t *T) {
		srq, as, bs := t.sharing(qp.RC, 2)
		for i := range uint64(8) {
			srq.recv(i*512, 512)
		}
		for i := range 8 {
			a, b := as[i%2], bs[i%2]
			data := a.fill(0, 500, byte(i))
			a.sent(a.post(a.wr(qp.Send, 0, 500, 0)))
			w := b.next(b.rcq, "receive")
			expect(t, b.Node, "status", w.Status, cq.Success)
			expect(t, b.Node, "queue pair of the receive", w.QPN, b.qp.QPN)
			expect(t, b.Node, "length", w.ByteLen, 500)
			expect(t, b.Node, "receives are taken in order", w.ID, uint64(i)*512)
			expect(t, b.Node, "data", string(must1(b.ReadMem(srq.mr.Addr+w.ID, 500))(t)), string(data))
		}
	}},
	{Name: "TestSRQ/RCWriteImm", Checks: "WRITEs with immediate data take receives from the queue, too", Needs: verbs.HasSRQ, Run: func(t *T) {
		srq, as, bs := t.sharing(qp.RC, 1)
		srq.recv(0, 10)
		w := as[0].wr(qp.WriteImm, 0, 3000, 0)
		w.Imm = 3
		as[0].sent(as[0].post(w))
		got := bs[0].received(0)
		checkRecv(t, bs[0], got, cq.OpRecvRDMAWithImm, 3000)
		checkImm(t, bs[0], got, 3)
	}},
	{Name: "TestSRQ/RCReceiveLate", Checks: "a SEND waits for a receive that is posted later (RNR)", Needs: verbs.HasSRQ, Run: func(t *T) {
		srq, as, bs := t.sharing(qp.RC, 1)
		id := as[0].post(as[0].wr(qp.Send, 0, 3000, 0))
		srq.recv(512, 3000)
		as[0].sent(id)
		bs[0].received(512)
	}},
	{Name: "TestSRQ/UDTraffic", Checks: "datagrams take receives from the queue", Needs: verbs.HasSRQ, Clean: true, Run: func(t *T) {
		srq, as, bs := t.sharing(qp.UD, 2)
		for i := range 4 {
			srq.recv(uint64(i)*512, 200)
			as[i%2].sent(as[i%2].post(as[i%2].wr(qp.Send, 0, 100, 0)))
			checkRecv(t, bs[i%2], bs[i%2].received(uint64(i)*512), cq.OpRecv, 100+grh)
		}
	}},
	{Name: "TestSRQ/UCTraffic", Checks: "UC messages take receives from the queue", Needs: verbs.HasSRQ, Clean: true, Run: func(t *T) {
		srq, as, bs := t.sharing(qp.UC, 2)
		for i := range 4 {
			srq.recv(uint64(i)*3000, 3000)
			as[i%2].sent(as[i%2].post(as[i%2].wr(qp.Send, 0, 2500, 0)))
			checkRecv(t, bs[i%2], bs[i%2].received(uint64(i)*3000), cq.OpRecv, 2500)
		}
	}},
	{Name: "TestSRQ/Resize", Checks: "the queue grows, and keeps its receives", Needs: verbs.HasSRQ, Run: func(t *T) {
		srq, as, bs := t.sharing(qp.RC, 1)
		srq.recv(0, 100)
		srq.recv(512, 100)
		t.must(srq.ModifySRQ(srq.H, verbs.SRQAttr{MaxWR: 2 * srq.MaxWR}, verbs.SRQMaxWR))
		if a := must1(srq.QuerySRQ(srq.H))(t); a.MaxWR < 2*srq.MaxWR {
			t.errorf("%s: %d receives after asking for %d", srq.Label(), a.MaxWR, 2*srq.MaxWR)
		}
		for i := range uint64(2) {
			as[0].sent(as[0].post(as[0].wr(qp.Send, 0, 100, 0)))
			bs[0].received(i * 512)
		}
	}},
	{Name: "TestSRQ/LimitEvent", Checks: "the event SRQ_LIMIT_REACHED, once, when fewer receives than the limit are left", Needs: verbs.HasSRQ, Run: func(t *T) {
		srq, as, bs := t.sharing(qp.RC, 1)
		for range 10 {
			srq.recv(0, 100)
		}
		t.must(srq.ModifySRQ(srq.H, verbs.SRQAttr{Limit: 7}, verbs.SRQLimit))
		expect(t, srq.Node, "limit", must1(srq.QuerySRQ(srq.H))(t).Limit, 7)
		for range 4 {
			as[0].sent(as[0].post(as[0].wr(qp.Send, 0, 100, 0)))
			bs[0].received(0)
		}
		bs[0].event(eventSRQLimit, srq.H)
		expect(t, srq.Node, "limit afterwards", must1(srq.QuerySRQ(srq.H))(t).Limit, 0)
	}},
	{Name: "TestSRQ/LastWQEEvent", Checks: "the event QP_LAST_WQE_REACHED when a queue pair goes to ERR; the receives stay in the queue", Needs: verbs.HasSRQ, Run: func(t *T) {
		srq, as, bs := t.sharing(qp.RC, 2)
		srq.recv(0, 100)
		bs[0].to(qp.Err)
		bs[0].firstEvent(eventLastWQE, rxe61(eventSQDrained))
		bs[0].idle(bs[0].rcq)
		as[1].sent(as[1].post(as[1].wr(qp.Send, 0, 100, 0)))
		bs[1].received(0)
	}},
	{Name: "TestSRQ/CreateBadFlow", Checks: "EINVAL for no receives, too many, too many elements", Single: true, Needs: verbs.HasSRQ, Run: func(t *T) {
		pd := must1(t.requester.AllocPD())(t)
		for _, a := range []verbs.SRQAttr{{MaxWR: 0, MaxSGE: 1}, {MaxWR: 1 << 25, MaxSGE: 1}, {MaxWR: 10, MaxSGE: 1000}} {
			_, err := t.requester.CreateSRQ(pd, a)
			refused(t, t.requester, "shared receive queue of that size", err, eINVAL)
		}
	}},
	{Name: "TestSRQ/ModifyBadFlow", Checks: "EINVAL for a limit above the size, and for a size below the number of queued receives", Single: true, Needs: verbs.HasSRQ, Run: func(t *T) {
		srq := t.newSink(t.requester)
		for range srq.MaxWR {
			srq.recv(0, 10)
		}
		refused(t, srq, "limit above the size", srq.ModifySRQ(srq.H, verbs.SRQAttr{Limit: 10 * srq.MaxWR}, verbs.SRQLimit), eINVAL)
		refused(t, srq, "size 0", srq.ModifySRQ(srq.H, verbs.SRQAttr{}, verbs.SRQMaxWR), eINVAL)
		refused(t, srq, "size below what is queued", srq.ModifySRQ(srq.H, verbs.SRQAttr{MaxWR: 1}, verbs.SRQMaxWR), eINVAL)
	}},
	{Name: "TestSRQ/PostBadFlow", Checks: "ENOMEM when full, EINVAL for too many elements", Single: true, Needs: verbs.HasSRQ, Run: func(t *T) {
		srq := t.newSink(t.requester)
		sg := make([]mr.SGE, srq.MaxSGE+1)
		refused(t, srq, "receive with too many elements", srq.PostSRQRecv(srq.H, verbs.RecvWR{SG: sg}), eINVAL)
		for range srq.MaxWR {
			srq.recv(0, 10)
		}
		refused(t, srq, "receive on a full queue", srq.PostSRQRecv(srq.H, verbs.RecvWR{SG: []mr.SGE{srq.mr.SGE(0, 10)}}), eNOMEM)
	}},
	{Name: "TestSRQ/PostToQP", Checks: "EINVAL for a receive on a queue pair that has a shared one", Needs: verbs.HasSRQ, Run: func(t *T) {
		_, _, bs := t.sharing(qp.RC, 1)
		refused(t, bs[0], "receive on the queue pair", bs[0].PostRecv(bs[0].qp.H, verbs.RecvWR{}), eINVAL)
	}},
	{Name: "TestSRQ/DestroyBusy", Checks: "EBUSY while a queue pair uses it", Needs: verbs.HasSRQ, Run: func(t *T) {
		srq, _, bs := t.sharing(qp.RC, 1)
		refused(t, srq, "destroying it", srq.DestroySRQ(srq.H), eBUSY)
		t.must(bs[0].DestroyQP(bs[0].qp.H))
		t.must(srq.DestroySRQ(srq.H))
	}},
}

// sink is a shared receive queue with memory.
type sink struct {
	verbs.Node
	verbs.Sink
	t  *T
	pd verbs.Handle
	mr verbs.MR
}

func (t *T) newSink(n verbs.Node) *sink {
	s := &sink{Node: n, t: t, pd: must1(n.AllocPD())(t)}
	s.Sink = must1(n.CreateSRQ(s.pd, verbs.SRQAttr{MaxWR: 15, MaxSGE: 2}))(t)
	s.mr = must1(n.RegMR(s.pd, must1(n.Alloc(16<<10))(t), 16<<10, mr.LocalWrite))(t)
	return s
}

// recv posts a receive of n bytes at off. Its ID is off.
func (s *sink) recv(off, n uint64) {
	s.t.must(s.PostSRQRecv(s.H, verbs.RecvWR{ID: off, SG: []mr.SGE{s.mr.SGE(off, n)}}))
}

// sharing makes connections whose responders share a receive queue.
func (t *T) sharing(typ qp.Type, n int) (s *sink, as, bs []*end) {
	s = t.newSink(t.responder)
	for range n {
		a, b := t.pairOf(defaults(service(typ)), defaults(service(typ), func(c *config) { c.srq, c.onPD = s.H, s.pd }))
		as, bs = append(as, a), append(bs, b)
	}
	return s, as, bs
}
