package scenario_test

import (
	"encoding/binary"
	"reflect"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/qp"
)

// TestQueryExperimental has a test for each field of ibv_exp_query_device that the experimental verbs
// describe, under the name of the field: the device does what the field says, and refuses what is beyond it.
func TestQueryExperimental(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"exp_atomic_cap":                 testExpAtomicCap,
		"IBV_EXP_DEVICE_DC_TRANSPORT":    testExpDC,
		"IBV_EXP_DEVICE_EXT_ATOMICS":     testExpExtAtomics,
		"IBV_EXP_DEVICE_ATTR_UMR":        testExpUMR,
		"IBV_EXP_DEVICE_CROSS_CHANNEL":   testExpCrossChannel,
		"comp_mask":                      testExpCompMask,
		"max_dc_rd_atom":                 testExpDCReads,
		"max_fa_bit_boundary":            testExpFieldBoundary,
		"log_max_atomic_inline":          testExpAtomicInline,
		"max_klm_list_size":              testExpParts,
		"max_send_wqe_inline_klms":       testExpInlineParts,
		"max_umr_recursion_depth":        testExpDepth,
		"max_umr_stride_dimension":       testExpStrides,
		"calc_cap":                       testExpCalc,
		"ibv_exp_query_mkey":             testExpQueryKey,
		"IBV_EXP_QP_CREATE_UMR":          testExpQueuePairs,
		"IBV_EXP_SEND_EXT_ATOMIC_INLINE": testExpAtomicCopies,
	} {
		t.Run(name, func(t *testing.T) { bubble(t, test) })
	}
}

// masked are two ends with masked atomics of any size.
func masked(t testing.TB) (a, b *peer) {
	c := roce.QPConfig{MaskedAtomics: true, MaxAtomicArg: 32}
	return atomicPair(t, c, c)
}

// testExpAtomicCap: the device has ATOMIC_GLOB, and atomics may return their values in big-endian byte order.
func testExpAtomicCap(t *testing.T) {
	for _, big := range []bool{false, true} {
		c := roce.QPConfig{BigEndianReply: big}
		a, b := atomicPair(t, c, c)
		attr := a.dev.Query()
		if attr.AtomicCap != roce.AtomicGlob || !attr.Masked.BigEndianReply {
			t.Errorf("attributes %v, big-endian %v", attr.AtomicCap, attr.Masked.BigEndianReply)
		}
		b.buf[0], b.buf[7] = 1, 2
		wr := a.wr(roce.FetchAdd, 0, 8, b, 0)
		check(t, a.qp.PostSend(wr))
		a.wait()
		first, last := b.buf[0], b.buf[7]
		if big && binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
			first, last = last, first
		}
		if a.buf[0] != first || a.buf[7] != last {
			t.Errorf("big-endian %v: returned % x of % x", big, a.buf[:8], b.buf[:8])
		}
	}
}

// testExpDC: the device has DC_TRANSPORT, and its targets serve initiators.
func testExpDC(t *testing.T) {
	n := newNetwork(t)
	a, b := n.device("10.0.0.1"), n.device("10.0.0.2")
	if a.Query().Caps&roce.CapDC == 0 {
		t.Errorf("capabilities %v are without DC_TRANSPORT", a.Query().Caps)
	}
	s := newDCServer(t, b, nil)
	if wc := newDCClient(t, a, b.GIDs()[0]).do(t, s, roce.SendWR{Opcode: roce.Send}); wc.Status != roce.StatusSuccess {
		t.Error(wc.Status)
	}
}

// testExpExtAtomics: there is no flag, because every device has masked atomics.
func testExpExtAtomics(t *testing.T) {
	a, b := masked(t)
	if a.dev.Query().Masked.ArgSizes == 0 {
		t.Error("no sizes of operands")
	}
	b.buf[9] = 0x0F
	wr := a.wr(roce.MaskedCompareSwap, 0, 1, b, 9)
	wr.CompareAdd, wr.CompareMask, wr.Swap, wr.SwapMask = 0x0F, 0xFF, 0xF0, 0x3C
	check(t, a.qp.PostSend(wr))
	a.wait()
	if a.buf[0] != 0x0F || b.buf[9] != 0x33 {
		t.Errorf("returned %#x, left %#x", a.buf[0], b.buf[9])
	}
}

// testExpUMR: there is no flag, because every device has indirect regions.
func testExpUMR(t *testing.T) {
	a, b := newPair(t, 64)
	m := ok(b.pd.RegIndirect(roce.Layout{Parts: []roce.Part{{MR: b.mr, Offset: 8, Length: 2}, {MR: b.mr, Offset: 32, Length: 2}}}, roce.RemoteRead))(t)
	copy(b.buf[8:], "on")
	copy(b.buf[32:], "ly")
	check(t, a.qp.PostSend(&roce.SendWR{Opcode: roce.Read, Flags: roce.Signaled, SG: []roce.SGE{a.mr.SGE(0, 4)}, RemoteAddr: m.Addr(), RKey: m.RKey()}))
	a.wait()
	if string(a.buf[:4]) != "only" {
		t.Errorf("read %q", a.buf[:4])
	}
}

// testExpCrossChannel: the device has CROSS_CHANNEL and makes managed queues, whose work requests wait until they
// are enabled.
func testExpCrossChannel(t *testing.T) {
	r := newCrossRig(t, crossConfig{qp: roce.QPConfig{CrossChannel: true, ManagedSend: true}})
	if r.dev.Query().Caps&roce.CapCrossChannel == 0 {
		t.Errorf("capabilities %v are without CROSS_CHANNEL", r.dev.Query().Caps)
	}
	r.send(1)
	r.want("before it is enabled", 0, 0)
	r.command(r.qp.SendEnableWR(0, 1, 0))
	r.want("enabled", 1, 1)
}

// testExpCompMask: Query fills in all fields, also those that a program of the experimental verbs has to request.
func testExpCompMask(t *testing.T) {
	attr := newNetwork(t).device("10.0.0.1").Query()
	for _, v := range []any{attr.Masked, attr.CalcCap} {
		for i, f := range reflect.ValueOf(v).Fields() {
			if f.IsZero() {
				t.Errorf("%T: field %v is not filled in", v, i.Name)
			}
		}
	}
	if attr.MaxParts == 0 || attr.MaxInlineParts == 0 || attr.MaxDepth == 0 || attr.MaxStrideDims == 0 || attr.MaxDCReqRdAtom == 0 || attr.MaxDCResRdAtom == 0 {
		t.Errorf("attributes %+v", attr)
	}
}

// testExpDCReads: initiators and targets may have as many READs and atomics as the limits say.
func testExpDCReads(t *testing.T) {
	n := newNetwork(t)
	a, b := n.device("10.0.0.1"), n.device("10.0.0.2")
	attr := a.Query()
	c := newDCClient(t, a, b.GIDs()[0])
	ready := func(reads int) error {
		check(t, c.Modify(&roce.Attr{State: qp.Reset}, qp.AttrState))
		ah := ok(a.CreateAH(t.Context(), roce.AHAttr{DGID: b.GIDs()[0]}))(t)
		return c.ReadyDC(roce.Initiator{Key: 1, AV: ah, MTU: roce.MTU1024, Timeout: 14, RetryCnt: 7, RNRRetry: 7, RdAtomic: uint8(reads)})
	}
	check(t, ready(attr.MaxDCReqRdAtom))
	wantErr(t, "one more of an initiator", ready(attr.MaxDCReqRdAtom+1), syscall.EINVAL)
	s := newDCServer(t, b, func(c *roce.DCTConfig) { c.MaxDestRdAtomic = uint8(attr.MaxDCResRdAtom) })
	_, err := s.Query().PD.CreateDCT(roce.DCTConfig{CQ: s.cq, SRQ: s.srq, MaxDestRdAtomic: uint8(attr.MaxDCResRdAtom + 1)})
	wantErr(t, "one more of a target", err, syscall.EINVAL)
}

// testExpFieldBoundary: a field of a MaskedFetchAdd has up to 8 bytes, also in a larger operand: no carry leaves it.
func testExpFieldBoundary(t *testing.T) {
	a, b := masked(t)
	size := 1 << a.dev.Query().Masked.MaxFieldLog
	for i := range 2 * size {
		b.buf[i] = 0xFF
	}
	wr := a.wr(roce.MaskedFetchAdd, 0, 2*size, b, 0)
	wr.Args = new(roce.MaskedArgs)
	wr.Args.CompareAdd[0] = 1
	check(t, a.qp.PostSend(wr))
	a.wait()
	for i, v := range b.buf[:2*size] {
		if want := byte(0xFF * (i / size)); v != want {
			t.Errorf("byte %d is %#x, want %#x", i, v, want)
		}
	}
}

// testExpAtomicInline: a work request has room for the values and masks of the largest operand.
func testExpAtomicInline(t *testing.T) {
	attr := newNetwork(t).device("10.0.0.1").Query()
	var largest uint64
	for n := uint64(1); n <= attr.Masked.ArgSizes; n *= 2 {
		if attr.Masked.ArgSizes&n != 0 {
			largest = n
		}
	}
	if got, want := 1<<attr.Masked.MaxInlineLog, int(reflect.TypeFor[roce.MaskedArgs]().Size()); largest != 32 || got < 4*int(largest) || got > want {
		t.Errorf("%d bytes are inline, of %d; the largest operand is %d", got, want, largest)
	}
}

// testExpAtomicCopies: posting copies the numbers of a large operand, so there is no flag that asks for it.
func testExpAtomicCopies(t *testing.T) {
	a, b := masked(t)
	wr := a.wr(roce.MaskedFetchAdd, 0, 16, b, 0)
	wr.Args = new(roce.MaskedArgs)
	wr.Args.CompareAdd[0], wr.Args.CompareAdd[1] = 5, 6
	check(t, a.qp.PostSend(wr))
	*wr.Args = roce.MaskedArgs{}
	a.wait()
	wr = a.wr(roce.Read, 32, 16, b, 0)
	check(t, a.qp.PostSend(wr))
	a.wait()
	if x, y := a.mr.Load64(32), a.mr.Load64(40); x != 5 || y != 6 {
		t.Errorf("added %d and %d", x, y)
	}
}

// testExpParts: an indirect region has up to MaxParts parts.
func testExpParts(t *testing.T) {
	d := newNetwork(t).device("10.0.0.1")
	pd, most := d.AllocPD(), d.Query().MaxParts
	check(t, ok(pd.AllocIndirect(most))(t).Close())
	_, err := pd.AllocIndirect(most + 1)
	wantErr(t, "one part more", err, syscall.EINVAL)
}

// testExpInlineParts: a work request carries up to MaxInlineParts parts.
func testExpInlineParts(t *testing.T) {
	p := newPeer(t, newNetwork(t).device("10.0.0.1"), 8)
	attr := p.dev.Query()
	m := ok(p.pd.AllocIndirect(attr.MaxParts))(t)
	parts := make([]roce.Part, attr.MaxInlineParts+1)
	for i := range parts {
		parts[i] = roce.Part{MR: p.mr, Length: 1}
	}
	_, err := m.FillWR(roce.Layout{Parts: parts[1:]}, roce.RemoteRead)
	check(t, err)
	_, err = m.FillWR(roce.Layout{Parts: parts}, roce.RemoteRead)
	wantErr(t, "one part more", err, syscall.EINVAL)
}

// testExpDepth: indirect regions may contain indirect regions, up to MaxDepth levels.
func testExpDepth(t *testing.T) {
	p := newPeer(t, newNetwork(t).device("10.0.0.1"), 8)
	var below roce.Region = p.mr
	deeper := func() error {
		m, err := p.pd.RegIndirect(roce.Layout{Parts: []roce.Part{{MR: below, Length: 8}}}, roce.RemoteRead)
		if err == nil {
			below = m
		}
		return err
	}
	for range p.dev.Query().MaxDepth {
		check(t, deeper())
	}
	wantErr(t, "one deeper", deeper(), syscall.EINVAL)
}

// testExpStrides: a part has one stride, which one count repeats.
func testExpStrides(t *testing.T) {
	p := newPeer(t, newNetwork(t).device("10.0.0.1"), 64)
	if n := p.dev.Query().MaxStrideDims; n != 1 {
		t.Errorf("%d dimensions", n)
	}
	m := ok(p.pd.RegIndirect(roce.Layout{Parts: []roce.Part{{MR: p.mr, Length: 2, Stride: 10}}, Repeat: 3}, roce.RemoteRead))(t)
	if m.Len() != 6 {
		t.Errorf("%d bytes, want 3 times 2", m.Len())
	}
}

// testExpCalc: the device does the reductions that it offers, and refuses all others.
func testExpCalc(t *testing.T) {
	r := newCrossRig(t, crossConfig{qp: roce.QPConfig{CrossChannel: true}})
	m := ok(r.pd.RegMR(make([]byte, 64), allRights))(t)
	offers, done := r.dev.Query().CalcCap, 0
	for typ := range roce.CalcType(4) {
		for op := range roce.CalcOp(6) {
			c := roce.Calc{Op: op, Type: typ}
			err := r.qp.PostSend(&roce.SendWR{Opcode: roce.Write, Flags: roce.Signaled | roce.WithCalc, Calc: c, SG: []roce.SGE{m.SGE(0, 8), m.SGE(8, 8)},
				RemoteAddr: m.Addr() + 16, RKey: m.RKey()})
			if (err == nil) != offers.Offers(c) {
				t.Errorf("%v of %v: %v, offered: %v", op, typ, err, offers.Offers(c))
			}
			if err == nil {
				done++
			}
		}
	}
	for range done {
		if wc := ok(r.scq.Next(patient(t)))(t); wc.Status != cq.Success {
			t.Error(wc.Status)
		}
	}
	if done == 0 {
		t.Error("none was done")
	}
}

// testExpQueuePairs: every RC and UC queue pair registers, without an attribute that asks for it. Datagrams do not.
func testExpQueuePairs(t *testing.T) {
	p := newPeer(t, newNetwork(t).device("10.0.0.1"), 8)
	m := ok(p.pd.AllocIndirect(1))(t)
	layout := roce.Layout{Parts: []roce.Part{{MR: p.mr, Length: 8}}}
	for _, typ := range []roce.QPType{roce.RC, roce.UC} {
		q := ok(p.pd.CreateQP(roce.QPConfig{Type: typ, SendCQ: p.cq, Caps: deepCaps}))(t)
		check(t, q.Init(roce.DefaultQPAccess, 0))
		self := &peer{t: t, dev: p.dev, qp: q, psn: 7}
		connectOne(t, self, self)
		wr := ok(m.FillWR(layout, roce.RemoteRead))(t)
		wr.Flags = roce.Signaled
		check(t, q.PostSend(&wr))
		if wc := ok(p.cq.Next(patient(t)))(t); wc.Status != roce.StatusSuccess || !m.Valid() {
			t.Errorf("%v: %v, registered: %v", typ, wc.Status, m.Valid())
		}
		check(t, m.Invalidate())
	}
	q := ok(p.pd.CreateQP(roce.QPConfig{Type: roce.UD, SendCQ: p.cq, Caps: deepCaps}))(t)
	check(t, q.Init(0, testQKey))
	check(t, q.Ready(7))
	wr := ok(m.FillWR(layout, roce.RemoteRead))(t)
	wantErr(t, "UD", q.PostSend(&wr), syscall.EINVAL)
}

// testExpQueryKey: MaxParts returns how many parts a region may have, however many it has.
func testExpQueryKey(t *testing.T) {
	p := newPeer(t, newNetwork(t).device("10.0.0.1"), 8)
	m := ok(p.pd.AllocIndirect(5))(t)
	part := roce.Part{MR: p.mr, Length: 1}
	check(t, m.Map(roce.Layout{Parts: []roce.Part{part, part}}))
	if n := m.MaxParts(); n != 5 {
		t.Errorf("up to %d parts, want 5", n)
	}
	wantErr(t, "one part more", m.Map(roce.Layout{Parts: []roce.Part{part, part, part, part, part, part}}), syscall.EINVAL)
}
