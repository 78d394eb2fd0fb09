package suite

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// windowTests are the tests of keys that change: memory windows, reregistration, fast
// registration, invalidation. pyverbs test_mr.
var windowTests = []Test{
	{Name: "TestMR/MWType1", Checks: "a peer may write through a window to a region that does not allow it", Needs: verbs.HasMW, Run: func(t *T) {
		w := t.window(1)
		w.bind1(w.all())
		w.writes(cq.Success)
		w.bind1(w.all()) // a second bind gives another key
		w.writes(cq.Success)
	}},
	{Name: "TestMR/MWType1Invalidate", Checks: "binding to no bytes ends the window: REM_ACCESS_ERR", Needs: verbs.HasMW, Run: func(t *T) {
		w := t.window(1)
		w.bind1(w.all())
		w.writes(cq.Success)
		w.bind1(verbs.Bind{MR: w.region.H})
		w.writes(cq.RemAccessErr)
	}},
	{Name: "TestMR/MWType1OldKey", Checks: "binding again ends the previous key: REM_ACCESS_ERR", Needs: verbs.HasMW, Run: func(t *T) {
		w := t.window(1)
		w.bind1(w.all())
		old := w.key
		w.bind1(w.all())
		w.key = old
		w.writes(cq.RemAccessErr)
	}},
	{Name: "TestMR/MWType2", Checks: "a window of type 2, bound by a work request", Needs: verbs.HasMW, Run: func(t *T) {
		w := t.window(2)
		w.bind2(w.all(), cq.Success)
		w.writes(cq.Success)
	}},
	{Name: "TestMR/MWType2InvalidateLocal", Checks: "LOCAL_INV ends the window: REM_ACCESS_ERR", Needs: verbs.HasMW | verbs.HasLocalInv, Run: func(t *T) {
		w := t.window(2)
		w.bind2(w.all(), cq.Success)
		w.writes(cq.Success)
		inv := verbs.SendWR{ID: t.id(), Op: qp.LocalInv, Flags: qp.Signaled, InvKey: w.key}
		expect(t, w.b.Node, "opcode of the LOCAL_INV", w.b.sent(w.b.post(inv)).Opcode, cq.OpLocalInv)
		w.writes(cq.RemAccessErr)
	}},
	{Name: "TestMR/MWType2InvalidateRemote", Checks: "a SEND_WITH_INV of the peer ends the window, and its receive reports that", Needs: verbs.HasMW, Run: func(t *T) {
		w := t.window(2)
		w.bind2(w.all(), cq.Success)
		w.writes(cq.Success)
		r := w.b.recv(0, 100)
		send := w.a.wr(qp.SendInv, 0, 10, 0)
		send.InvKey = w.key
		w.a.sent(w.a.post(send))
		got := w.b.received(r)
		expect(t, w.b.Node, "flag WITH_INV", got.Flags&cq.WithInv != 0, true, rxe(false))
		if got.Flags&cq.WithInv != 0 {
			expect(t, w.b.Node, "key invalidated", got.InvKey, w.key)
		}
		w.writes(cq.RemAccessErr)
	}},
	{Name: "TestMR/MWType2InvalidateDealloc", Checks: "deallocating ends the window: REM_ACCESS_ERR", Needs: verbs.HasMW, Run: func(t *T) {
		w := t.window(2)
		w.bind2(w.all(), cq.Success)
		w.writes(cq.Success)
		t.must(w.b.DeallocMW(w.mw.H))
		w.writes(cq.RemAccessErr)
	}},
	{Name: "TestMR/MWType2OtherQP", Checks: "the window is valid only for the queue pair on which it was bound", Needs: verbs.HasMW, Run: func(t *T) {
		w := t.window(2)
		w.bind2(w.all(), cq.Success)
		w.a, _ = t.pairOf(defaults(), defaults(func(c *config) { c.onPD = w.b.pd }))
		w.writes(cq.RemAccessErr)
	}},
	{Name: "TestMR/MWType2BindTwice", Checks: "MW_BIND_ERR for a window that is not free", Needs: verbs.HasMW, Run: func(t *T) {
		w := t.window(2)
		w.bind2(w.all(), cq.Success)
		w.bind2(w.all(), cq.MWBindErr)
	}},
	{Name: "TestMR/MWBindNoRight", Checks: "MW_BIND_ERR for a region without MW_BIND", Needs: verbs.HasMW, Run: func(t *T) {
		w := t.window(2)
		m := w.b.register(4096, mr.LocalWrite)
		w.bind2(verbs.Bind{MR: m.H, Addr: m.Addr, Len: 4096, Access: mr.RemoteWrite}, cq.MWBindErr)
	}},
	{Name: "TestMR/MWBindNoLocalWrite", Checks: "MW_BIND_ERR for remote write on a region without local write", Needs: verbs.HasMW, Run: func(t *T) {
		w := t.window(2)
		m := w.b.register(4096, mr.MWBind)
		w.bind2(verbs.Bind{MR: m.H, Addr: m.Addr, Len: 4096, Access: mr.RemoteWrite}, cq.MWBindErr)
	}},
	{Name: "TestMR/MWBindRange", Checks: "MW_BIND_ERR beyond the region", Needs: verbs.HasMW, Run: func(t *T) {
		w := t.window(2)
		b := w.all()
		b.Len++
		w.bind2(b, cq.MWBindErr)
	}},
	{Name: "TestMR/MWRange", Checks: "REM_ACCESS_ERR beyond the window, if within the region", Needs: verbs.HasMW, Run: func(t *T) {
		w := t.window(2)
		b := w.all()
		b.Len = 99
		w.bind2(b, cq.Success)
		w.writes(cq.RemAccessErr, rxe(cq.Success))
	}},
	{Name: "TestQPEx/RCBindMW", Checks: "a window without remote write: REM_ACCESS_ERR", Needs: verbs.HasMW | verbs.HasExtendedPost, Run: func(t *T) {
		w := t.window(2, extended)
		b := w.all()
		b.Access = mr.RemoteRead
		w.bind2(b, cq.Success)
		w.writes(cq.RemAccessErr)
	}},
	{Name: "TestMR/MWDeregBusy", Checks: "EBUSY for a region that a window is bound to", Needs: verbs.HasMW, Run: func(t *T) {
		w := t.window(2)
		w.bind2(w.all(), cq.Success)
		refused(t, w.b, "deregistering the region", w.b.DeregMR(w.region.H), eBUSY, rxe(eINVAL))
		t.must(w.b.DeallocMW(w.mw.H))
		t.must(w.b.DeregMR(w.region.H))
	}},
	{Name: "TestMR/MWWrongType", Checks: "EINVAL for an unknown type of window", Single: true, Needs: verbs.HasMW, Run: func(t *T) {
		_, err := t.requester.AllocMW(must1(t.requester.AllocPD())(t), 3)
		refused(t, t.requester, "window of type 3", err, eINVAL)
	}},
	{Name: "TestMR/LocalInvUserMR", Checks: "a user's region cannot be invalidated by a work request", Needs: verbs.HasLocalInv, Run: func(t *T) {
		a, b := t.pair()
		inv := verbs.SendWR{ID: t.id(), Op: qp.LocalInv, Flags: qp.Signaled, InvKey: b.mr.RKey}
		b.sentAs(b.post(inv), cq.MWBindErr, rxe61(cq.LocQPOpErr), since612(cq.WRFlushErr))
		b.inState(qp.Err)
		a.inState(qp.RTS)
	}},
	{Name: "TestMR/ReregAddr", Checks: "the region gets other memory; a receive with the old address fails: REM_OP_ERR at the sender", Needs: verbs.HasRereg, Probe: probeRereg, Run: reregAddr},
	{Name: "TestMR/ReregAccess", Checks: "reregistration grants remote write", Needs: verbs.HasRereg, Probe: probeRereg, Run: func(t *T) {
		a, b := t.pair(func(c *config) { c.access = mr.LocalWrite })
		b.rereg(verbs.ReregAccess, allRights)
		a.sent(a.post(a.wr(qp.Write, 0, 100, 0)))
	}},
	{Name: "TestMR/ReregAccessBadFlow", Checks: "reregistration removes remote write: REM_ACCESS_ERR", Needs: verbs.HasRereg, Probe: probeRereg, Run: func(t *T) {
		a, b := t.pair()
		a.sent(a.post(a.wr(qp.Write, 0, 100, 0)))
		b.rereg(verbs.ReregAccess, mr.LocalWrite)
		a.answeredAs(a.post(a.wr(qp.Write, 0, 100, 0)), cq.RemAccessErr)
	}},
	{Name: "TestMR/ReregAtomic", Checks: "reregistration removes atomics and grants them again", Needs: verbs.HasRereg, Probe: probeRereg, Run: func(t *T) {
		a, b := t.pair()
		b.rereg(verbs.ReregAccess, mr.LocalWrite)
		a.answeredAs(a.post(a.wr(qp.FetchAdd, 0, 8, 0)), cq.RemAccessErr)
		b.rereg(verbs.ReregAccess, allRights)
		restart(a, b)
		a.sent(a.post(a.wr(qp.FetchAdd, 0, 8, 0)))
	}},
	{Name: "TestMR/ReregPD", Checks: "after a change of the protection domain a receive into the region fails: REM_OP_ERR at the sender", Needs: verbs.HasRereg, Probe: probeRereg, Run: func(t *T) {
		a, b := t.pair()
		works(a, b)
		other := must1(b.AllocPD())(t)
		b.mr = must1(b.ReregMR(b.mr, verbs.ReregPD, other, 0, 0, 0))(t)
		b.recv(0, 100)
		a.answeredAs(a.post(a.wr(qp.Send, 0, 100, 0)), cq.RemOpErr)
		b.mr = must1(b.ReregMR(b.mr, verbs.ReregPD, b.pd, 0, 0, 0))(t)
		restart(a, b)
		works(a, b)
	}},
	{Name: "TestMR/FastReg", Checks: "one work request registers a region, another invalidates it; each registration has a new key", Needs: verbs.HasFastReg, Probe: probeFastReg, Run: fastReg},
	{Name: "TestMR/FastRegInvalidateRemote", Checks: "a SEND_WITH_INV of the peer ends the registration", Needs: verbs.HasFastReg, Probe: probeFastReg, Run: func(t *T) {
		a, b := t.pair()
		m := b.fastRegister(0, cq.Success)
		r := b.recv(0, 100)
		w := a.wr(qp.SendInv, 0, 10, 0)
		w.InvKey = m.RKey
		a.sent(a.post(w))
		got := b.received(r)
		expect(t, b.Node, "key invalidated", got.InvKey, m.RKey)
		a.answeredAs(a.post(a.on(m, qp.Write, 0, 100)), cq.RemAccessErr)
	}},
	{Name: "TestMkey/List", Checks: "parts of several regions, one after the other, under one key", Needs: verbs.HasIndirect, Probe: probeIndirect, Run: func(t *T) {
		a, b := t.pair()
		x, y := b.register(4096, allRights), b.register(4096, allRights)
		m := must1(b.RegIndirect(b.pd, []verbs.Part{{MR: x.H, Offset: 96, Length: 1000}, {MR: y.H, Length: 500}}, 0, 0, allRights))(t)
		data := a.fill(0, 1500, 6)
		a.sent(a.post(a.on(m, qp.Write, 0, 1500)))
		expect(t, b.Node, "first part", string(must1(b.ReadMem(x.Addr+96, 1000))(t)), string(data[:1000]))
		expect(t, b.Node, "second part", string(must1(b.ReadMem(y.Addr, 500))(t)), string(data[1000:]))
		w := a.on(m, qp.Read, 4096, 1500)
		a.sent(a.post(w))
		a.holds(4096, data)
		w.ID, w.RemoteAddr = t.id(), m.Addr+1
		a.answeredAs(a.post(w), cq.RemAccessErr) // one byte beyond
	}},
	{Name: "TestMkey/Interleaved", Checks: "alternating parts of two regions under one key", Needs: verbs.HasIndirect, Probe: probeIndirect, Run: func(t *T) {
		a, b := t.pair()
		x, y := b.register(4096, allRights), b.register(4096, allRights)
		m := must1(b.RegIndirect(b.pd, []verbs.Part{{MR: x.H, Length: 8, Stride: 16}, {MR: y.H, Length: 4, Stride: 4}}, 50, 0, allRights))(t)
		data := a.fill(0, 600, 2)
		a.sent(a.post(a.on(m, qp.Write, 0, 600)))
		for i := range uint64(50) {
			expect(t, b.Node, "piece of the first", string(must1(b.ReadMem(x.Addr+16*i, 8))(t)), string(data[12*i:12*i+8]))
			expect(t, b.Node, "piece of the second", string(must1(b.ReadMem(y.Addr+4*i, 4))(t)), string(data[12*i+8:12*i+12]))
		}
	}},
}

func probeIndirect(n verbs.Node) error {
	_, err := n.RegIndirect(0, nil, 0, 0, 0)
	return err
}

// window is a window of the responder, and the queue pair of the requester that writes through it.
type window struct {
	t      *T
	a, b   *end
	region verbs.MR
	mw     verbs.MW
	key    bth.RKey
}

func (t *T) window(typ int, with ...func(*config)) *window {
	a, b := t.pair(with...)
	w := &window{t: t, a: a, b: b, region: b.register(4096, mr.LocalWrite|mr.MWBind), mw: must1(b.AllocMW(b.pd, typ))(t)}
	w.key = w.mw.RKey
	return w
}

// all returns a bind of the whole region with remote write and read.
func (w *window) all() verbs.Bind {
	return verbs.Bind{MR: w.region.H, Addr: w.region.Addr, Len: w.region.Len, Access: mr.RemoteWrite | mr.RemoteRead}
}

func (w *window) bind1(b verbs.Bind) {
	id := w.t.id()
	key := must1(w.b.BindMW(w.b.qp.H, w.mw.H, b, id, qp.Signaled))(w.t)
	expect(w.t, w.b.Node, "opcode of the bind", w.b.sent(id).Opcode, cq.OpBindMW)
	if key == w.key {
		w.t.errorf("%s: binding did not change the key", w.b.Label())
	}
	w.key = key
}

func (w *window) bind2(b verbs.Bind, want cq.Status) {
	next := w.key&^0xFF | (w.key+1)&0xFF
	wr := verbs.SendWR{ID: w.t.id(), Op: qp.BindMW, Flags: qp.Signaled, MW: w.mw.H, NewKey: next, Bind: b}
	w.b.sentAs(w.b.post(wr), want, bindDeviations(want)...)
	if want == cq.Success {
		w.key = next
	}
}

// bindDeviations returns the known deviations of a bind: since 6.12 rxe completes a failed bind as
// flushed.
func bindDeviations(want cq.Status) []deviation[cq.Status] {
	if want == cq.Success {
		return nil
	}
	return []deviation[cq.Status]{since612(cq.WRFlushErr)}
}

// writes writes 100 bytes through the window.
func (w *window) writes(want cq.Status, known ...deviation[cq.Status]) {
	data := w.a.fill(0, 100, byte(w.key))
	wr := w.a.wr(qp.Write, 0, 100, 0)
	wr.RKey, wr.RemoteAddr = w.key, w.region.Addr
	w.a.answeredAs(w.a.post(wr), want, known...)
	if want == cq.Success {
		got := must1(w.b.ReadMem(w.region.Addr, 100))(w.t)
		expect(w.t, w.b.Node, "data", string(got), string(data))
	}
}

func probeRereg(n verbs.Node) error {
	pd, err := n.AllocPD()
	if err != nil {
		return err
	}
	addr, err := n.Alloc(4096)
	if err != nil {
		return err
	}
	m, err := n.RegMR(pd, addr, 4096, mr.LocalWrite)
	if err != nil {
		return err
	}
	_, err = n.ReregMR(m, verbs.ReregAccess, 0, 0, 0, mr.LocalWrite|mr.RemoteWrite)
	return err
}

func probeFastReg(n verbs.Node) error {
	pd, err := n.AllocPD()
	if err != nil {
		return err
	}
	_, err = n.AllocFastMR(pd, 1)
	return err
}

func (e *end) rereg(flags int, access mr.Access) {
	e.mr = must1(e.ReregMR(e.mr, flags, 0, 0, 0, access))(e.t)
}

func reregAddr(t *T) {
	a, b := t.pair()
	b.recv(0, 100)
	other := must1(b.Alloc(16 << 10))(t)
	b.mr = must1(b.ReregMR(b.mr, verbs.ReregTranslation, 0, other, 16<<10, 0))(t)
	a.answeredAs(a.post(a.wr(qp.Send, 0, 100, 0)), cq.RemOpErr)
	restart(a, b)
	works(a, b)
	data := a.fill(0, 100, 1)
	a.sent(a.post(a.wr(qp.Write, 0, 100, 500)))
	b.holds(500, data)
}

// fastRegister registers a page of memory with a work request.
func (e *end) fastRegister(addr uint64, want cq.Status) verbs.MR {
	t := e.t
	m := must1(e.AllocFastMR(e.pd, 1))(t)
	if addr == 0 {
		addr = must1(e.Alloc(4096))(t)
	}
	m = must1(e.MapFastMR(m, addr, 4096))(t)
	return e.fastRegisterAgain(m, want)
}

func (e *end) fastRegisterAgain(m verbs.MR, want cq.Status) verbs.MR {
	m.RKey = m.RKey&^0xFF | (m.RKey+1)&0xFF
	w := verbs.SendWR{ID: e.t.id(), Op: qp.RegMR, Flags: qp.Signaled, FastMR: m.H, NewKey: m.RKey, Bind: verbs.Bind{Access: allRights}}
	e.sentAs(e.post(w), want)
	return m
}

// on makes a work request on a region of the peer, with n bytes of the local memory at offset off.
func (e *end) on(m verbs.MR, op qp.Opcode, off, n uint64) verbs.SendWR {
	w := e.wr(op, off, n, 0)
	w.RKey, w.RemoteAddr = m.RKey, m.Addr
	return w
}

func fastReg(t *T) {
	a, b := t.pair()
	m := b.fastRegister(0, cq.Success)
	for range 3 {
		data := a.fill(0, 100, byte(m.RKey))
		a.sent(a.post(a.on(m, qp.Write, 0, 100)))
		expect(t, b.Node, "data", string(must1(b.ReadMem(m.Addr, 100))(t)), string(data))
		b.sent(b.post(verbs.SendWR{ID: t.id(), Op: qp.LocalInv, Flags: qp.Signaled, InvKey: m.RKey}))
		m = b.fastRegisterAgain(m, cq.Success)
	}
	b.sent(b.post(verbs.SendWR{ID: t.id(), Op: qp.LocalInv, Flags: qp.Signaled, InvKey: m.RKey}))
	a.answeredAs(a.post(a.on(m, qp.Write, 0, 100)), cq.RemAccessErr)
}
