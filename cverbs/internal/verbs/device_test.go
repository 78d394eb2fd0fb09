package verbs

import (
	"errors"
	"fmt"
	"math"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/handle"
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

// Two contexts share one device, and objects of one survive the closing of the other.
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
	ok(t, Close(b.ctx)) // with all its objects
	if known.devices[device0].dev != nil {
		t.Error("the device is open when no context has it")
	}
}

func TestWrongHandles(t *testing.T) {
	e := newEnd(t, device0)
	for _, h := range []abi.Handle{0, e.ctx, e.pd, e.mr, math.MaxUint32} {
		_, err := PollCQ(h, nil)
		wantErrno(t, "poll", err, syscall.EINVAL)
		_, _, err = PostSend(h, nil, 1)
		wantErrno(t, "post", err, syscall.EINVAL)
		wantErrno(t, "destroy", DestroyQP(h), syscall.EINVAL)
	}
	wantErrno(t, "domain in use", DeallocPD(e.pd), syscall.EBUSY)
	ok(t, DeregMR(e.mr))
	ok(t, DeallocPD(e.pd))
	wantErrno(t, "again", DeallocPD(e.pd), syscall.EINVAL)
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

// An event of a queue pair goes to the context that made it. A destroyed queue pair raises no event.
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
		t.Error("the eventfd still counts an event that was dropped")
	}
	q.raise(roce.EventLastWQE)
	wantErrno(t, "destroyed queue pair", NextEvent(b.ctx, &e), syscall.EAGAIN)
}

func TestErrno(t *testing.T) {
	for _, c := range []struct {
		err  error
		want syscall.Errno
	}{
		{nil, 0},
		{syscall.ENOMEM, syscall.ENOMEM},
		{fmt.Errorf("why: %w", syscall.EBUSY), syscall.EBUSY},
		{roce.ErrClosed, syscall.EINVAL},
		{roce.ErrNoDevice, syscall.ENODEV},
		{handle.ErrFull, syscall.ENOMEM},
		{errors.New("no reason"), syscall.EINVAL},
	} {
		if got := Errno(c.err); got != c.want {
			t.Errorf("%v: errno %v, want %v", c.err, got, c.want)
		}
	}
}
