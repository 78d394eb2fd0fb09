package suite

import (
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// objectTests are about making and ending objects: pyverbs test_pd, test_cq,
// test_addr, and what of test_mr needs no traffic.
var objectTests = []Test{
	{Name: "TestPD/Alloc", Checks: "a protection domain is allocated and deallocated", Single: true, Run: func(t *T) {
		for range 20 {
			t.must(t.requester.DeallocPD(must1(t.requester.AllocPD())(t)))
		}
	}},
	{Name: "TestPD/DeallocBusy", Checks: "EBUSY while regions or queue pairs are in it", Single: true, Run: pdBusy},
	{Name: "TestCQ/Create", Checks: "at least the size asked for", Single: true, Run: func(t *T) {
		for _, size := range []int{1, 10, 100, 1000, 32767} {
			c := must1(t.requester.CreateCQ(size, 0, 0))(t)
			if c.Cap < size {
				t.errorf("%s: %d entries, asked for %d", t.requester.Label(), c.Cap, size)
			}
			t.must(t.requester.DestroyCQ(c.H))
		}
	}},
	{Name: "TestCQ/CreateBadFlow", Checks: "EINVAL for no entries, too many, a vector that is not there", Single: true, Run: func(t *T) {
		for _, size := range []int{0, -1, 1 << 26} {
			_, err := t.requester.CreateCQ(size, 0, 0)
			refused(t, t.requester, "CQ of that size", err, eINVAL)
		}
		_, err := t.requester.CreateCQ(10, 0, 1000)
		refused(t, t.requester, "CQ on vector 1000", err, eINVAL)
	}},
	{Name: "TestCQ/DestroyBusy", Checks: "EBUSY while a queue pair uses it", Single: true, Run: func(t *T) {
		e := t.newEnd(t.requester, defaults())
		refused(t, e, "destroying the queue", e.DestroyCQ(e.scq.H), eBUSY)
		t.must(e.DestroyQP(e.qp.H))
		t.must(e.DestroyCQ(e.scq.H))
	}},
	{Name: "TestAddr/CreateAH", Checks: "an address handle is created and destroyed", Run: func(t *T) {
		a, b := t.newEnd(t.requester, defaults()), t.newEnd(t.responder, defaults())
		t.must(a.DestroyAH(must1(a.CreateAH(a.pd, a.toward(b)))(t)))
	}},
	{Name: "TestAddr/CreateAHNoGRH", Checks: "EINVAL without a GRH", Needs: verbs.HasGRHFlag, Single: true, Run: func(t *T) {
		e := t.newEnd(t.requester, defaults())
		_, err := e.CreateAH(e.pd, verbs.AH{NoGRH: true, Port: 1})
		refused(t, e, "address without a GRH", err, eINVAL)
	}},
	{Name: "TestAddr/CreateAHBadIndex", Checks: "ENODATA for a GID index that holds none", Single: true, Run: func(t *T) {
		e := t.newEnd(t.requester, defaults())
		a := e.toward(e)
		a.SGIDIndex = 200
		_, err := e.CreateAH(e.pd, a)
		refused(t, e, "address with GID index 200", err, eNODATA)
	}},
	{Name: "TestMR/Reg", Checks: "regions of any size with every legal combination of rights", Single: true, Run: func(t *T) {
		n := t.requester
		pd := must1(n.AllocPD())(t)
		addr := must1(n.Alloc(1 << 20))(t)
		for _, access := range []mr.Access{0, mr.LocalWrite, mr.RemoteRead, allRights, mr.LocalWrite | mr.MWBind, mr.LocalWrite | mr.RelaxedOrdering} {
			for _, size := range []uint64{1, 4096, 4097, 1 << 20} {
				m := must1(n.RegMR(pd, addr, size, access))(t)
				t.must(n.DeregMR(m.H))
			}
		}
	}},
	{Name: "TestMR/RegBadFlags", Checks: "EINVAL for remote write or atomic without local write, and unknown rights", Single: true, Run: func(t *T) {
		n := t.requester
		pd := must1(n.AllocPD())(t)
		addr := must1(n.Alloc(4096))(t)
		for _, access := range []mr.Access{mr.RemoteWrite, mr.RemoteAtomic, mr.RemoteWrite | mr.RemoteRead, mr.LocalWrite | 1<<15} {
			_, err := n.RegMR(pd, addr, 4096, access)
			refused(t, n, "registering with "+access.String(), err, eINVAL)
		}
	}},
	{Name: "TestMR/RegNotOffered", Checks: "EOPNOTSUPP for paging on demand and huge pages", Single: true, Run: func(t *T) {
		n := t.requester
		pd := must1(n.AllocPD())(t)
		addr := must1(n.Alloc(4096))(t)
		_, err := n.RegMR(pd, addr, 4096, mr.LocalWrite|mr.OnDemand)
		refused(t, n, "registering with ON_DEMAND", err, eOPNOTSUPP, rxe61(eINVAL))
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
	{Name: "TestMR/RegUnmapped", Checks: "EFAULT for memory that is not there", Single: true, Run: func(t *T) {
		n := t.requester
		_, err := n.RegMR(must1(n.AllocPD())(t), 0x10000, 4096, mr.LocalWrite)
		refused(t, n, "registering unmapped memory", err, eFAULT)
	}},
	{Name: "TestMR/KeysDiffer", Checks: "every region has keys of its own", Single: true, Run: func(t *T) {
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
