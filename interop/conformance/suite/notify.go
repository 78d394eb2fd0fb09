package suite

import (
	"net/netip"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/qp"
)

// notifyTests are the tests of completion channels and of the size of completion queues:
// pyverbs test_cq_events, test_cq.
var notifyTests = []Test{
	{Name: "TestCQEvents/RC", Checks: "an event after each request for notification", Needs: verbs.HasChannels, Run: func(t *T) { cqEvents(t, qp.RC) }},
	{Name: "TestCQEvents/UD", Checks: "an event after each request for notification", Clean: true, Needs: verbs.HasChannels, Run: func(t *T) { cqEvents(t, qp.UD) }},
	{Name: "TestCQEvents/Once", Checks: "one event for several completions, until notification is requested again", Needs: verbs.HasChannels, Run: func(t *T) {
		a, b := t.pair(func(c *config) { c.channel = true })
		t.must(b.ReqNotify(b.rcq.H, false))
		for range 3 {
			r := b.recv(0, 100)
			a.sent(a.post(a.wr(qp.Send, 0, 10, 0)))
			b.received(r)
		}
		b.cqEvent(b.rcq)
		b.noCQEvent()
	}},
	{Name: "TestCQEvents/Solicited", Checks: "only a solicited message raises the event, if only these were requested", Needs: verbs.HasChannels, Run: func(t *T) {
		a, b := t.pair(func(c *config) { c.channel = true })
		t.must(b.ReqNotify(b.rcq.H, true))
		for _, flag := range []qp.SendFlags{0, qp.Solicited} {
			r := b.recv(0, 100)
			w := a.wr(qp.Send, 0, 10, 0)
			w.Flags |= flag
			a.sent(a.post(w))
			b.received(r)
			if flag == 0 {
				b.noCQEvent()
			}
		}
		b.cqEvent(b.rcq)
	}},
	{Name: "TestCQEvents/SolicitedError", Checks: "a completion with an error always counts as solicited", Needs: verbs.HasChannels, Run: func(t *T) {
		a, _ := t.pair(func(c *config) { c.channel = true })
		t.must(a.ReqNotify(a.rcq.H, true))
		r := a.recv(0, 100)
		a.to(qp.Err)
		a.receivedAs(r, cq.WRFlushErr)
		wait := patience
		if is(a, "6.12", "7") {
			wait = time.Second
		}
		_, err := a.CQEvent(a.channel, wait)
		expect(t, a.Node, "an event for a receive that is flushed", err == nil, true, since612(false))
	}},
	{Name: "TestCQ/DestroyChannelBusy", Checks: "EBUSY while a completion queue uses the channel", Single: true, Needs: verbs.HasChannels, Run: func(t *T) {
		n := t.requester
		ch := must1(n.CreateChannel())(t)
		c := must1(n.CreateCQ(10, ch, 0))(t)
		refused(t, n, "destroying the channel", n.DestroyChannel(ch), eBUSY)
		t.must(n.DestroyCQ(c.H))
		t.must(n.DestroyChannel(ch))
	}},
	{Name: "TestCQ/Resize", Checks: "the queue grows and shrinks; EINVAL for fewer entries than it holds, for 0 and for too many", Clean: true, Needs: verbs.HasResizeCQ, Run: func(t *T) {
		a, _ := t.pair(func(c *config) { c.typ, c.cqe = qp.UD, 3 })
		resize := func(n int) {
			if got := must1(a.ResizeCQ(a.scq.H, n))(t); got < n {
				t.errorf("%s: %d entries after asking for %d", a.Label(), got, n)
			}
		}
		resize(1)
		resize(7)
		var last uint64
		for range 6 {
			last = a.post(a.wr(qp.Send, 0, 10, 0))
		}
		// After a seventh send, on another queue pair, has completed, the six completions
		// are in the first queue. So shrinking that queue must fail.
		c, _ := t.pair(service(qp.UD))
		c.sent(c.post(c.wr(qp.Send, 0, 10, 0)))
		_, err := a.ResizeCQ(a.scq.H, 1)
		refused(t, a, "shrinking below what it holds", err, eINVAL)
		for _, n := range []int{0, 1 << 26} {
			_, err := a.ResizeCQ(a.scq.H, n)
			refused(t, a, "resizing to that", err, eINVAL)
		}
		for id := last - 5; id <= last; id++ {
			a.sent(id)
		}
	}},
	{Name: "TestMulticast/Attach", Checks: "a second attach has no effect; EINVAL for an address that is no group, for an RC queue pair, and for detaching without an attach", Single: true, Needs: verbs.HasMulticast, Run: attach},
	{Name: "TestMulticast/Traffic", Checks: "each attached queue pair gets a copy, a detached one gets none", Clean: true, Needs: verbs.HasMulticast, Run: multicastTraffic},
}

func cqEvents(t *T, typ qp.Type) {
	a, b := t.pair(func(c *config) { c.typ, c.channel = typ, true })
	for range 10 {
		t.must(a.ReqNotify(a.scq.H, false))
		t.must(b.ReqNotify(b.rcq.H, false))
		r := b.recv(0, 1000)
		id := a.post(a.wr(qp.Send, 0, 500, 0))
		a.cqEvent(a.scq)
		a.sent(id)
		b.cqEvent(b.rcq)
		b.received(r)
	}
}

// cqEvent waits for an event of a queue.
func (e *end) cqEvent(c verbs.CQ) {
	h, err := e.CQEvent(e.channel, patience)
	e.t.must(err)
	expect(e.t, e.Node, "queue of the event", h, c.H)
}

// noCQEvent checks that there is no event. The test has already polled every completion that could
// have raised one.
func (e *end) noCQEvent() {
	if h, err := e.CQEvent(e.channel, time.Millisecond); errno(verbs.Errno(err)) != eAGAIN {
		e.t.errorf("%s: an unexpected event of queue %d (%v)", e.Label(), h, err)
	}
}

// group is the multicast group of the tests. The guest's IP stack must join it separately, because
// rxe does not do that.
var group = bth.GIDFrom(netip.MustParseAddr("239.78.1.2"))

func attach(t *T) {
	e := t.newEnd(t.requester, defaults(service(qp.UD)))
	t.must(e.AttachMcast(e.qp.H, group))
	t.must(e.AttachMcast(e.qp.H, group))
	t.must(e.DetachMcast(e.qp.H, group))
	refused(t, e, "detaching what is not attached", e.DetachMcast(e.qp.H, group), eINVAL)
	_, own := e.GID()
	refused(t, e, "attaching to no group", e.AttachMcast(e.qp.H, own), eINVAL)
	rc := t.newEnd(t.requester, defaults())
	refused(t, rc, "attaching an RC queue pair", rc.AttachMcast(rc.qp.H, group), eINVAL)
}

func multicastTraffic(t *T) {
	a, b := t.pair(service(qp.UD))
	_, c := t.pair(service(qp.UD))
	for _, e := range []*end{b, c} {
		t.must(e.AttachMcast(e.qp.H, group))
	}
	to := a.toward(b)
	to.DGID = group
	ah := must1(a.CreateAH(a.pd, to))(t)
	send := func() {
		w := a.wr(qp.SendImm, 0, 100, 0)
		w.AH, w.QPN, w.Imm = ah, bth.QPNMulticast, 0x3C
		a.sent(a.post(w))
	}
	data := a.fill(0, 100, 0x77)
	rb, rc := b.recv(0, 200), c.recv(0, 200)
	send()
	for e, r := range map[*end]uint64{b: rb, c: rc} {
		got := e.received(r)
		checkRecv(t, e, got, cq.OpRecv, 100+grh)
		checkImm(t, e, got, 0x3C)
		expect(t, e.Node, "sender", got.SrcQPN, a.qp.QPN)
		e.holds(grh, data)
	}
	t.must(c.DetachMcast(c.qp.H, group))
	rb = b.recv(0, 200)
	c.recv(0, 200)
	send()
	b.received(rb)
	c.idle(c.rcq)
	t.must(b.DetachMcast(b.qp.H, group))
}
