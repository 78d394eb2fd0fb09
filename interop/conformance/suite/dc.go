package suite

import (
	"syscall"
	"time"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// dcTests are the tests of the dynamically connected transport.
var dcTests = []Test{
	{Name: "TestDC/SendImm", Checks: "SENDs of every size to a target's shared receive queue", Needs: verbs.HasDC, Run: func(t *T) {
		x := t.dc()
		for i, n := range sizes {
			data := x.a.fill(0, n, byte(i))
			r := x.recv(n)
			w := x.wr(qp.SendImm, 0, n, 0)
			w.Imm = uint32(i)
			x.a.sent(x.a.post(w))
			got := x.end.received(r)
			expect(t, x.end, "immediate data", got.Imm, uint32(i))
			x.end.holds(0, data)
		}
	}},
	{Name: "TestDC/RdmaWriteRead", Checks: "WRITE and READ", Needs: verbs.HasDC, Run: func(t *T) {
		x := t.dc()
		data := x.a.fill(0, 5000, 9)
		x.a.sent(x.a.post(x.wr(qp.Write, 0, 5000, 0)))
		x.end.holds(0, data)
		x.a.sent(x.a.post(x.wr(qp.Read, 8192, 5000, 0)))
		x.a.holds(8192, data)
	}},
	{Name: "TestDC/Atomic", Checks: "fetch and add, compare and swap", Needs: verbs.HasDC, Run: func(t *T) {
		x := t.dc()
		x.end.setWord(8, 40)
		w := x.wr(qp.FetchAdd, 0, 8, 8)
		w.CompareAdd = 2
		x.a.sent(x.a.post(w))
		expect(t, x.end, "word returned", x.a.word(0), uint64(40))
		w = x.wr(qp.CompareSwap, 0, 8, 8)
		w.CompareAdd, w.Swap = 42, 7
		x.a.sent(x.a.post(w))
		expect(t, x.end, "word returned", x.a.word(0), uint64(42))
		expect(t, x.end, "word afterwards", x.end.word(8), uint64(7))
	}},
	{Name: "TestDC/TwoTargets", Checks: "work requests of one initiator go to two targets in turn", Needs: verbs.HasDC, Run: func(t *T) {
		x := t.dc()
		other := x.target(x.key)
		for i := range 4 {
			w := x.wr(qp.Write, 0, 8, uint64(8*i))
			if i%2 == 1 {
				w.QPN = other.Num
			}
			x.a.setWord(0, uint64(100+i))
			x.a.sent(x.a.post(w))
			expect(t, x.end, "word", x.end.word(uint64(8*i)), uint64(100+i))
		}
	}},
	{Name: "TestDC/KeyViolation", Checks: "REM_ACCESS_ERR for a wrong access key; an armed target goes to FIRED and raises the event", Needs: verbs.HasDC, Run: func(t *T) {
		x := t.dc()
		n := x.end.Node.(verbs.DCNode)
		t.must(n.ArmDCT(x.dct.H))
		state, _, err := n.QueryDCT(x.dct.H)
		t.must(err)
		expect(t, x.end, "state", state, qp.DCTArmed)
		w := x.wr(qp.Write, 0, 8, 0)
		w.DCKey = x.key + 1
		x.a.sentAs(x.a.post(w), cq.RemAccessErr)
		state, violations, err := n.QueryDCT(x.dct.H)
		t.must(err)
		expect(t, x.end, "state", state, qp.DCTFired)
		expect(t, x.end, "key violations", violations, uint64(1))
		e := must1(x.end.NextEvent(5 * time.Second))(t)
		expect(t, x.end, "event", e.Type, int(qp.EventDCTKeyViolation))
	}},
	{Name: "TestDC/CreateDCTBadFlow", Checks: "EINVAL without a shared receive queue", Needs: verbs.HasDC, Run: func(t *T) {
		x := t.dc()
		_, err := x.end.Node.(verbs.DCNode).CreateDCT(verbs.DCTInit{PD: x.end.pd, CQ: x.end.rcq.H, MTU: x.a.c.mtu})
		refused(t, x.end, "create_dct", err, errno(syscall.EINVAL))
	}},
}

// dcEnd is an initiator and a target.
type dcEnd struct {
	a   *end
	end *end // of the target, for its helper methods
	srq verbs.Handle
	dct verbs.DCT
	key uint64
	ah  verbs.Handle
}

func (t *T) dc() *dcEnd {
	n := t.responder
	x := &dcEnd{key: 0x1122334455667788}
	c := defaults()
	x.end = &end{Node: n, t: t, c: c, pd: must1(n.AllocPD())(t), rcq: must1(n.CreateCQ(63, 0, 0))(t)}
	x.end.mr = x.end.register(16<<10, allRights)
	x.srq = must1(n.CreateSRQ(x.end.pd, verbs.SRQAttr{MaxWR: 15, MaxSGE: 2}))(t).H
	x.dct = x.target(x.key)
	x.end.qp.QPN = x.dct.Num // completions name the target
	x.a = t.newEnd(t.requester, defaults(service(qp.DCI)))
	x.a.peer, x.end.peer = x.end, x.a
	a := x.a.attr(nil)
	a.AV = x.a.toward(x.end)
	for _, step := range []struct {
		state qp.State
		mask  qp.AttrMask
	}{
		{qp.Init, initMask | qp.AttrDCKey},
		{qp.RTR, qp.AttrState | qp.AttrAV | qp.AttrPathMTU},
		{qp.RTS, rtsMask &^ qp.AttrSQPSN},
	} {
		a.State = step.state
		t.must(x.a.ModifyQP(x.a.qp.H, a, step.mask))
	}
	x.ah = must1(x.a.CreateAH(x.a.pd, a.AV))(t)
	return x
}

// target makes a target with a key.
func (x *dcEnd) target(key uint64) verbs.DCT {
	index, _ := x.end.GID()
	c := &x.end.c
	return must1(x.end.Node.(verbs.DCNode).CreateDCT(verbs.DCTInit{PD: x.end.pd, CQ: x.end.rcq.H, SRQ: x.srq, Key: key, MTU: c.mtu, MinRNRTimer: c.rnrTimer,
		Access: mr.RemoteRead | mr.RemoteWrite | mr.RemoteAtomic, GIDIndex: index}))(x.end.t)
}

func (x *dcEnd) wr(op qp.Opcode, off, n, remote uint64) verbs.SendWR {
	w := x.a.wr(op, off, n, remote)
	w.AH, w.QPN, w.DCKey = x.ah, x.dct.Num, x.key
	return w
}

// recv posts a receive of n bytes at the beginning of the target's memory.
func (x *dcEnd) recv(n uint64) uint64 {
	r := verbs.RecvWR{ID: x.end.t.id(), SG: []mr.SGE{x.end.mr.SGE(0, n)}}
	x.end.t.must(x.end.PostSRQRecv(x.srq, r))
	return r.ID
}
