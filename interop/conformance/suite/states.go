package suite

import (
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/qp"
)

// eventType is an asynchronous event, with the numbers of enum ibv_event_type.
type eventType int

const (
	eventCQErr     eventType = 0
	eventReqErr    eventType = 2
	eventAccessErr eventType = 3
	eventCommEst   eventType = 4
	eventSQDrained eventType = 5
	eventPathMig   eventType = 6
	eventSRQLimit  eventType = 15
	eventLastWQE   eventType = 16
)

func (t eventType) String() string { return roce.EventType(t).String() }

// stateTests are the tests of the states of a queue pair, and of the events of state changes.
var stateTests = []Test{
	{Name: "TestQP/ErrFlushes", Checks: "a change to ERR flushes the posted work requests, in order", Run: func(t *T) {
		a, b := t.pair(func(c *config) { c.rnrTimer = 31 })
		var sends, recvs []uint64
		for range 3 {
			recvs = append(recvs, a.recv(0, 10))
			sends = append(sends, a.post(a.wr(qp.Send, 0, 10, 0))) // b is not ready
		}
		a.to(qp.Err)
		for i := range 3 {
			a.sentAs(sends[i], cq.WRFlushErr)
			a.receivedAs(recvs[i], cq.WRFlushErr)
		}
		a.inState(qp.Err)
		b.inState(qp.RTS)
	}},
	{Name: "TestQP/ErrFlushesNewSends", Checks: "work requests posted in ERR are flushed", Run: func(t *T) {
		a, _ := t.pair()
		a.to(qp.Err)
		a.sentAs(a.post(a.wr(qp.Send, 0, 10, 0)), cq.WRFlushErr)
	}},
	{Name: "TestQP/ErrFlushesUnconnected", Checks: "receives posted in INIT are flushed, too", Single: true, Run: func(t *T) {
		e := t.newEnd(t.requester, defaults())
		e.toInit()
		r := e.recv(0, 10)
		e.to(qp.Err)
		e.receivedAs(r, cq.WRFlushErr)
	}},
	{Name: "TestQP/ResetForgets", Checks: "RESET empties the queues without completions", Run: func(t *T) {
		a, b := t.pair()
		a.recv(0, 10)
		a.post(a.wr(qp.Send, 0, 10, 0)) // b is not ready
		a.to(qp.Reset)
		a.inState(qp.Reset)
		a.idle(a.scq)
		a.idle(a.rcq)
		restart(a, b)
		works(a, b)
		a.idle(a.rcq)
	}},
	{Name: "TestQP/RTRReceives", Checks: "a queue pair in RTR executes requests and answers them", Run: func(t *T) {
		a, b, r := t.pairInRTR(3000)
		data := a.fill(0, 3000, 0x11)
		a.sent(a.post(a.wr(qp.Send, 0, 3000, 0)))
		b.received(r)
		b.holds(0, data)
		b.inState(qp.RTR)
		b.toRTS()
		works(b, a)
	}},
	{Name: "TestQP/CommEst", Checks: "the event COMM_EST when the first message comes in RTR", Run: func(t *T) {
		a, b, r := t.pairInRTR(10)
		a.sent(a.post(a.wr(qp.Send, 0, 10, 0)))
		b.received(r)
		b.firstEvent(eventCommEst, rxe(eventSQDrained))
	}},
	{Name: "TestQP/AccessErrEvent", Checks: "the event QP_ACCESS_ERR at the responder of a refused WRITE", Run: func(t *T) {
		a, b := t.pair()
		w := a.wr(qp.Write, 0, 10, 0)
		w.RKey += 1 << 8
		a.answeredAs(a.post(w), cq.RemAccessErr)
		b.firstEvent(eventAccessErr, until612(eventSQDrained))
	}},
	{Name: "TestQP/ReqErrEvent", Checks: "the event QP_REQ_ERR at the responder of a request that is not allowed", Run: func(t *T) {
		a, b := t.pairOf(defaults(), defaults(func(c *config) { c.dest = 0 }))
		a.answeredAs(a.post(a.wr(qp.Read, 0, 10, 0)), cq.RemInvReqErr)
		b.firstEvent(eventReqErr, rxe(eventSQDrained))
	}},
	{Name: "TestQP/SQDrained", Checks: "the event SQ_DRAINED when all started requests are complete", Run: func(t *T) {
		a, b := t.pair()
		var ids []uint64
		for range 4 {
			b.recv(0, 5000)
			ids = append(ids, a.post(a.wr(qp.Send, 0, 5000, 0)))
		}
		a.drain()
		a.event(eventSQDrained, a.qp.H)
		a.inState(qp.SQD)
		a.to(qp.RTS)
		// Requests that were not started before are sent now; rxe sends them at the next doorbell.
		b.recv(0, 5000)
		ids = append(ids, a.post(a.wr(qp.Send, 0, 5000, 0)))
		for _, id := range ids {
			a.sent(id)
		}
	}},
	{Name: "TestQP/SQDHolds", Checks: "work requests posted in SQD are sent after the return to RTS", Run: func(t *T) {
		a, b := t.pair()
		a.drain()
		a.event(eventSQDrained, a.qp.H)
		r := b.recv(0, 100)
		id := a.post(a.wr(qp.Send, 0, 10, 0))
		works(b, a) // SQD still receives and answers
		a.idle(a.scq)
		b.idle(b.rcq)
		a.to(qp.RTS)
		wait := patience
		if is(a) {
			wait = 200 * time.Millisecond
		}
		wcs := must1(b.Poll(b.rcq.H, 1, wait))(t)
		expect(t, a.Node, "work posted in SQD is sent in RTS without another doorbell", len(wcs) == 1, true, rxe(false))
		if len(wcs) == 1 {
			a.sent(id)
			return
		}
		again, last := b.recv(0, 100), a.post(a.wr(qp.Send, 0, 10, 0))
		a.sent(id)
		a.sent(last)
		b.received(r)
		b.received(again)
	}},
	{Name: "TestQP/SQDChangesPath", Checks: "the attributes that may change in SQD change, and traffic continues", Run: func(t *T) {
		a, b := t.pair()
		a.drain()
		a.event(eventSQDrained, a.qp.H)
		v := a.attr(b)
		v.Timeout, v.RetryCnt, v.MinRNRTimer = 12, 3, 20
		t.must(a.modify(qp.SQD, v, qp.AttrState|qp.AttrAV|qp.AttrTimeout|qp.AttrRetryCnt|qp.AttrMinRNRTimer))
		a.drained()
		a.to(qp.RTS)
		got, _, err := a.QueryQP(a.qp.H, allAttrs)
		t.must(err)
		expect(t, a.Node, "timeout", got.Timeout, 12)
		expect(t, a.Node, "retries", got.RetryCnt, 3)
		expect(t, a.Node, "RNR timer", got.MinRNRTimer, bth.RNRTimer(20))
		works(a, b)
		works(b, a)
	}},
	{Name: "TestQP/CurState", Checks: "EINVAL for a CUR_STATE other than the present state", Run: func(t *T) {
		a, _ := t.pair()
		err := a.modify(qp.RTS, &verbs.QPAttr{CurState: qp.SQD}, qp.AttrState|qp.AttrCurState)
		refused(t, a, "CUR_STATE SQD in RTS", err, eINVAL, rxe(success))
		t.must(a.modify(qp.RTS, &verbs.QPAttr{CurState: qp.RTS}, qp.AttrState|qp.AttrCurState))
	}},
	{Name: "TestQP/RightsInRTS", Checks: "access rights can be removed while connected", Run: func(t *T) {
		a, b := t.pair()
		a.sent(a.post(a.wr(qp.Write, 0, 100, 0)))
		t.must(b.modify(qp.RTS, &verbs.QPAttr{}, qp.AttrState|qp.AttrAccess))
		a.answeredAs(a.post(a.wr(qp.Write, 0, 100, 0)), cq.RemInvReqErr)
	}},
	{Name: "TestCQ/OverflowReceive", Checks: "the event CQ_ERR; a receive without room for its completion puts its queue pair into ERR", Run: func(t *T) {
		a, b := t.pairOf(defaults(), defaults(func(c *config) { c.cqe = 1 }))
		for range b.rcq.Cap + 1 {
			b.recv(0, 10)
			a.post(a.wr(qp.Send, 0, 10, 0))
		}
		b.event(eventCQErr, b.rcq.H)
	}},
}

// drained waits until the send queue is drained. rxe starts to drain it again at every change to
// SQD, even if it is in SQD already, and does not leave the state until it is drained.
func (e *end) drained() {
	for range 1000 { // each query of a guest takes some time
		a, _, err := e.QueryQP(e.qp.H, allAttrs)
		if e.t.must(err); !a.Draining {
			return
		}
	}
}

// drain moves to SQD and requests the event SQ_DRAINED.
func (e *end) drain() {
	e.t.must(e.modify(qp.SQD, &verbs.QPAttr{SQDNotify: true}, qp.AttrState|qp.AttrSQDNotify))
}

// firstEvent checks which event comes first. It makes another queue pair of the side raise
// SQ_DRAINED, so that there is always an event, and a missing one needs no time limit.
func (e *end) firstEvent(want eventType, known ...deviation[eventType]) {
	t := e.t
	other := &T{requester: e.Node, responder: e.Node, nextID: 1000}
	x, _ := other.pair()
	x.t = t
	x.drain()
	v, err := e.NextEvent(patience)
	t.must(err)
	expect(t, e.Node, "first event", eventType(v.Type), want, known...)
	if v.Type == int(want) {
		expect(t, e.Node, "object of the event", v.Object, e.qp.H)
	}
}
