package verbs

import (
	"math"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
)

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

// siblings returns two queue pairs that share a completion queue. Both are in INIT.
func siblings(t *testing.T) (a, b *end) {
	a = newEnd(t, device0)
	other := *a
	for _, e := range []*end{a, &other} {
		e.create(e.config(roce.RC))
		e.init()
	}
	return a, &other
}

// Resetting or destroying a queue pair removes its completions, and no others.
func TestCompletionsDropped(t *testing.T) {
	for name, finish := range map[string]func(*end) error{
		"reset":   func(e *end) error { return ModifyQP(e.qp, &abi.QPAttr{}, uint32(roce.AttrState)) },
		"destroy": func(e *end) error { return DestroyQP(e.qp) },
	} {
		a, other := siblings(t)
		fail := func(e *end) { ok(t, ModifyQP(e.qp, &abi.QPAttr{State: uint32(roce.StateErr)}, uint32(roce.AttrState))) }
		fail(a)
		fail(other)
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

// A full queue raises an event, and continues to work.
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

// Unread: completions that wait count as unread until the program has polled them, also if the completions of another
// queue pair of the same queue are dropped meanwhile, or those of the queue pair itself.
func TestUnread(t *testing.T) {
	a, other := siblings(t)
	dev, err := Device(a.ctx)
	ok(t, err)
	if Unread(dev, 5) != nil {
		t.Error("a queue pair that nobody made")
	}
	for _, e := range []*end{a, other} {
		ok(t, ModifyQP(e.qp, &abi.QPAttr{State: uint32(roce.StateErr)}, uint32(roce.AttrState)))
	}
	still := Unread(dev, roce.QPN(a.qpn))
	if still() {
		t.Error("nothing waits")
	}
	other.recv(1, 0, 8)
	a.recv(2, 0, 8)
	if still() {
		t.Error("these came later")
	}
	still = Unread(dev, roce.QPN(a.qpn))
	ok(t, DestroyQP(other.qp))
	var wcs [4]abi.WC
	if !still() {
		t.Error("the other queue pair's completion was dropped, not that of a")
	}
	if n, err := PollCQ(a.cq, wcs[:]); n != 1 || err != nil || wcs[0].ID != 2 || still() {
		t.Errorf("%d completions, %v; unread %v", n, err, still())
	}
	a.recv(3, 0, 8)
	still = Unread(dev, roce.QPN(a.qpn))
	if !still() {
		t.Error("one waits")
	}
	ok(t, DestroyQP(a.qp))
	if still() || Unread(dev, roce.QPN(a.qpn)) != nil {
		t.Error("the queue pair is destroyed")
	}
}
