package suite

import (
	"errors"
	"fmt"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// postTests are the tests of refused posts: the bad flows of pyverbs test_qpex.
var postTests = []Test{
	{Name: "TestQPEx/PostRecvStateBadFlow", Checks: "EINVAL in RESET; accepted from INIT on", Single: true, Run: func(t *T) {
		for _, typ := range []qp.Type{qp.RC, qp.UC, qp.UD} {
			e := t.newEnd(t.requester, defaults(service(typ)))
			wr := verbs.RecvWR{ID: 1, SG: []mr.SGE{e.mr.SGE(0, 100)}}
			refused(t, e, fmt.Sprintf("receive on %v in RESET", typ), e.PostRecv(e.qp.H, wr), eINVAL)
			e.toInit()
			t.must(e.PostRecv(e.qp.H, wr))
		}
	}},
	{Name: "TestQPEx/PostSendStateBadFlow", Checks: "EINVAL in RESET, INIT and RTR", Run: func(t *T) {
		for _, typ := range []qp.Type{qp.RC, qp.UC, qp.UD} {
			c := defaults(service(typ))
			a, b := t.newEnd(t.requester, c), t.newEnd(t.responder, c)
			a.peer = b
			if typ == qp.UD {
				a.ah = must1(a.CreateAH(a.pd, a.toward(b)))(t)
			}
			for _, step := range []func(){func() {}, a.toInit, func() { a.toRTR(b) }} {
				step()
				s := a.state()
				refused(t, a, fmt.Sprintf("send on %v in %v", typ, s), a.PostSend(a.qp.H, a.wr(qp.Send, 0, 10, 0)), eINVAL)
			}
		}
	}},
	{Name: "TestQPEx/FullRQBadFlow", Checks: "ENOMEM when the receive queue is full", Single: true, Run: func(t *T) {
		e := t.newEnd(t.requester, defaults())
		e.toInit()
		for range e.qp.Caps.MaxRecvWR {
			e.recv(0, 10)
		}
		for taken := e.qp.Caps.MaxRecvWR; ; taken++ { // the queue may have room for a few more than its capacity
			err := e.PostRecv(e.qp.H, verbs.RecvWR{SG: []mr.SGE{e.mr.SGE(0, 10)}})
			if err != nil || taken > 1000 {
				refused(t, e, "receive on a full queue", err, eNOMEM)
				break
			}
		}
	}},
	{Name: "TestQPEx/FullSQBadFlow", Checks: "ENOMEM when the send queue is full; the posted work requests are sent", Run: fullSQ},
	{Name: "TestQPEx/RQWithLargerSGLBadFlow", Checks: "EINVAL for more elements than the queue has", Single: true, Run: func(t *T) {
		e := t.newEnd(t.requester, defaults())
		e.toInit()
		sg := make([]mr.SGE, e.qp.Caps.MaxRecvSGE+1)
		for i := range sg {
			sg[i] = e.mr.SGE(uint64(i), 1)
		}
		refused(t, e, "receive with too many elements", e.PostRecv(e.qp.H, verbs.RecvWR{SG: sg}), eINVAL)
	}},
	{Name: "TestQPEx/SQWithLargerSGLBadFlow", Checks: "EINVAL for more elements than the queue has", Run: func(t *T) {
		a, _ := t.pair()
		w := a.wr(qp.Send, 0, 1, 0)
		for len(w.SG) <= a.qp.Caps.MaxSendSGE {
			w.SG = append(w.SG, a.mr.SGE(0, 1))
		}
		refused(t, a, "send with too many elements", a.PostSend(a.qp.H, w), eINVAL)
	}},
	{Name: "TestQPEx/InlineTooLongBadFlow", Checks: "EINVAL for more inline data than the queue has", Run: func(t *T) {
		a, _ := t.pair()
		w := a.wr(qp.Send, 0, 0, 0)
		w.SG, w.Inline = nil, make([]byte, a.qp.Caps.MaxInlineData+1)
		refused(t, a, "send with too much inline data", a.PostSend(a.qp.H, w), eINVAL)
	}},
	{Name: "TestQPEx/ListStopsAtBad", Checks: "work requests before a bad one are posted, those after it are not", Run: func(t *T) {
		a, b := t.pair()
		first := b.recv(0, 100)
		b.recv(0, 100)
		list := []verbs.SendWR{a.wr(qp.Send, 0, 10, 0), a.wr(qp.Send, 0, 10, 0), a.wr(qp.Send, 0, 10, 0)}
		for len(list[1].SG) <= a.qp.Caps.MaxSendSGE {
			list[1].SG = append(list[1].SG, a.mr.SGE(0, 1))
		}
		err := a.PostSend(a.qp.H, list...)
		refused(t, a, "list with a bad one", err, eINVAL)
		if e := (*verbs.Error)(nil); errors.As(err, &e) {
			expect(t, a.Node, "work requests posted", e.Posted, 1)
		}
		a.sent(list[0].ID)
		b.received(first)
		a.sent(a.post(a.wr(qp.Send, 0, 10, 0)))
	}},
	{Name: "TestQPEx/BadOpcode", Checks: "EINVAL for operations the service does not have", Clean: true, Run: badOpcode},
	{Name: "TestAtomic/PostNonAligned", Checks: "EINVAL for a remote address that is not aligned", Run: func(t *T) {
		a, _ := t.pair()
		w := a.wr(qp.FetchAdd, 0, 8, 1)
		refused(t, a, "atomic at an odd address", a.PostSend(a.qp.H, w), eINVAL)
	}},
	{Name: "TestAtomic/PostShort", Checks: "EINVAL for fewer than 8 bytes of result", Run: func(t *T) {
		a, _ := t.pair()
		refused(t, a, "atomic with 4 bytes of result", a.PostSend(a.qp.H, a.wr(qp.FetchAdd, 0, 4, 0)), eINVAL)
	}},
}

func fullSQ(t *T) {
	a, b := t.pair(func(c *config) { c.caps.MaxSendWR, c.rnrTimer = 4, 1 })
	var ids []uint64
	for { // nothing completes: the peer has no receive
		w := a.wr(qp.Send, 0, 10, 0)
		if err := a.PostSend(a.qp.H, w); err != nil {
			refused(t, a, "send on a full queue", err, eNOMEM)
			break
		}
		ids = append(ids, w.ID)
		if len(ids) > 100 {
			t.fatalf("%s: a send queue of %d takes %d work requests", a.Label(), a.qp.Caps.MaxSendWR, len(ids))
		}
	}
	if len(ids) < a.qp.Caps.MaxSendWR {
		t.errorf("%s: a send queue of %d takes %d work requests", a.Label(), a.qp.Caps.MaxSendWR, len(ids))
	}
	for range ids {
		b.recv(0, 100)
	}
	for _, id := range ids {
		a.sent(id)
	}
}

// badOpcode posts operations that only RC has. rxe accepts them, and completes them with an error
// later.
func badOpcode(t *T) {
	for _, typ := range []qp.Type{qp.UC, qp.UD} {
		for _, op := range []qp.Opcode{qp.Read, qp.FetchAdd, qp.SendInv} {
			a, _ := t.pair(service(typ))
			w := a.wr(op, 0, 8, 0)
			err := a.PostSend(a.qp.H, w)
			refused(t, a, fmt.Sprintf("%v on %v", op, typ), err, eINVAL, rxe(success))
			if err == nil && is(a) {
				a.sentAs(w.ID, cq.LocQPOpErr, since612(cq.WRFlushErr))
			}
		}
	}
}
