package suite

import (
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// objectTests are the tests of making and destroying objects that pyverbs does not have.
var objectTests = []Test{
	{Name: "TestPD/DeallocBusy", Checks: "EBUSY while it has regions or queue pairs", Single: true, Run: pdBusy},
	{Name: "TestCQ/DestroyBusy", Checks: "EBUSY while a queue pair uses it", Single: true, Run: func(t *T) {
		e := t.newEnd(t.requester, defaults())
		refused(t, e, "destroying the queue", e.DestroyCQ(e.scq.H), eBUSY)
		t.must(e.DestroyQP(e.qp.H))
		t.must(e.DestroyCQ(e.scq.H))
	}},
	{Name: "TestAddr/CreateAHNoGRH", Checks: "EINVAL without a GRH", Needs: verbs.HasGRHFlag, Single: true, Run: func(t *T) {
		e := t.newEnd(t.requester, defaults())
		_, err := e.CreateAH(e.pd, verbs.AH{NoGRH: true, Port: 1})
		refused(t, e, "address without a GRH", err, eINVAL)
	}},
	{Name: "TestAddr/CreateAHBadIndex", Checks: "ENODATA for an empty entry of the GID table", Single: true, Run: func(t *T) {
		e := t.newEnd(t.requester, defaults())
		a := e.toward(e)
		a.SGIDIndex = 200
		_, err := e.CreateAH(e.pd, a)
		refused(t, e, "address with GID index 200", err, eNODATA)
	}},
	{Name: "TestMR/RegNotOffered", Checks: "EOPNOTSUPP for huge pages, and for on-demand paging except on Linux 7", Single: true, Run: func(t *T) {
		n := t.requester
		pd := must1(n.AllocPD())(t)
		addr := must1(n.Alloc(4096))(t)
		_, err := n.RegMR(pd, addr, 4096, mr.LocalWrite|mr.OnDemand)
		paging := eOPNOTSUPP
		if is(n, "7") {
			paging = success // new in Linux 6.15
		}
		refused(t, n, "registering with ON_DEMAND", err, paging, rxe61(eINVAL))
		_, err = n.RegMR(pd, addr, 4096, mr.LocalWrite|mr.HugeTLB)
		refused(t, n, "registering with HUGETLB", err, eOPNOTSUPP, rxe61(success))
	}},
	{Name: "TestMR/RegZeroLength", Checks: "EINVAL for a region of no bytes", Single: true, Run: func(t *T) {
		n := t.requester
		pd := must1(n.AllocPD())(t)
		addr := must1(n.Alloc(4096))(t)
		_, err := n.RegMR(pd, addr, 0, mr.LocalWrite)
		refused(t, n, "registering no bytes", err, eINVAL)
	}},
	{Name: "TestMR/RegUnmapped", Checks: "EFAULT for unmapped memory", Single: true, Run: func(t *T) {
		n := t.requester
		_, err := n.RegMR(must1(n.AllocPD())(t), 0x10000, 4096, mr.LocalWrite)
		refused(t, n, "registering unmapped memory", err, eFAULT)
	}},
	{Name: "TestMR/KeysDiffer", Checks: "every region has different keys", Single: true, Run: func(t *T) {
		n := t.requester
		pd := must1(n.AllocPD())(t)
		addr := must1(n.Alloc(4096))(t)
		seen := map[uint32]bool{}
		for range 50 {
			m := must1(n.RegMR(pd, addr, 4096, allRights))(t)
			if seen[uint32(m.RKey)] || m.RKey == 0 {
				t.errorf("%s: key %#x twice, or 0", n.Label(), uint32(m.RKey))
			}
			seen[uint32(m.RKey)] = true
		}
	}},
}

func pdBusy(t *T) {
	n := t.requester
	pd := must1(n.AllocPD())(t)
	m := must1(n.RegMR(pd, must1(n.Alloc(4096))(t), 4096, mr.LocalWrite))(t)
	refused(t, n, "deallocating with a region in it", n.DeallocPD(pd), eBUSY)
	t.must(n.DeregMR(m.H))
	c := must1(n.CreateCQ(10, 0, 0))(t)
	q := must1(n.CreateQP(verbs.QPInit{PD: pd, Type: qp.RC, SendCQ: c.H, RecvCQ: c.H, Caps: defaults().caps}))(t)
	refused(t, n, "deallocating with a queue pair in it", n.DeallocPD(pd), eBUSY)
	t.must(n.DestroyQP(q.H))
	t.must(n.DeallocPD(pd))
}
