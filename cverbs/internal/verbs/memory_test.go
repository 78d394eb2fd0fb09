package verbs

import (
	"math"
	"os"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
)

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

// Unmapping registered memory must fail the work request, not the process.
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
