package verbs

import (
	"math"
	"syscall"
	"testing"
	"unsafe"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/internal/inside"
	"github.com/goroce/roce/qp"
)

func TestQueuePairs(t *testing.T) {
	e := newEnd(t, device0)
	for name, c := range map[string]struct {
		change func(*abi.QPInit)
		want   syscall.Errno
	}{
		"raw packet": {func(c *abi.QPInit) { c.Type = typeRawPacket }, syscall.EOPNOTSUPP},
		"driver":     {func(c *abi.QPInit) { c.Type = typeDriver }, syscall.EOPNOTSUPP},
		"GSI":        {func(c *abi.QPInit) { c.Type = 1 }, syscall.EINVAL},
		"type":       {func(c *abi.QPInit) { c.Type = 2 + 1<<8 }, syscall.EINVAL},
		"no domain":  {func(c *abi.QPInit) { c.PD = 0 }, syscall.EINVAL},
		"send queue": {func(c *abi.QPInit) { c.SendCQ = 0 }, syscall.EINVAL},
		"recv queue": {func(c *abi.QPInit) { c.RecvCQ = e.pd }, syscall.EINVAL},
		"flags":      {func(c *abi.QPInit) { c.CreateFlags = 1 << 8 }, syscall.EOPNOTSUPP},
		"many":       {func(c *abi.QPInit) { c.Cap.MaxSendWR = 1 << 30 }, syscall.EINVAL},
		"negative":   {func(c *abi.QPInit) { c.Cap.MaxRecvSGE = math.MaxUint32 }, syscall.EINVAL},
	} {
		init := e.config(roce.RC)
		c.change(&init)
		_, _, err := CreateQP(e.ctx, &init)
		wantErrno(t, name, err, c.want)
	}
}

// QueryQP must return the attributes of ModifyQP.
func TestQueryQP(t *testing.T) {
	a, b := pair(t, roce.RC)
	var got abi.QPAttr
	var caps abi.Caps
	ok(t, QueryQP(a.qp, &got, &caps))
	want := a.to(b)
	if got.AH != want {
		t.Errorf("address vector %+v, want %+v", got.AH, want)
	}
	if got.State != uint32(roce.StateRTS) || got.DestQPN != b.qpn || got.PathMTU != uint32(roce.MTU1024) || got.Timeout != 14 ||
		got.RetryCnt != 7 || got.RNRRetry != 7 || got.SQPSN != 5 || got.MaxRdAtomic != a.rdAtoms || got.Port != 1 {
		t.Errorf("attributes %+v", got)
	}
	if caps.MaxSendWR < 64 || caps != got.Cap {
		t.Errorf("sizes %+v, %+v", caps, got.Cap)
	}
	state := uint32(roce.AttrState)
	for name, c := range map[string]struct {
		attr abi.QPAttr
		mask uint32
		want syscall.Errno
	}{
		"rate limit":     {abi.QPAttr{State: uint32(roce.StateRTS)}, state | 1<<25, syscall.EOPNOTSUPP},
		"unknown":        {abi.QPAttr{State: uint32(roce.StateRTS)}, state | 1<<27, syscall.EINVAL},
		"quirk":          {abi.QPAttr{State: uint32(roce.StateRTS)}, state | uint32(roce.AttrFlushICRCQuirk), syscall.EINVAL},
		"state":          {abi.QPAttr{State: 0x100 + uint32(roce.StateErr)}, state, syscall.EINVAL},
		"sizes":          {abi.QPAttr{State: uint32(roce.StateRTS)}, state | uint32(roce.AttrCap), syscall.EINVAL},
		"back to INIT":   {abi.QPAttr{State: uint32(roce.StateInit)}, state, syscall.EINVAL},
		"alternate path": {abi.QPAttr{State: uint32(roce.StateRTS)}, state | uint32(roce.AttrAltPath), syscall.EINVAL},
	} {
		wantErrno(t, name, ModifyQP(a.qp, &c.attr, c.mask), c.want)
	}
}

// QueryQP returns the alternate path as the program loaded it.
func TestAlternatePath(t *testing.T) {
	a, b := pair(t, roce.RC)
	alt := a.to(b)
	alt.TrafficClass = 32
	ok(t, ModifyQP(a.qp, &abi.QPAttr{AltAH: alt, AltPort: 1, AltTimeout: 12, PathMigState: uint32(roce.MigRearm)},
		uint32(roce.AttrAltPath|roce.AttrPathMigState)))
	var got abi.QPAttr
	var caps abi.Caps
	ok(t, QueryQP(a.qp, &got, &caps))
	if got.AltAH != alt || got.AltPort != 1 || got.AltTimeout != 12 || got.PathMigState != uint32(roce.MigRearm) {
		t.Errorf("alternate path %+v, port %d, timeout %d, state %d", got.AltAH, got.AltPort, got.AltTimeout, got.PathMigState)
	}
	if got.AH != a.to(b) {
		t.Errorf("primary path %+v", got.AH)
	}
}

func TestMulticastRefused(t *testing.T) {
	e := newEnd(t, device0)
	group := [16]byte{10: 0xFF, 11: 0xFF, 12: 239, 15: 1}
	e.create(e.config(roce.RC))
	wantErrno(t, "RC", AttachMcast(e.qp, &group), syscall.EINVAL)
	e.create(e.config(roce.UD))
	wantErrno(t, "no group", AttachMcast(e.qp, &e.gid), syscall.EINVAL)
	wantErrno(t, "not attached", DetachMcast(e.qp, &group), syscall.EINVAL)
}

// The engine opens the ring of receives that the library shares with it, takes receives from there, and flushes those that
// the library adds too late. After the queue pair is destroyed the ring is the library's again.
func TestRecvRing(t *testing.T) {
	const slots = 4
	a, b := newEnd(t, device0), newEnd(t, device1)
	var ring struct {
		roce.RecvRingState
		slots [slots]roce.RecvSlot
	}
	init := b.config(roce.RC)
	init.RecvRing, init.RecvSlots = unsafe.Pointer(&ring), slots
	b.create(init)
	a.create(a.config(roce.RC))
	for _, e := range []*end{a, b} {
		e.init()
	}
	a.connect(roce.RC, b)
	b.connect(roce.RC, a)
	add := func(id uint64) {
		at := ring.Added.Load()
		ring.slots[at%slots] = roce.RecvSlot{ID: id, SG: [1]roce.SGE{{Addr: b.info.Addr, Length: 100, LKey: roce.LKey(b.info.LKey)}}, Elements: 1}
		ring.Added.Store(at + 1)
	}
	if ring.Open.Load() != 1 {
		t.Fatal("the ring is not open")
	}
	for id := range uint64(2 * slots) {
		add(id)
		a.send(abi.SendWR{Opcode: uint32(roce.Send), SG: a.sge(0, 10), NumSGE: 1})
		b.want(id, roce.StatusSuccess)
	}
	ok(t, ModifyQP(b.qp, &abi.QPAttr{State: uint32(roce.StateErr)}, uint32(roce.AttrState)))
	add(99)
	must[int](t)(PostRecv(b.qp, nil))
	b.want(99, roce.StatusWRFlushErr)
	if out := ring.Added.Load() - ring.Done.Load(); out != 0 || ring.Open.Load() != 0 {
		t.Errorf("%d receives are outstanding, open %d", out, ring.Open.Load())
	}
	q, err := find[*queuePair](b.qp)
	ok(t, err)
	ok(t, DestroyQP(b.qp))
	add(100)
	inside.QP(q.qp).View(func(e *qp.QP) {
		if _, recvs := e.Outstanding(); recvs != 0 {
			t.Errorf("a destroyed queue pair has %d receives", recvs)
		}
	})
}
