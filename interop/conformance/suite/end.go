package suite

import (
	"bytes"
	"slices"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// patience is the time limit for a completion that must come.
const patience = 20 * time.Second

// The default access rights of memory and queue pairs.
const (
	allRights = mr.LocalWrite | mr.RemoteWrite | mr.RemoteRead | mr.RemoteAtomic
	qpRights  = mr.RemoteWrite | mr.RemoteRead | mr.RemoteAtomic
)

// config is the configuration of an end. Tests start from [defaults].
type config struct {
	typ      qp.Type
	size     uint64    // bytes of memory
	access   mr.Access // of the memory
	rights   mr.Access // of the queue pair
	caps     qp.Caps
	sigAll   bool
	extended bool
	masked   bool
	cross    bool // cross-channel communication, if the side has it
	managedS bool // the send queue is managed
	managedR bool // the receive queue is managed
	cqe      int
	psn      bth.PSN
	qkey     bth.QKey
	mtu      bth.MTU
	timeout  uint8
	retry    uint8
	rnrRetry uint8
	rnrTimer bth.RNRTimer
	rd, dest uint8 // READs and atomics outstanding, as requester and as responder
	srq      verbs.Handle
	channel  bool
	onPD     verbs.Handle // the protection domain; 0: a new one
}

// defaults returns the default configuration, as the functions with change it. Its PSNs begin shortly before they wrap.
func defaults(with ...func(*config)) config {
	c := config{typ: qp.RC, size: 16 << 10, access: allRights, rights: qpRights, cqe: 127, psn: 0xFFFFFA, qkey: 0x11111111, mtu: bth.MTU1024,
		caps:    qp.Caps{MaxSendWR: 32, MaxRecvWR: 32, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64},
		timeout: 14, retry: 7, rnrRetry: 7, rnrTimer: 12, rd: 4, dest: 4}
	for _, f := range with {
		f(&c)
	}
	return c
}

// service and extended change the defaults: the service, and posting by the ibv_wr_* calls.
func service(typ qp.Type) func(*config) { return func(c *config) { c.typ = typ } }

func extended(c *config) { c.extended = true }

// end is one end of a transfer: a queue pair with queues and memory.
type end struct {
	verbs.Node
	t        *T
	c        config
	pd       verbs.Handle
	scq, rcq verbs.CQ
	channel  verbs.Handle
	qp       verbs.QP
	mr       verbs.MR
	peer     *end
	ah       verbs.Handle // of the peer, for datagrams
}

// newEnd makes an end in state RESET.
func (t *T) newEnd(n verbs.Node, c config) *end {
	e := &end{Node: n, t: t, c: c, pd: c.onPD}
	if e.pd == 0 {
		e.pd = must1(n.AllocPD())(t)
	}
	if c.channel {
		e.channel = must1(n.CreateChannel())(t)
	}
	e.scq = must1(n.CreateCQ(c.cqe, e.channel, 0))(t)
	e.rcq = must1(n.CreateCQ(c.cqe, e.channel, 0))(t)
	e.mr = e.register(c.size, c.access)
	e.qp = must1(n.CreateQP(e.init()))(t)
	return e
}

// init returns the parameters of the queue pair.
func (e *end) init() verbs.QPInit {
	return verbs.QPInit{PD: e.pd, Type: e.c.typ, SendCQ: e.scq.H, RecvCQ: e.rcq.H, SRQ: e.c.srq, Caps: e.c.caps, SignalAll: e.c.sigAll,
		Extended: e.c.extended, Masked: e.c.masked,
		CrossChannel: e.c.cross, ManagedSend: e.c.managedS, ManagedRecv: e.c.managedR}
}

// register allocates memory and registers it.
func (e *end) register(size uint64, access mr.Access) verbs.MR {
	addr := must1(e.Alloc(size))(e.t)
	return must1(e.RegMR(e.pd, addr, size, access))(e.t)
}

// address returns the address of the end, for its peer.
func (e *end) address() verbs.AH {
	_, gid := e.GID()
	return verbs.AH{Port: 1, DGID: gid, HopLimit: 64}
}

// toward returns the address of a peer, for packets from this end.
func (e *end) toward(to *end) verbs.AH {
	a := to.address()
	a.SGIDIndex, _ = e.GID()
	return a
}

// The attributes for the state changes of a queue pair.
const (
	initMask = qp.AttrState | qp.AttrPKeyIndex | qp.AttrPort
	rtrMask  = qp.AttrState | qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN | qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer
	rtsMask  = qp.AttrState | qp.AttrSQPSN | qp.AttrTimeout | qp.AttrRetryCnt | qp.AttrRNRRetry | qp.AttrMaxRdAtomic
	reliable = qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer | qp.AttrTimeout | qp.AttrRetryCnt | qp.AttrRNRRetry | qp.AttrMaxRdAtomic
)

// masks has the attributes that a service needs for INIT, RTR and RTS.
var masks = map[qp.Type]map[qp.State]qp.AttrMask{
	qp.RC:      {qp.Init: initMask | qp.AttrAccess, qp.RTR: rtrMask, qp.RTS: rtsMask},
	qp.UC:      {qp.Init: initMask | qp.AttrAccess, qp.RTR: rtrMask &^ reliable, qp.RTS: rtsMask &^ reliable},
	qp.UD:      {qp.Init: initMask | qp.AttrQKey, qp.RTR: qp.AttrState, qp.RTS: qp.AttrState | qp.AttrSQPSN},
	qp.XRCSend: {qp.Init: initMask | qp.AttrAccess, qp.RTR: rtrMask &^ reliable, qp.RTS: rtsMask},
	qp.XRCRecv: {qp.Init: initMask | qp.AttrAccess, qp.RTR: rtrMask, qp.RTS: qp.AttrState | qp.AttrSQPSN | qp.AttrTimeout},
}

// attr returns all attributes that are needed up to RTS; to may be nil for datagrams.
func (e *end) attr(to *end) *verbs.QPAttr {
	a := &verbs.QPAttr{Port: 1, Access: e.c.rights, QKey: e.c.qkey, PathMTU: e.c.mtu, SQPSN: e.c.psn, Timeout: e.c.timeout,
		RetryCnt: e.c.retry, RNRRetry: e.c.rnrRetry, MinRNRTimer: e.c.rnrTimer, MaxRdAtomic: e.c.rd, MaxDestRdAtomic: e.c.dest}
	if to != nil {
		a.AV, a.DestQPN, a.RQPSN = e.toward(to), to.qp.QPN, to.c.psn
		a.FlushQuirk = to.Kernel() != "" && e.c.typ == qp.RC
	}
	return a
}

func (e *end) modify(state qp.State, a *verbs.QPAttr, mask qp.AttrMask) error {
	b := *a
	b.State = state
	return e.ModifyQP(e.qp.H, &b, mask)
}

// toInit, toRTR and toRTS make one state change each.
func (e *end) toInit()       { e.step(qp.Init, nil) }
func (e *end) toRTR(to *end) { e.step(qp.RTR, to) }
func (e *end) toRTS()        { e.step(qp.RTS, nil) }

func (e *end) step(s qp.State, to *end) { e.t.must(e.modify(s, e.attr(to), masks[e.c.typ][s])) }

// to moves to a state that needs no other attributes.
func (e *end) to(s qp.State) { e.t.must(e.modify(s, &verbs.QPAttr{}, qp.AttrState)) }

func (e *end) state() qp.State {
	a, _, err := e.QueryQP(e.qp.H, qp.AttrState)
	e.t.must(err)
	return a.State
}

// restart takes both ends of a connection through RESET to RTS. It uses other PSNs, because packets
// with the old ones may still be in flight.
func restart(a, b *end) {
	for _, e := range []*end{a, b} {
		e.to(qp.Reset)
		e.drop()
		e.c.psn = (e.c.psn + 0x100000) & bth.PSNMask
	}
	join(a, b)
}

// drop polls and discards all completions.
func (e *end) drop() {
	for _, c := range []verbs.CQ{e.scq, e.rcq} {
		for len(must1(e.Poll(c.H, 16, 0))(e.t)) > 0 {
		}
	}
}

// join connects two ends in RESET.
func join(a, b *end) {
	a.peer, b.peer = b, a
	for _, e := range []*end{a, b} {
		e.toInit()
	}
	for _, e := range []*end{a, b} {
		e.toRTR(e.peer)
		e.toRTS()
	}
}

// pair makes two ends, the requester's and the responder's, and connects them. The functions with
// change the defaults.
func (t *T) pair(with ...func(c *config)) (a, b *end) {
	c := defaults(with...)
	d := c
	d.psn = 0x000123
	return t.pairOf(c, d)
}

// pairInRTR makes two ends. The requester's is in RTS, the responder's in RTR with a posted
// receive of n bytes.
func (t *T) pairInRTR(n uint64) (a, b *end, r uint64) {
	a, b = t.newEnd(t.requester, defaults()), t.newEnd(t.responder, defaults())
	a.peer, b.peer = b, a
	a.toInit()
	b.toInit()
	r = b.recv(0, n)
	b.toRTR(a)
	a.toRTR(b)
	a.toRTS()
	return a, b, r
}

// pairOf is pair with a configuration for each end.
func (t *T) pairOf(ca, cb config) (a, b *end) {
	a, b = t.newEnd(t.requester, ca), t.newEnd(t.responder, cb)
	join(a, b)
	if ca.typ == qp.UD {
		a.ah = must1(a.CreateAH(a.pd, a.toward(b)))(t)
		b.ah = must1(b.CreateAH(b.pd, b.toward(a)))(t)
	}
	return a, b
}

// id returns the next work request ID.
func (t *T) id() uint64 {
	t.nextID++
	return t.nextID
}

// wr makes a signaled work request with n bytes of the local memory at offset off, and with the
// peer's memory at offset remote.
func (e *end) wr(op qp.Opcode, off, n, remote uint64) verbs.SendWR {
	w := verbs.SendWR{ID: e.t.id(), Op: op, Flags: qp.Signaled, SG: []mr.SGE{e.mr.SGE(off, n)}}
	if e.peer != nil {
		w.RemoteAddr, w.RKey = e.peer.mr.Addr+remote, e.peer.mr.RKey
		w.AH, w.QPN, w.QKey = e.ah, e.peer.qp.QPN, e.peer.c.qkey
	}
	return w
}

// post posts work requests, which must not fail, and returns the ID of the last one.
func (e *end) post(wrs ...verbs.SendWR) uint64 {
	if e.c.extended {
		e.t.must(e.PostSendEx(e.qp.H, wrs...))
	} else {
		e.t.must(e.PostSend(e.qp.H, wrs...))
	}
	return wrs[len(wrs)-1].ID
}

// recv posts a receive of n bytes at off and returns its ID.
func (e *end) recv(off, n uint64) uint64 {
	w := verbs.RecvWR{ID: e.t.id(), SG: []mr.SGE{e.mr.SGE(off, n)}}
	e.t.must(e.PostRecv(e.qp.H, w))
	return w.ID
}

// next waits for a completion.
func (e *end) next(c verbs.CQ, what string) cq.WC {
	wcs, err := e.Poll(c.H, 1, patience)
	e.t.must(err)
	if len(wcs) == 0 {
		wcs = e.wakeUp(c, what)
	}
	return wcs[0]
}

// sent waits for the completion of a send, which must be a success.
func (e *end) sent(id uint64) cq.WC { return e.sentAs(id, cq.Success) }

// sentAs waits for the completion of a send with a status that this side determines.
func (e *end) sentAs(id uint64, want cq.Status, known ...deviation[cq.Status]) cq.WC {
	return e.completed(e.scq, "send", e.Node, id, want, known)
}

// answeredAs is the same for a status that the peer determines.
func (e *end) answeredAs(id uint64, want cq.Status, known ...deviation[cq.Status]) cq.WC {
	return e.completed(e.scq, "send", e.peer.Node, id, want, known)
}

// received waits for the completion of a receive, which must be a success.
func (e *end) received(id uint64) cq.WC { return e.receivedAs(id, cq.Success) }

func (e *end) receivedAs(id uint64, want cq.Status, known ...deviation[cq.Status]) cq.WC {
	return e.completed(e.rcq, "receive", e.Node, id, want, known)
}

// completed waits for the next completion; cause is the side whose behaviour determines
// the status.
func (e *end) completed(c verbs.CQ, what string, cause verbs.Node, id uint64, want cq.Status, known []deviation[cq.Status]) cq.WC {
	e.t.refused = e.t.refused || want != cq.Success && want != cq.WRFlushErr
	w := e.next(c, what)
	if w.ID != id {
		e.t.fatalf("%s: completion of work request %d (%v), expected that of %d", e.Label(), w.ID, w.Status, id)
	}
	if cause != e.Node {
		what += " at the requester"
	}
	expect(e.t, cause, "completion of the "+what, w.Status, want, known...)
	expect(e.t, e.Node, "queue pair of the "+what, w.QPN, e.qp.QPN)
	return w
}

// idle checks that a queue has no completion. It does not wait: the test has already waited for an
// event after which no more completions come.
func (e *end) idle(c verbs.CQ) {
	if wcs := must1(e.Poll(c.H, 1, 0))(e.t); len(wcs) > 0 {
		e.t.errorf("%s: an unexpected completion: work request %d, %v", e.Label(), wcs[0].ID, wcs[0].Status)
	}
}

// fill writes a pattern to n bytes at off and returns it.
func (e *end) fill(off, n uint64, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7) + byte(i>>8)*3 + seed
	}
	e.t.must(e.WriteMem(e.mr.Addr+off, b))
	return b
}

// holds checks that the memory at off has the bytes want.
func (e *end) holds(off uint64, want []byte) {
	got := must1(e.ReadMem(e.mr.Addr+off, uint64(len(want))))(e.t)
	if !bytes.Equal(got, want) {
		at := 0
		for got[at] == want[at] {
			at++
		}
		e.t.errorf("%s: the data differs from byte %d of %d: % x, want % x", e.Label(), at, len(want), got[at:min(at+8, len(got))], want[at:min(at+8, len(want))])
	}
}

// inState checks the state of the queue pair.
func (e *end) inState(want qp.State, known ...deviation[qp.State]) {
	got := e.state()
	awaited := func() bool {
		return got != want && !slices.ContainsFunc(known, func(d deviation[qp.State]) bool { return got == d.value })
	}
	// rxe sends a NAK before it changes the state.
	for end := time.Now().Add(patience); is(e) && awaited() && time.Now().Before(end); {
		got = e.state()
	}
	expect(e.t, e.Node, "state of the queue pair", got, want, known...)
}

// works checks that a SEND and a WRITE from a to b arrive, and that a READ returns the data.
func works(a, b *end) {
	data := a.fill(0, 1500, 0x5A)
	r := b.recv(0, 1500)
	a.sent(a.post(a.wr(qp.Send, 0, 1500, 0)))
	b.received(r)
	b.holds(0, data)
}

// event waits for an asynchronous event, and ignores others.
func (e *end) event(typ eventType, object verbs.Handle) {
	for {
		v, err := e.NextEvent(patience)
		if err != nil {
			v = e.wakeUpEvent(typ, err)
		}
		if v.Type == int(typ) {
			expect(e.t, e.Node, "object of the event", v.Object, object)
			return
		}
	}
}

// sizes of messages that need no, one or several packets, with and without padding.
var sizes = []uint64{0, 1, 100, 1024, 1025, 4096, 8191}
