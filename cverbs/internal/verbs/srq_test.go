package verbs

import (
	"os"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
)

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
	// A handle is in use while objects that were made with it exist, even if there are other handles.
	wantErrno(t, "handle with a queue pair", CloseXRCD(shared), syscall.EBUSY)
	ok(t, DestroyQP(handle))
	ok(t, CloseXRCD(shared))
	wantErrno(t, "handle with both", CloseXRCD(xrcd), syscall.EBUSY)
	ok(t, DestroyQP(b.qp))
	wantErrno(t, "handle with a shared receive queue", CloseXRCD(xrcd), syscall.EBUSY)
	ok(t, DestroySRQ(srq))
	ok(t, CloseXRCD(xrcd))
}
