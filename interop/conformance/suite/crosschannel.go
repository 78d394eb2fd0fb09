package suite

import (
	"encoding/binary"

	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/qp"
)

// capCrossChannel is IB_DEVICE_CROSS_CHANNEL of device_cap_flags.
const capCrossChannel = 1 << 27

// crossTests are about cross-channel communication of the requester, with the names of the
// programs of ibverbs-tests, tests/cross-channel. The responder sees ordinary messages.
var crossTests = []Test{
	{Name: "TestCrossChannel/QueryDevice", Checks: "the device reports the capability", NeedsRequester: verbs.HasCrossChannel, Probe: probeCap(capCrossChannel), Single: true, Run: func(t *T) {
		caps := must1(t.requester.CapFlags())(t)
		expect(t, t.requester, "flag CROSS_CHANNEL", caps&capCrossChannel != 0, true)
	}},
	{Name: "TestCrossChannel/PostSendWait", Checks: "a SEND after a CQE_WAIT is sent when the peer's message has arrived", NeedsRequester: verbs.HasCrossChannel, Probe: probeCap(capCrossChannel), Run: crossWait},
	{Name: "TestCrossChannel/PostSendEn", Checks: "managed SENDs are sent in order, as many as are enabled", NeedsRequester: verbs.HasCrossChannel, Probe: probeCap(capCrossChannel), Run: crossSendEnable},
	{Name: "TestCrossChannel/PostRecvEn", Checks: "a message of the peer waits until a receive is enabled", NeedsRequester: verbs.HasCrossChannel, Probe: probeCap(capCrossChannel), Run: crossRecvEnable},
	{Name: "TestCrossChannel/PostTask", Checks: "one call posts a chain of tasks over two connections; a chain with a bad task is not posted at all", NeedsRequester: verbs.HasCrossChannel, Probe: probeCap(capCrossChannel), Run: crossTask},
	{Name: "TestCrossChannel/Calc", Checks: "the peer gets the sum of two vectors of several packets", NeedsRequester: verbs.HasCrossChannel, Probe: probeCap(capCrossChannel), Run: crossCalc},
	{Name: "TestCrossChannel/BadFlow", Checks: "EINVAL on a queue pair without cross-channel communication", NeedsRequester: verbs.HasCrossChannel, Probe: probeCap(capCrossChannel), Run: func(t *T) {
		a, _ := t.pair()
		for _, op := range []qp.Opcode{qp.CQEWait, qp.SendEnable, qp.RecvEnable} {
			w := verbs.SendWR{ID: t.id(), Op: op, WaitCQ: a.rcq.H, Enable: a.qp.H, Count: 1}
			refused(t, a, op.String(), a.PostSend(a.qp.H, w), eINVAL)
		}
	}},
}

// crossPair makes a pair whose requester has cross-channel communication.
func crossPair(t *T, with ...func(*config)) (a, b *end) {
	with = append(with, func(c *config) { c.cross = true })
	return t.pairOf(defaults(with...), defaults(func(c *config) { c.psn = 0x000123 }))
}

// waitFor and enable make signaled work requests of these operations.
func (e *end) waitFor(c verbs.CQ, n uint32) verbs.SendWR {
	return verbs.SendWR{ID: e.t.id(), Op: qp.CQEWait, Flags: qp.Signaled | qp.WaitEnLast, WaitCQ: c.H, Count: n}
}

func (e *end) enable(op qp.Opcode, of *end, n uint32) verbs.SendWR {
	return verbs.SendWR{ID: e.t.id(), Op: op, Flags: qp.Signaled, Enable: of.qp.H, Count: n}
}

func crossWait(t *T) {
	a, b := crossPair(t)
	r, rb := a.recv(0, 100), b.recv(0, 100)
	wait, send := a.waitFor(a.rcq, 1), a.wr(qp.Send, 200, 100, 0)
	a.post(wait, send)
	a.idle(a.scq)
	b.sent(b.post(b.wr(qp.Send, 200, 100, 0)))
	expect(t, a.Node, "opcode of the CQE_WAIT", a.sent(wait.ID).Opcode, cq.OpCQEWait)
	a.sent(send.ID)
	a.received(r)
	b.received(rb)
}

func crossSendEnable(t *T) {
	master, _ := crossPair(t)
	a, b := crossPair(t, func(c *config) { c.managedS = true })
	var recvs, sends []uint64
	for range 3 {
		recvs = append(recvs, b.recv(0, 100))
		sends = append(sends, a.post(a.wr(qp.Send, 0, 100, 0)))
	}
	for i, n := range []uint32{1, 2} {
		master.sent(master.post(master.enable(qp.SendEnable, a, n)))
		for _, k := range [][]int{{0}, {1, 2}}[i] {
			a.sent(sends[k])
			b.received(recvs[k])
		}
		a.idle(a.scq)
	}
}

func crossRecvEnable(t *T) {
	master, _ := crossPair(t)
	a, b := crossPair(t, func(c *config) { c.managedR = true })
	r := a.recv(0, 100)
	data := b.fill(0, 100, 3)
	s := b.post(b.wr(qp.Send, 0, 100, 0))
	b.idle(b.scq)
	master.sent(master.post(master.enable(qp.RecvEnable, a, 1)))
	b.sent(s)
	a.received(r)
	a.holds(0, data)
}

func crossTask(t *T) {
	master, _ := crossPair(t)
	a, b := crossPair(t, func(c *config) { c.managedS = true })
	tasker := a.Node.(verbs.Tasker)
	r := []uint64{b.recv(0, 100), b.recv(0, 100)}
	first, second := a.wr(qp.Send, 0, 100, 0), a.wr(qp.Send, 0, 100, 0)
	bad := verbs.Task{QP: master.qp.H, Sends: []verbs.SendWR{master.enable(qp.SendEnable, master, 1)}}
	n, err := tasker.PostTask(verbs.Task{QP: a.qp.H, Sends: []verbs.SendWR{first}}, bad)
	refused(t, a, "a task that enables what is not managed", err, eINVAL)
	expect(t, a.Node, "the bad task", n, 1)
	chain := []verbs.SendWR{master.enable(qp.SendEnable, a, 1), master.waitFor(a.scq, 1), master.enable(qp.SendEnable, a, 1), master.waitFor(a.scq, 1)}
	_, err = tasker.PostTask(verbs.Task{QP: a.qp.H, Sends: []verbs.SendWR{first, second}}, verbs.Task{QP: master.qp.H, Sends: chain})
	t.must(err)
	for _, w := range chain {
		master.sent(w.ID)
	}
	a.sent(first.ID)
	a.sent(second.ID)
	b.received(r[0])
	b.received(r[1])
	a.idle(a.scq)
}

func crossCalc(t *T) {
	const n = 4800
	a, b := crossPair(t)
	x, y := a.fill(0, n, 1), a.fill(n, n, 2)
	want := make([]byte, n)
	for i := 0; i < n; i += 8 {
		binary.BigEndian.PutUint64(want[i:], binary.BigEndian.Uint64(x[i:])+binary.BigEndian.Uint64(y[i:]))
	}
	r := b.recv(0, n)
	w := a.wr(qp.Send, 0, n, 0)
	w.SG = append(w.SG, a.mr.SGE(n, n))
	w.Flags |= qp.WithCalc
	w.Calc = qp.Calc{Op: qp.CalcAdd, Type: qp.CalcUint}
	a.sent(a.post(w))
	b.received(r)
	b.holds(0, want)
}
