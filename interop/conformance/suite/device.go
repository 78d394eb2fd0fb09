package suite

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/interop/conformance/verbs"
)

// deviceTests ask a device for what it is: pyverbs test_device.
var deviceTests = []Test{
	{Name: "TestDevice/QueryDevice", Checks: "GUIDs and limits that make sense", Single: true, Needs: verbs.HasQueryDevice, Run: queryDevice},
	{Name: "TestDevice/QueryPort", Checks: "an active Ethernet port with valid MTUs", Single: true, Needs: verbs.HasQueryDevice, Run: func(t *T) {
		p := must1(t.requester.QueryPort(1))(t)
		const active, linkUp, ethernet = 4, 5, 2
		expect(t, t.requester, "state", p.State, active)
		expect(t, t.requester, "physical state", p.PhysState, linkUp)
		expect(t, t.requester, "link layer", p.LinkLayer, ethernet)
		expect(t, t.requester, "active MTU", p.ActiveMTU, bth.MTU1024)
		if !p.MaxMTU.Valid() || p.MaxMTU < p.ActiveMTU || p.GIDTableLen < 1 || p.PKeyTableLen < 1 || p.MaxMsgSize <= 0x1000 {
			t.errorf("%s: %+v", t.requester.Label(), p)
		}
	}},
	{Name: "TestDevice/QueryPortBadFlow", Checks: "EINVAL for a port that is not there", Single: true, Needs: verbs.HasQueryDevice, Run: func(t *T) {
		for _, port := range []int{0, 2, 200} {
			_, err := t.requester.QueryPort(port)
			refused(t, t.requester, "asking for that port", err, eINVAL)
		}
	}},
	{Name: "TestDevice/QueryPKey", Checks: "the default partition, 0xFFFF", Single: true, Needs: verbs.HasQueryDevice, Run: func(t *T) {
		expect(t, t.requester, "P_Key 0", must1(t.requester.QueryPKey(1, 0))(t), 0xFFFF)
	}},
	{Name: "TestDevice/QueryPKeyBadFlow", Checks: "ENOENT beyond the table", Single: true, Needs: verbs.HasQueryDevice, Run: func(t *T) {
		_, err := t.requester.QueryPKey(1, 5)
		refused(t, t.requester, "P_Key 5", err, eNOENT)
	}},
	{Name: "TestDevice/GetPKeyIndex", Checks: "index 0 for the default partition", Single: true, Needs: verbs.HasQueryDevice, Run: func(t *T) {
		expect(t, t.requester, "index of 0xFFFF", must1(t.requester.PKeyIndex(1, 0xFFFF))(t), 0)
	}},
	{Name: "TestDevice/QueryGID", Checks: "the address in the table is the address", Single: true, Needs: verbs.HasQueryDevice, Run: func(t *T) {
		i, g := t.requester.GID()
		expect(t, t.requester, "GID", must1(t.requester.QueryGID(1, i))(t), g)
	}},
	{Name: "TestDevice/QueryGIDBadFlow", Checks: "EINVAL beyond the table and for a port that is not there", Single: true, Needs: verbs.HasQueryDevice, Run: func(t *T) {
		_, err := t.requester.QueryGID(1, 100_000)
		refused(t, t.requester, "GID 100000", err, eINVAL)
		_, err = t.requester.QueryGID(2, 0)
		refused(t, t.requester, "GID of port 2", err, eINVAL)
	}},
	{Name: "TestDevice/QueryGIDEx", Checks: "RoCE v2, at its index", Single: true, Needs: verbs.HasQueryDevice, Run: func(t *T) {
		i, g := t.requester.GID()
		e := must1(t.requester.QueryGIDEx(1, i))(t)
		const v2 = 2
		expect(t, t.requester, "entry", e, verbs.GIDEntry{GID: g, Index: i, Type: v2})
	}},
	{Name: "TestDevice/QueryGIDExBadFlow", Checks: "ENODATA for an index that holds none", Single: true, Needs: verbs.HasQueryDevice, Run: func(t *T) {
		_, err := t.requester.QueryGIDEx(1, 200)
		refused(t, t.requester, "GID 200", err, eNODATA)
	}},
	{Name: "TestDevice/QueryGIDTable", Checks: "lists the address", Single: true, Needs: verbs.HasQueryDevice, Run: func(t *T) {
		i, g := t.requester.GID()
		for _, e := range must1(t.requester.QueryGIDTable(1024))(t) {
			if e.Index == i && e.GID == g {
				return
			}
		}
		t.errorf("%s: GID %d is not in the table", t.requester.Label(), i)
	}},
	{Name: "TestDevice/QueryGIDTableBadFlow", Checks: "EINVAL for a buffer without room", Single: true, Needs: verbs.HasGIDBuffer, Run: func(t *T) {
		_, err := t.requester.QueryGIDTable(0)
		refused(t, t.requester, "table without room", err, eINVAL)
	}},
	{Name: "TestDM/Alloc", Checks: "device memory", Single: true, Needs: verbs.HasDeviceMemory, Probe: func(n verbs.Node) error {
		_, err := n.AllocDM(4096)
		return err
	}, Run: func(t *T) { must1(t.requester.AllocDM(4096))(t) }},
}

func queryDevice(t *T) {
	a := must1(t.requester.QueryDevice())(t)
	for _, x := range []struct {
		what string
		ok   bool
	}{
		{"node GUID", a.NodeGUID != 0}, {"system image GUID", a.SysImageGUID != 0}, {"largest region", a.MaxMRSize > 4096},
		{"page sizes", a.PageSizeCap >= 4096}, {"vendor", a.VendorID != 0}, {"queue pairs", a.MaxQP > 0}, {"work requests", a.MaxQPWR > 0},
		{"elements", a.MaxSGE > 0 && a.MaxSGERd >= 0}, {"completion queues", a.MaxCQ > 0}, {"completions", a.MaxCQE > 0},
		{"regions", a.MaxMR > 0}, {"domains", a.MaxPD > 0}, {"P_Keys", a.MaxPKeys > 0}, {"ports", a.PhysPortCnt == 1},
		{"READs", a.MaxQPRdAtom > 0 && a.MaxQPInitRdAtom > 0}, {"atomics", a.AtomicCap > 0}, {"vectors", a.NumCompVectors > 0},
	} {
		if !x.ok {
			t.errorf("%s: %s: %+v", t.requester.Label(), x.what, a)
		}
	}
}
