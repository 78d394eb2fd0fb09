package verbs

import (
	"encoding/binary"
	"math"
	"os"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
)

func TestDevices(t *testing.T) {
	var list [1]abi.DeviceInfo
	n, err := Devices(list[:])
	if n != 2 || err != nil {
		t.Fatalf("Devices = %d, %v", n, err)
	}
	if got := string(list[0].Name[:6]); got != device0+"\x00" || list[0].GUID == 0 {
		t.Errorf("device %q, GUID %#x", got, list[0].GUID)
	}
	_, err = Open("nobody", -1)
	wantErrno(t, "open a device that is not there", err, syscall.ENODEV)
}

func TestQueries(t *testing.T) {
	e := newEnd(t, device0)
	var list [2]abi.DeviceInfo
	Devices(list[:])
	var d abi.DeviceAttr
	ok(t, QueryDevice(e.ctx, &d))
	if d.NodeGUID != list[0].GUID || d.MaxQP <= 0 || d.PhysPortCnt != 1 || d.CompVectors < 1 || d.MaxXRCD <= 0 || d.FWVer[0] == 0 {
		t.Errorf("device %+v", d)
	}
	if d.CapsEx&uint64(roce.CapFlushPersist) != 0 {
		t.Error("FLUSH_PERSISTENT is offered, though no memory is known to survive")
	}
	var p abi.PortAttr
	ok(t, QueryPort(e.ctx, 1, &p))
	if p.State != uint32(roce.PortActive) || p.LinkLayer != uint8(roce.LinkLayerEthernet) || p.GIDTableLen == 0 || p.PKeyTableLen != 1 {
		t.Errorf("port %+v", p)
	}
	wantErrno(t, "port 2", QueryPort(e.ctx, 2, &p), syscall.EINVAL)
	var g abi.GID
	ok(t, QueryGID(e.ctx, 1, 0, &g))
	if g.Raw != [16]byte{10: 0xFF, 11: 0xFF, 12: 127, 13: 77, 15: 1} || g.Type != uint32(roce.GIDTypeRoCEv2) {
		t.Errorf("GID %+v", g)
	}
	ok(t, QueryGID(e.ctx, 1, 5, &g))
	if g.Type != noGID {
		t.Errorf("GID of an empty entry %+v", g)
	}
	wantErrno(t, "GID beyond the table", QueryGID(e.ctx, 1, p.GIDTableLen, &g), syscall.EINVAL)
	if k, err := QueryPKey(e.ctx, 1, 0); k != 0xFFFF || err != nil {
		t.Errorf("P_Key %#x, %v", k, err)
	}
	_, err := QueryPKey(e.ctx, 1, 1)
	wantErrno(t, "P_Key 1", err, syscall.ENOENT)
}

// Two contexts share one device, and objects of one live when the other is closed.
func TestTwoContexts(t *testing.T) {
	a, b := newEnd(t, device0), newEnd(t, device0)
	ok(t, Close(a.ctx))
	wantErrno(t, "close twice", Close(a.ctx), syscall.EINVAL)
	_, err := AllocPD(a.ctx)
	wantErrno(t, "closed context", err, syscall.EINVAL)
	wantErrno(t, "object of a closed context", DestroyCQ(a.cq), syscall.EINVAL)
	b.create(b.config(roce.RC))
	ok(t, DestroyQP(b.qp))
	if known.devices[device0].dev == nil {
		t.Error("the device is closed while a context has it")
	}
	ok(t, Close(b.ctx)) // with all that is in it
	if known.devices[device0].dev != nil {
		t.Error("the device is open when no context has it")
	}
}

func TestWrongHandles(t *testing.T) {
	e := newEnd(t, device0)
	for _, h := range []abi.Handle{0, e.ctx, e.pd, e.mr, math.MaxUint32} {
		_, err := PollCQ(h, nil)
		wantErrno(t, "poll", err, syscall.EINVAL)
		_, err = PostSend(h, nil)
		wantErrno(t, "post", err, syscall.EINVAL)
		wantErrno(t, "destroy", DestroyQP(h), syscall.EINVAL)
	}
	wantErrno(t, "domain in use", DeallocPD(e.pd), syscall.EBUSY)
	ok(t, DeregMR(e.mr))
	ok(t, DeallocPD(e.pd))
	wantErrno(t, "again", DeallocPD(e.pd), syscall.EINVAL)
}

func TestRegMR(t *testing.T) {
	e := newEnd(t, device0)
	addr := addressOf(e.mem)
	page := uint64(os.Getpagesize())
	hole := foreign(t, int(3*page))
	ok(t, syscall.Mprotect(hole[page:2*page], syscall.PROT_READ))
	readOnly := addressOf(hole) + page
	local, remoteWrite := uint32(roce.LocalWrite), uint32(roce.RemoteWrite)
	for _, c := range []struct {
		name         string
		addr, length uint64
		access       uint32
		want         syscall.Errno
	}{
		{"good", addr, memoryLen, local, 0},
		{"hints", addr, 1, local | 1<<20 | 1<<29, 0},
		{"no length", addr, 0, local, syscall.EINVAL},
		{"no length of device memory", addr, 0, local | uint32(roce.ZeroBased), 0},
		{"wraps", addr, math.MaxUint64 - 100, local, syscall.EINVAL},
		{"implicit on demand", 0, math.MaxUint64, local | uint32(roce.OnDemand), syscall.EINVAL},
		{"on demand", addr, memoryLen, local | uint32(roce.OnDemand), syscall.EOPNOTSUPP},
		{"null", 0, 100, local, syscall.EFAULT},
		{"not mapped", 1 << 20, 100, local, syscall.EFAULT},
		{"beyond the user's", 1 << 62, 100, local, syscall.EFAULT},
		{"remote write only", addr, memoryLen, remoteWrite, syscall.EINVAL},
		{"unknown right", addr, memoryLen, local | 1<<15, syscall.EINVAL},
		{"watched", addr, memoryLen, local | 1<<31, syscall.EINVAL},
		{"persistent", addr, memoryLen, local | uint32(roce.FlushPersistent), syscall.EINVAL},
		{"read-only", readOnly, page, 0, 0},
		{"read-only to write", readOnly, page, local, syscall.EFAULT},
	} {
		var info abi.MRInfo
		h, err := RegMR(e.pd, c.addr, c.length, c.addr, c.access, &info)
		wantErrno(t, c.name, err, c.want)
		if err == nil {
			if c.length > 0 && info.Addr != c.addr || info.Length != c.length || info.LKey == 0 {
				t.Errorf("%s: %+v", c.name, info)
			}
			ok(t, DeregMR(h))
		}
	}
}

func TestReregMR(t *testing.T) {
	e := newEnd(t, device0)
	other := foreign(t, 4096)
	info := e.info
	ok(t, ReregMR(e.mr, &abi.Rereg{Flags: 1, Addr: addressOf(other), Length: 4096, IOVA: addressOf(other)}, &info))
	if info.Addr != addressOf(other) || info.Length != 4096 {
		t.Errorf("region %+v", info)
	}
	pd := must[abi.Handle](t)(AllocPD(e.ctx))
	ok(t, ReregMR(e.mr, &abi.Rereg{Flags: 2 | 4, PD: pd, Access: uint32(roce.LocalWrite)}, &info))
	ok(t, DeallocPD(e.pd))
	wantErrno(t, "domain that it is in now", DeallocPD(pd), syscall.EBUSY)
	for _, bad := range []abi.Rereg{{}, {Flags: 8}, {Flags: 2}, {Flags: 1}, {Flags: 4, Access: 1 << 31}} {
		wantErrno(t, "rereg", ReregMR(e.mr, &bad, &info), syscall.EINVAL)
	}
}

func TestNullMR(t *testing.T) {
	a, b := pair(t, roce.RC)
	var info abi.MRInfo
	null := must[abi.Handle](t)(RegNullMR(b.pd, &info))
	if info.Length != math.MaxUint64 || info.LKey == 0 {
		t.Errorf("region %+v", info)
	}
	list := []abi.SGE{{Addr: 99, Length: 3, LKey: info.LKey}, *b.sge(0, 10)}
	if n, err := PostRecv(b.qp, []abi.RecvWR{{ID: 1, SG: &list[0], NumSGE: 2}}); n != 1 {
		t.Fatal(err)
	}
	copy(a.mem, "abcdef")
	a.send(abi.SendWR{ID: 2, Opcode: uint32(roce.Send), SG: a.sge(0, 6), NumSGE: 1})
	a.want(2, roce.StatusSuccess)
	b.want(1, roce.StatusSuccess)
	if got := string(b.mem[:3]); got != "def" {
		t.Errorf("received %q", got)
	}
	wantErrno(t, "rereg", ReregMR(null, &abi.Rereg{Flags: 4}, &info), syscall.EINVAL)
	ok(t, DeregMR(null))
}

// Memory that goes away while it is registered must fail the work request, not the process.
func TestUnmapped(t *testing.T) {
	a, b := pair(t, roce.RC)
	gone := must[[]byte](t)(syscall.Mmap(-1, 0, 8192, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE))
	var info abi.MRInfo
	addr := addressOf(gone)
	must[abi.Handle](t)(RegMR(b.pd, addr, 8192, addr, allAccess, &info))
	ok(t, syscall.Mprotect(gone, syscall.PROT_NONE))
	defer syscall.Munmap(gone)
	a.send(abi.SendWR{ID: 1, Opcode: uint32(roce.Write), SG: a.sge(0, 100), NumSGE: 1, RemoteAddr: addr, RKey: info.RKey})
	a.want(1, roce.StatusRemAccessErr)

	a, b = pair(t, roce.RC)
	must[abi.Handle](t)(RegMR(a.pd, addressOf(a.mem), 4096, addressOf(a.mem), allAccess, &info))
	ok(t, syscall.Mprotect(a.mem[:4096], syscall.PROT_NONE))
	a.send(abi.SendWR{ID: 2, Opcode: uint32(roce.Write), SG: &abi.SGE{Addr: addressOf(a.mem), Length: 100, LKey: info.LKey}, NumSGE: 1,
		RemoteAddr: b.info.Addr, RKey: b.info.RKey})
	a.want(2, roce.StatusLocProtErr)
}

func TestWindows(t *testing.T) {
	a, b := pair(t, roce.RC)
	mw, key, err := AllocMW(b.pd, 1)
	ok(t, err)
	bind := abi.SendWR{ID: 3, MW: mw, MR: b.mr, BindAddr: b.info.Addr, BindLength: 4096, BindAccess: uint32(roce.RemoteWrite), Flags: uint32(roce.Signaled)}
	got := must[uint32](t)(BindMW(b.qp, &bind))
	if got>>8 != key>>8 || got == key {
		t.Errorf("key %#x after %#x", got, key)
	}
	if wc := b.want(3, roce.StatusSuccess); wc.Opcode != uint32(roce.WCBindMW) {
		t.Errorf("completion of opcode %d", wc.Opcode)
	}
	if k := must[uint32](t)(MWRKey(mw)); k != got {
		t.Errorf("key %#x, want %#x", k, got)
	}
	write := abi.SendWR{ID: 1, Opcode: uint32(roce.Write), SG: a.sge(0, 100), NumSGE: 1, RemoteAddr: b.info.Addr, RKey: got}
	a.send(write)
	a.want(1, roce.StatusSuccess)
	wantErrno(t, "region of a window", DeregMR(b.mr), syscall.EBUSY)
	ok(t, DeallocMW(mw))

	mw, key, err = AllocMW(b.pd, 2)
	ok(t, err)
	_, err = BindMW(b.qp, &bind)
	wantErrno(t, "ibv_bind_mw of a dead window", err, syscall.EINVAL)
	bind.MW, bind.Opcode, bind.NewRKey = mw, uint32(roce.BindMW), uint32(roce.IncRKey(roce.RKey(key)))
	_, err = BindMW(b.qp, &bind)
	wantErrno(t, "ibv_bind_mw of type 2", err, syscall.EINVAL)
	b.send(bind)
	b.want(3, roce.StatusSuccess)
	write.RKey = bind.NewRKey
	a.send(write)
	a.want(1, roce.StatusSuccess)
	b.send(abi.SendWR{ID: 4, Opcode: uint32(roce.LocalInv), Imm: bind.NewRKey})
	b.want(4, roce.StatusSuccess)
	a.send(write)
	a.want(1, roce.StatusRemAccessErr)
	_, _, err = AllocMW(b.pd, 3)
	wantErrno(t, "type 3", err, syscall.EINVAL)
}

// Each event of a channel adds to the eventfd, and names the queue by its cookie.
func TestChannel(t *testing.T) {
	a, b := newEnd(t, device0), newEnd(t, device1)
	fd := eventfd(t)
	ch := must[abi.Handle](t)(CreateChannel(b.ctx, fd))
	const cookie = 0xAABBCCDD11223344
	cq, _, err := CreateCQ(b.ctx, 16, ch, 0, cookie)
	ok(t, err)
	b.cq = cq
	for _, e := range []*end{a, b} {
		e.create(e.config(roce.RC))
		e.init()
	}
	a.connect(roce.RC, b)
	b.connect(roce.RC, a)
	b.recv(1, 0, 100)
	_, err = ChannelEvent(ch)
	wantErrno(t, "no event", err, syscall.EAGAIN)
	ok(t, RequestNotify(cq, false))
	a.send(abi.SendWR{Opcode: uint32(roce.Send), SG: a.sge(0, 10), NumSGE: 1})
	readable(t, fd)
	if n := counted(fd); n != 1 {
		t.Errorf("the eventfd is %d", n)
	}
	if c, err := ChannelEvent(ch); c != cookie || err != nil {
		t.Errorf("event of %#x, %v", c, err)
	}
	b.want(1, roce.StatusSuccess)
	wantErrno(t, "channel in use", DestroyChannel(ch), syscall.EBUSY)
	wantErrno(t, "queue in use", DestroyCQ(cq), syscall.EBUSY)
	ok(t, DestroyQP(b.qp))
	ok(t, DestroyCQ(cq))
	ok(t, DestroyChannel(ch))
}

func TestSharedQueue(t *testing.T) {
	a, b := newEnd(t, device0), newEnd(t, device1)
	init := abi.SRQInit{PD: b.pd, MaxWR: 10, MaxSGE: 1, Limit: 2, Cookie: 0x5151}
	srq, _, err := CreateSRQ(b.ctx, &init)
	ok(t, err)
	if init.MaxWR < 10 || init.Limit != 2 {
		t.Errorf("granted %+v", init)
	}
	c := b.config(roce.RC)
	c.SRQ = srq
	b.create(c)
	a.create(a.config(roce.RC))
	for _, e := range []*end{a, b} {
		e.init()
	}
	a.connect(roce.RC, b)
	b.listen(roce.RC, a) // and the first message raises COMM_EST
	wrs := []abi.RecvWR{{ID: 1, SG: b.sge(0, 64), NumSGE: 1}, {ID: 2, SG: b.sge(64, 64), NumSGE: 1}, {ID: 3, NumSGE: 2, SG: b.sge(0, 1)}}
	n, err := PostSRQRecv(srq, wrs)
	if n != 2 {
		t.Errorf("posts %d, want 2", n)
	}
	wantErrno(t, "too many elements", err, syscall.EINVAL)
	a.send(abi.SendWR{Opcode: uint32(roce.Send), SG: a.sge(0, 10), NumSGE: 1})
	b.want(1, roce.StatusSuccess)
	got := map[abi.Event]bool{b.event(): true, b.event(): true}
	for _, want := range []abi.Event{{Type: uint32(roce.EventCommEst), Cookie: 7}, {Type: uint32(roce.EventSRQLimit), Cookie: 0x5151}} {
		if !got[want] {
			t.Errorf("no event %+v: %v", want, got)
		}
	}
	if _, _, lim, err := QuerySRQ(srq); lim != 0 || err != nil {
		t.Errorf("limit %d, %v", lim, err)
	}
	ok(t, ModifySRQ(srq, uint32(roce.SRQMaxWR|roce.SRQLimit), 100, 1))
	if wr, _, lim, err := QuerySRQ(srq); wr < 100 || lim != 1 || err != nil {
		t.Errorf("%d receives, limit %d, %v", wr, lim, err)
	}
	wantErrno(t, "mask", ModifySRQ(srq, 4, 0, 0), syscall.EINVAL)
	wantErrno(t, "in use", DestroySRQ(srq), syscall.EBUSY)
	_, _, err = CreateSRQ(b.ctx, &abi.SRQInit{PD: b.pd, MaxWR: 10, MaxSGE: 1, Type: srqTM})
	wantErrno(t, "tag matching", err, syscall.EOPNOTSUPP)
}

// event waits for an asynchronous event.
func (e *end) event() (out abi.Event) {
	e.t.Helper()
	for NextEvent(e.ctx, &out) != nil {
		readable(e.t, e.fd)
		counted(e.fd)
	}
	return out
}

// An event of a queue pair goes to the context that made it, and none comes once it is destroyed.
func TestEvents(t *testing.T) {
	a, b := pair(t, roce.RC)
	other := newEnd(t, device1)
	a.send(abi.SendWR{ID: 1, Opcode: uint32(roce.Write), SG: a.sge(0, 8), NumSGE: 1, RemoteAddr: b.info.Addr, RKey: b.info.RKey ^ 1})
	a.want(1, roce.StatusRemAccessErr)
	for {
		e := b.event()
		if e.Cookie != 7 {
			t.Errorf("event %+v of no queue pair", e)
		}
		if e.Type == uint32(roce.EventAccessErr) {
			break
		}
	}
	var e abi.Event
	wantErrno(t, "another context", NextEvent(other.ctx, &e), syscall.EAGAIN)
	q := must[*queuePair](t)(find[*queuePair](b.qp))
	for counted(b.fd) > 0 {
	}
	q.raise(roce.EventLastWQE)
	ok(t, DestroyQP(b.qp))
	if counted(b.fd) != 0 {
		t.Error("the eventfd tells of an event that was dropped")
	}
	q.raise(roce.EventLastWQE)
	wantErrno(t, "destroyed queue pair", NextEvent(b.ctx, &e), syscall.EAGAIN)
}

func TestXRC(t *testing.T) {
	a, b := newEnd(t, device0), newEnd(t, device1)
	file := must[*os.File](t)(os.CreateTemp(t.TempDir(), "xrc"))
	defer file.Close()
	fd := int(file.Fd())
	_, err := OpenXRCD(b.ctx, fd, 0)
	wantErrno(t, "not there, not to be created", err, syscall.EAGAIN)
	xrcd := must[abi.Handle](t)(OpenXRCD(b.ctx, fd, os.O_CREATE))
	_, err = OpenXRCD(b.ctx, fd, os.O_CREATE|os.O_EXCL)
	wantErrno(t, "there already", err, syscall.EINVAL)
	second := newEnd(t, device1)
	shared := must[abi.Handle](t)(OpenXRCD(second.ctx, fd, os.O_CREATE))

	init := abi.SRQInit{PD: b.pd, XRCD: xrcd, CQ: b.cq, Type: srqXRC, MaxWR: 16, MaxSGE: 1}
	srq, srqn, err := CreateSRQ(b.ctx, &init)
	ok(t, err)
	target := abi.QPInit{XRCD: xrcd, Type: uint32(roce.XRCRecv), Cookie: 1}
	b.create(target)
	a.create(a.config(roce.XRCSend))
	for _, e := range []*end{a, b} {
		e.init()
	}
	a.connect(roce.XRCSend, b)
	b.listen(roce.XRCRecv, a)
	handle := must[abi.Handle](t)(OpenQP(shared, b.qpn, 2))
	n, err := PostSRQRecv(srq, []abi.RecvWR{{ID: 5, SG: b.sge(0, 64), NumSGE: 1}})
	if n != 1 {
		t.Fatal(n, err)
	}
	a.send(abi.SendWR{ID: 6, Opcode: uint32(roce.Send), SG: a.sge(0, 10), NumSGE: 1, SRQN: srqn})
	a.want(6, roce.StatusSuccess)
	if wc := b.want(5, roce.StatusSuccess); wc.QPN != b.qpn {
		t.Errorf("completion of queue pair %#x, want %#x", wc.QPN, b.qpn)
	}
	if e := b.event(); e.Cookie != 1 {
		t.Errorf("event %+v", e)
	}
	if e := second.event(); e.Cookie != 2 {
		t.Errorf("event %+v of the other handle", e)
	}
	wantErrno(t, "domain in use", CloseXRCD(xrcd), 0) // another context has it
	ok(t, DestroyQP(b.qp))
	wantErrno(t, "domain in use", CloseXRCD(shared), syscall.EBUSY)
	ok(t, DestroyQP(handle))
	ok(t, DestroySRQ(srq))
	ok(t, CloseXRCD(shared))
}

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

// QueryQP must say what ModifyQP was given.
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

// An alternate path is told as it was loaded.
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

// A queue pair that is reset or destroyed takes its completions along, and no others.
func TestCompletionsDropped(t *testing.T) {
	for name, finish := range map[string]func(*end) error{
		"reset":   func(e *end) error { return ModifyQP(e.qp, &abi.QPAttr{}, uint32(roce.AttrState)) },
		"destroy": func(e *end) error { return DestroyQP(e.qp) },
	} {
		a := newEnd(t, device0)
		a.create(a.config(roce.RC))
		a.init()
		other := *a
		other.create(other.config(roce.RC))
		other.init()
		fail := func(e *end) { ok(t, ModifyQP(e.qp, &abi.QPAttr{State: uint32(roce.StateErr)}, uint32(roce.AttrState))) }
		fail(a)
		fail(&other)
		for i := range uint64(20) {
			a.recv(100+i, 0, 8)
			other.recv(i, 0, 8)
		}
		ok(t, finish(a))
		other.recv(20, 0, 8)
		var wcs [7]abi.WC
		for i := uint64(0); i <= 20; {
			n, err := PollCQ(a.cq, wcs[:])
			if n == 0 || err != nil {
				t.Fatalf("%s: %d of 21 completions, %v", name, i, err)
			}
			for _, wc := range wcs[:n] {
				if wc.ID != i || wc.QPN != other.qpn {
					t.Fatalf("%s: completion %d of queue pair %#x, want %d of %#x", name, wc.ID, wc.QPN, i, other.qpn)
				}
				i++
			}
		}
		if n, _ := PollCQ(a.cq, wcs[:]); n != 0 {
			t.Errorf("%s: %d more completions", name, n)
		}
	}
}

// A queue that is full tells so by an event, and keeps working.
func TestOverflow(t *testing.T) {
	a, b := pair(t, roce.RC)
	cq, got, err := CreateCQ(a.ctx, 1, 0, 0, 0xC0)
	ok(t, err)
	init := a.config(roce.RC)
	init.SendCQ, init.RecvCQ = cq, cq
	a.create(init)
	b.create(b.config(roce.RC))
	for _, e := range []*end{a, b} {
		e.init()
	}
	a.connect(roce.RC, b)
	b.connect(roce.RC, a)
	for range got + 3 {
		a.send(abi.SendWR{Opcode: uint32(roce.Write), RemoteAddr: b.info.Addr, RKey: b.info.RKey})
	}
	if e := a.event(); e.Type != uint32(roce.EventCQErr) || e.Cookie != 0xC0 {
		t.Errorf("event %+v", e)
	}
	if _, err := ResizeCQ(cq, 64); err != nil {
		t.Error(err)
	}
	_, err = ResizeCQ(cq, 0)
	wantErrno(t, "no entries", err, syscall.EINVAL)
	_, _, err = CreateCQ(a.ctx, math.MaxUint32, 0, 0, 0)
	wantErrno(t, "many entries", err, syscall.EINVAL)
	_, _, err = CreateCQ(a.ctx, 1, 0, 99, 0)
	wantErrno(t, "vector", err, syscall.EINVAL)
}

func TestSignal(t *testing.T) {
	fd := eventfd(t)
	signal(fd)
	signal(fd)
	if n := counted(fd); n != 1 {
		t.Errorf("read %d of a semaphore", n)
	}
	unsignal(fd, 3) // must not wait
	if n := counted(fd); n != 0 {
		t.Errorf("the eventfd is %d, want 0", n)
	}
	var full [8]byte
	binary.NativeEndian.PutUint64(full[:], math.MaxUint64-1)
	syscall.Write(fd, full[:])
	signal(fd) // must not wait
}
