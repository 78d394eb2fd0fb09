package suite

import (
	"fmt"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// qpTests are the tests of modifying and querying queue pairs that pyverbs test_qp does not have.
var qpTests = []Test{
	{Name: "TestQP/QueryAttr", Checks: "a query returns the values that were set", Run: queryAttr},
	{Name: "TestQP/PrivilegedQKey", Checks: "a Q_Key with the top bit can be set", Single: true, Run: func(t *T) {
		e := t.newEnd(t.requester, defaults(func(c *config) { c.typ, c.qkey = qp.UD, 0x80000000 }))
		e.toInit()
		a, _, err := e.QueryQP(e.qp.H, qp.AttrQKey)
		t.must(err)
		expect(t, e.Node, "Q_Key", a.QKey, e.c.qkey)
	}},
	{Name: "TestQP/ModifyRCRdAtomic", Checks: "every number of outstanding READs and atomics up to the limit is accepted", Run: modifyRdAtomic},
	{Name: "TestQP/ModifyBadTransition", Checks: "EINVAL for state changes that are not allowed", Single: true, Run: badTransitions},
	{Name: "TestQP/ModifyMissingAttr", Checks: "EINVAL when a required attribute is left out", Run: missingAttrs},
	{Name: "TestQP/ModifyBadValue", Checks: "EINVAL for values out of range", Run: badValues},
	{Name: "TestQP/ModifyNoGRH", Checks: "EINVAL for an address without a GRH", Needs: verbs.HasGRHFlag, Single: true, Run: func(t *T) {
		a := t.newEnd(t.requester, defaults())
		a.toInit()
		v := a.attr(a)
		v.AV.NoGRH = true
		refused(t, a, "RTR without a GRH", a.modify(qp.RTR, v, rtrMask), eINVAL)
	}},
	{Name: "TestQP/ModifyBadGIDIndex", Checks: "ENODATA for an empty entry of the GID table", Run: func(t *T) {
		a, b := t.newEnd(t.requester, defaults()), t.newEnd(t.responder, defaults())
		a.toInit()
		v := a.attr(b)
		v.AV.SGIDIndex = 200
		refused(t, a, "RTR with GID index 200", a.modify(qp.RTR, v, rtrMask), eNODATA)
		a.inState(qp.Init)
	}},
}

// allAttrs has the bits of all attributes.
const allAttrs = qp.AttrDestQPN<<1 - 1

func queryAttr(t *T) {
	a, b := t.pair(func(c *config) { c.timeout, c.retry, c.rnrRetry, c.rnrTimer, c.rd, c.dest = 13, 5, 3, 17, 2, 8 })
	got, _, err := a.QueryQP(a.qp.H, allAttrs)
	t.must(err)
	for _, x := range []struct {
		what      string
		got, want any
	}{
		{"state", got.State, qp.RTS}, {"path MTU", got.PathMTU, a.c.mtu}, {"destination", got.DestQPN, b.qp.QPN},
		{"RQ_PSN", got.RQPSN, b.c.psn}, {"SQ_PSN", got.SQPSN, a.c.psn}, {"rights", got.Access, a.c.rights},
		{"port", got.Port, uint8(1)}, {"timeout", got.Timeout, uint8(13)}, {"retries", got.RetryCnt, uint8(5)},
		{"RNR retries", got.RNRRetry, uint8(3)}, {"RNR timer", got.MinRNRTimer, bth.RNRTimer(17)},
		{"READs as requester", got.MaxRdAtomic, uint8(2)}, {"READs as responder", got.MaxDestRdAtomic, uint8(8)},
	} {
		expect(t, a.Node, x.what, fmt.Sprint(x.got), fmt.Sprint(x.want))
	}
}

func modifyRdAtomic(t *T) {
	for _, n := range []uint8{0, 1, 2, 3, 16, 128} {
		a, _ := t.pair(func(c *config) { c.rd, c.dest = n, n })
		got, _, err := a.QueryQP(a.qp.H, allAttrs)
		t.must(err)
		var known []deviation[uint8]
		if n == 3 {
			known = append(known, rxe[uint8](4))
		}
		expect(t, a.Node, fmt.Sprintf("%d READs as requester", n), got.MaxRdAtomic, n, known...)
		expect(t, a.Node, fmt.Sprintf("%d READs as responder", n), got.MaxDestRdAtomic, n, known...)
	}
}

func badTransitions(t *T) {
	for _, typ := range []qp.Type{qp.RC, qp.UC, qp.UD} {
		e := t.newEnd(t.requester, defaults(service(typ)))
		for _, s := range []qp.State{qp.RTR, qp.RTS, qp.SQD, qp.SQE, qp.Err} {
			refused(t, e, fmt.Sprintf("%v RESET to %v", typ, s), e.modify(s, e.attr(e), qp.AttrState), eINVAL)
		}
		e.toInit()
		for _, s := range []qp.State{qp.RTS, qp.SQD, qp.SQE} {
			refused(t, e, fmt.Sprintf("%v INIT to %v", typ, s), e.modify(s, e.attr(e), qp.AttrState), eINVAL)
		}
		e.to(qp.Err)
		for _, s := range []qp.State{qp.Init, qp.RTR, qp.RTS} {
			refused(t, e, fmt.Sprintf("%v ERR to %v", typ, s), e.modify(s, e.attr(e), qp.AttrState), eINVAL)
		}
	}
}

func bits(m qp.AttrMask) (list []qp.AttrMask) {
	for b := qp.AttrMask(1); b <= m; b <<= 1 {
		if m&b != 0 {
			list = append(list, b)
		}
	}
	return list
}

func missingAttrs(t *T) {
	for _, typ := range []qp.Type{qp.RC, qp.UC, qp.UD} {
		c := defaults(service(typ))
		a, b := t.newEnd(t.requester, c), t.newEnd(t.responder, c)
		for _, s := range []qp.State{qp.Init, qp.RTR, qp.RTS} {
			v, mask := a.attr(b), masks[typ][s]
			for _, bit := range bits(mask &^ qp.AttrState) {
				refused(t, a, fmt.Sprintf("%v to %v without %v", typ, s, bit), a.modify(s, v, mask&^bit), eINVAL)
			}
			refused(t, a, fmt.Sprintf("%v to %v with a capacity", typ, s), a.modify(s, v, mask|qp.AttrCap), eINVAL)
			t.must(a.modify(s, v, mask))
		}
	}
}

func badValues(t *T) {
	_, b := t.pair()
	try := func(s qp.State, what string, change func(*verbs.QPAttr), known ...deviation[errno]) {
		a := t.newEnd(t.requester, defaults())
		if s != qp.Init {
			a.toInit()
		}
		if s == qp.RTS {
			a.toRTR(b)
		}
		before, v := a.state(), a.attr(b)
		change(v)
		err := a.modify(s, v, masks[qp.RC][s])
		refused(t, a, what, err, eINVAL, known...)
		if err != nil {
			a.inState(before)
		}
		t.must(a.DestroyQP(a.qp.H))
	}
	try(qp.Init, "port 2", func(v *verbs.QPAttr) { v.Port = 2 })
	try(qp.Init, "unknown rights", func(v *verbs.QPAttr) { v.Access |= mr.Access(1 << 15) }, rxe61(success))
	try(qp.Init, "P_Key index 5", func(v *verbs.QPAttr) { v.PKeyIndex = 5 }, rxe(success))
	try(qp.RTR, "path MTU 0", func(v *verbs.QPAttr) { v.PathMTU = 0 }, rxe(success))
	try(qp.RTR, "path MTU 6", func(v *verbs.QPAttr) { v.PathMTU = 6 })
	try(qp.RTR, "253 READs as responder", func(v *verbs.QPAttr) { v.MaxDestRdAtomic = 253 }, rxe(success))
	try(qp.RTR, "destination beyond 24 bits", func(v *verbs.QPAttr) { v.DestQPN = 1 << 24 }, rxe(success))
	try(qp.RTS, "timeout 32", func(v *verbs.QPAttr) { v.Timeout = 32 })
	try(qp.RTS, "253 READs as requester", func(v *verbs.QPAttr) { v.MaxRdAtomic = 253 })
	try(qp.RTS, "retry count 8", func(v *verbs.QPAttr) { v.RetryCnt = 8 }, rxe(success))
	try(qp.RTS, "RNR retry count 8", func(v *verbs.QPAttr) { v.RNRRetry = 8 }, rxe(success))
}
