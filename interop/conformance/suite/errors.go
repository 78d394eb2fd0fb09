package suite

import (
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// errorTests are the tests of errors on RC: how they are reported to both sides, and the
// states afterwards.
var errorTests = []Test{
	{Name: "TestQP/RCWriteNoQPAccess", Checks: "REM_INV_REQ_ERR if the queue pair does not grant WRITEs", Run: refusedRemotely(qp.Write, cq.RemInvReqErr, nil, func(c *config) { c.rights = qpRights &^ mr.RemoteWrite })},
	{Name: "TestQP/RCReadNoQPAccess", Checks: "REM_INV_REQ_ERR if the queue pair does not grant READs", Run: refusedRemotely(qp.Read, cq.RemInvReqErr, nil, func(c *config) { c.rights = qpRights &^ mr.RemoteRead })},
	{Name: "TestMR/WriteNoAccess", Checks: "REM_ACCESS_ERR if the region does not grant WRITEs", Run: refusedRemotely(qp.Write, cq.RemAccessErr, nil, func(c *config) { c.access = allRights &^ mr.RemoteWrite })},
	{Name: "TestMR/ReadNoAccess", Checks: "REM_ACCESS_ERR if the region does not grant READs", Run: refusedRemotely(qp.Read, cq.RemAccessErr, nil, func(c *config) { c.access = allRights &^ mr.RemoteRead })},
	{Name: "TestMR/WriteBadRKey", Checks: "REM_ACCESS_ERR", Run: badRKey(qp.Write)},
	{Name: "TestMR/WriteImmBadRKey", Checks: "REM_ACCESS_ERR", Run: badRKey(qp.WriteImm)},
	{Name: "TestMR/ReadBadRKey", Checks: "REM_ACCESS_ERR", Run: badRKey(qp.Read)},
	{Name: "TestMR/WriteOutOfRange", Checks: "REM_ACCESS_ERR before the region, after it, across its end, and around 2^64", Run: outOfRange(qp.Write)},
	{Name: "TestMR/ReadOutOfRange", Checks: "REM_ACCESS_ERR before the region, after it, across its end, and around 2^64", Run: outOfRange(qp.Read)},
	{Name: "TestMR/OtherPD", Checks: "REM_ACCESS_ERR for a region of another protection domain", Run: func(t *T) {
		a, b := t.pair()
		pd := must1(b.AllocPD())(t)
		m := must1(b.RegMR(pd, must1(b.Alloc(4096))(t), 4096, allRights))(t)
		a.answeredAs(a.post(a.on(m, qp.Write, 0, 100)), cq.RemAccessErr)
	}},
	{Name: "TestMR/DeregisteredRemote", Checks: "REM_ACCESS_ERR for the key of a deregistered region", Run: func(t *T) {
		a, b := t.pair()
		m := b.register(4096, allRights)
		a.sent(a.post(a.on(m, qp.Write, 0, 100)))
		t.must(b.DeregMR(m.H))
		a.answeredAs(a.post(a.on(m, qp.Write, 0, 100)), cq.RemAccessErr)
	}},
	{Name: "TestQP/RCLocalBadLKey", Checks: "LOC_PROT_ERR for a send with a wrong local key", Run: badLKey(qp.Write, 100, rxe61(cq.LocQPOpErr), since612(cq.WRFlushErr))},
	{Name: "TestQP/RCReadBadLKey", Checks: "LOC_PROT_ERR for a READ with a wrong local key", Run: badLKey(qp.Read, 100)},
	{Name: "TestQP/RCReadNoLocalWrite", Checks: "LOC_PROT_ERR for a READ into a region without local write", Run: func(t *T) {
		a, _ := t.pair()
		m := a.register(4096, mr.RemoteRead)
		w := a.wr(qp.Read, 0, 0, 0)
		w.SG = []mr.SGE{m.SGE(0, 100)}
		a.sentAs(a.post(w), cq.LocProtErr)
		a.inState(qp.Err)
	}},
	{Name: "TestQP/RCSendTooLong", Checks: "LOC_LEN_ERR at the receiver, REM_INV_REQ_ERR at the sender", Run: func(t *T) {
		a, b := t.pair()
		r := b.recv(0, 1500)
		id := a.post(a.wr(qp.Send, 0, 3000, 0))
		b.receivedAs(r, cq.LocLenErr, rxe(cq.LocQPOpErr))
		a.answeredAs(id, cq.RemInvReqErr, rxe(cq.RemOpErr))
		a.inState(qp.Err)
		b.inState(qp.Err)
	}},
	{Name: "TestQP/RCRecvBadLKey", Checks: "LOC_PROT_ERR at the receiver, REM_OP_ERR at the sender", Run: func(t *T) {
		a, b := t.pair()
		r := verbs.RecvWR{ID: t.id(), SG: []mr.SGE{b.mr.SGE(0, 100)}}
		r.SG[0].LKey += 1 << 8
		t.must(b.PostRecv(b.qp.H, r))
		id := a.post(a.wr(qp.Send, 0, 100, 0))
		b.receivedAs(r.ID, cq.LocProtErr, rxe(cq.LocQPOpErr))
		a.answeredAs(id, cq.RemOpErr)
	}},
	{Name: "TestQP/RCErrorFlushes", Checks: "all work requests after the failed one are flushed, in order, on both sides", Run: errorFlushes},
	{Name: "TestQP/RCRestart", Checks: "a failed connection works again after RESET", Run: func(t *T) {
		a, b := t.pair()
		w := a.wr(qp.Write, 0, 100, 0)
		w.RKey += 1 << 8
		a.answeredAs(a.post(w), cq.RemAccessErr)
		b.inState(qp.Err) // a kernel may still be on the way to ERR after its NAK, and would then leave RESET for ERR
		restart(a, b)
		works(a, b)
		works(b, a)
	}},
	{Name: "TestQP/RNRRetryExceeded", Checks: "RNR_RETRY_EXC_ERR if the responder posts no receive", Clean: true, Run: func(t *T) {
		a, b := t.pair(func(c *config) { c.rnrRetry, c.rnrTimer = 1, 1 })
		a.sentAs(a.post(a.wr(qp.Send, 0, 100, 0)), cq.RNRRetryExcErr)
		a.inState(qp.Err)
		b.inState(qp.RTS)
	}},
	{Name: "TestQP/RetryExceeded", Checks: "RETRY_EXC_ERR if the responder does not answer", Run: func(t *T) {
		a, b := t.pair(func(c *config) { c.timeout, c.retry = 10, 2 })
		b.to(qp.Reset)
		a.sentAs(a.post(a.wr(qp.Send, 0, 100, 0)), cq.RetryExcErr)
		a.inState(qp.Err)
	}},
	{Name: "TestQP/SendInvUserMR", Checks: "a user's region cannot be invalidated by the peer: REM_INV_REQ_ERR at the receiver", Run: func(t *T) {
		a, b := t.pair()
		r := b.recv(0, 100)
		w := a.wr(qp.SendInv, 0, 100, 0)
		w.InvKey = b.mr.RKey
		a.sent(a.post(w))
		b.receivedAs(r, cq.RemInvReqErr)
		b.inState(qp.Err)
	}},
}

// refusedRemotely posts a request that the responder must refuse, and checks both sides
// afterwards. change changes the request, configure the configuration of the responder.
func refusedRemotely(op qp.Opcode, want cq.Status, change func(*verbs.SendWR), configure ...func(*config)) func(*T) {
	return func(t *T) {
		a, b := t.pairOf(defaults(), defaults(configure...))
		if op == qp.WriteImm {
			b.recv(8192, 10)
		}
		before := b.fill(0, 100, 0x33)
		w := a.wr(op, 0, 8, 0)
		if change != nil {
			change(&w)
		}
		a.answeredAs(a.post(w), want)
		a.inState(qp.Err)
		b.inState(qp.Err)
		b.holds(0, before)
	}
}

// badLKey posts a request with a wrong local key.
func badLKey(op qp.Opcode, n uint64, known ...deviation[cq.Status]) func(*T) {
	return func(t *T) {
		a, _ := t.pair()
		w := a.wr(op, 0, n, 0)
		w.SG[0].LKey += 1 << 8
		a.sentAs(a.post(w), cq.LocProtErr, known...)
		a.inState(qp.Err)
	}
}

func badRKey(op qp.Opcode) func(*T) {
	return func(t *T) {
		for _, change := range []func(w *verbs.SendWR){
			func(w *verbs.SendWR) { w.RKey += 1 << 8 },    // another region's
			func(w *verbs.SendWR) { w.RKey ^= 0x55 },      // another generation
			func(w *verbs.SendWR) { w.RKey = 0 },          // none
			func(w *verbs.SendWR) { w.RKey = 0xFFFFFF00 }, // out of the table
		} {
			refusedRemotely(op, cq.RemAccessErr, change)(t)
		}
	}
}

func outOfRange(op qp.Opcode) func(*T) {
	return func(t *T) {
		for _, change := range []func(w *verbs.SendWR){
			func(w *verbs.SendWR) { w.RemoteAddr-- },
			func(w *verbs.SendWR) { w.RemoteAddr += 16<<10 - 7 }, // one byte beyond
			func(w *verbs.SendWR) { w.RemoteAddr += 16 << 10 },
			func(w *verbs.SendWR) { w.RemoteAddr = 0 },
			func(w *verbs.SendWR) { w.RemoteAddr = ^uint64(0) - 3 },
		} {
			refusedRemotely(op, cq.RemAccessErr, change)(t)
		}
	}
}

func errorFlushes(t *T) {
	a, b := t.pair()
	for _, e := range []*end{a, b} {
		for range 3 {
			e.recv(8192, 10)
		}
	}
	recvs := [2]uint64{t.nextID - 5, t.nextID - 2}
	good, bad := a.wr(qp.Write, 0, 10, 0), a.wr(qp.Write, 0, 10, 0)
	bad.RKey += 1 << 8
	last, lost := a.wr(qp.Write, 0, 10, 0), a.wr(qp.Write, 0, 10, 0)
	lost.Flags = 0 // unsignaled, but flushed with a completion
	a.post(good, bad, last, lost)
	a.sent(good.ID)
	a.answeredAs(bad.ID, cq.RemAccessErr)
	a.sentAs(last.ID, cq.WRFlushErr)
	a.sentAs(lost.ID, cq.WRFlushErr)
	for i, e := range []*end{a, b} {
		for n := range uint64(3) {
			e.receivedAs(recvs[i]+n, cq.WRFlushErr)
		}
		e.inState(qp.Err)
	}
}
