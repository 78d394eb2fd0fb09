package suite

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// ucTests are the tests of UC: the sender does not learn of lost or refused messages.
var ucTests = []Test{
	{Name: "TestQP/UCSend", Checks: "SENDs of every size arrive", Clean: true, Run: func(t *T) { sends(t, qp.Send, service(qp.UC)) }},
	{Name: "TestQP/UCSendImm", Checks: "immediate data arrives with messages of every size", Clean: true, Run: func(t *T) { sends(t, qp.SendImm, service(qp.UC)) }},
	{Name: "TestQP/UCWrite", Checks: "WRITEs of every size arrive", Clean: true, Run: func(t *T) {
		a, b := t.pair(service(qp.UC))
		for i, n := range sizes {
			data := a.fill(0, n, byte(i))
			a.sent(a.post(a.wr(qp.Write, 0, n, 0)))
			ucArrives(t, a, b) // after this message the WRITE has arrived, too
			b.holds(0, data)
		}
	}},
	{Name: "TestQP/UCWriteImm", Checks: "a WRITE with immediate data takes a receive and reports the length", Clean: true, Run: func(t *T) { writeImm(t, qp.UC) }},
	{Name: "TestQP/UCNoReceive", Checks: "a SEND without a receive is dropped, the next one arrives", Clean: true, Run: func(t *T) {
		a, b := t.pair(service(qp.UC))
		c, d := t.pair(service(qp.UC)) // its message arrives after the first one
		a.sent(a.post(a.wr(qp.Send, 0, 3000, 0)))
		ucArrives(t, c, d)
		ucArrives(t, a, b)
	}},
	{Name: "TestQP/UCWriteNoQPAccess", Checks: "the WRITE is dropped if the queue pair does not grant WRITEs", Clean: true, Run: ucDropped(0, func(c *config) { c.rights = 0 })},
	{Name: "TestQP/UCWriteNoAccess", Checks: "the WRITE is dropped if the region does not grant WRITEs", Clean: true, Run: ucDropped(0, func(c *config) { c.access = mr.LocalWrite })},
	{Name: "TestQP/UCWriteBadRKey", Checks: "dropped", Clean: true, Run: ucDropped(1 << 8)},
	{Name: "TestQP/UCSendTooLong", Checks: "LOC_LEN_ERR at the receiver, nothing at the sender", Clean: true, Run: func(t *T) {
		a, b := t.pair(service(qp.UC))
		r := b.recv(0, 1500)
		a.sent(a.post(a.wr(qp.Send, 0, 3000, 0)))
		b.receivedAs(r, cq.LocLenErr, rxe(cq.LocQPOpErr))
		a.inState(qp.RTS)
	}},
}

// ucArrives sends a message, which must be the next to arrive.
func ucArrives(t *T, a, b *end) {
	arrivesIn(t, a, b, b.recv(15<<10, 10))
}

func ucDropped(wrongKey bth.RKey, responder ...func(*config)) func(*T) {
	return func(t *T) {
		a, b := t.pairOf(defaults(service(qp.UC)), defaults(append(responder, service(qp.UC))...))
		before := b.fill(0, 3000, 0x42)
		w := a.wr(qp.Write, 0, 3000, 0)
		w.RKey += wrongKey
		a.sent(a.post(w))
		ucArrives(t, a, b)
		b.holds(0, before)
		b.inState(qp.RTS)
	}
}
