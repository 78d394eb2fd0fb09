package hostile

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// config is how the target's queue pair is set up.
type config struct {
	access mr.Access // of its memory
	rights mr.Access // of the queue pair
	dest   uint8     // READs and atomics granted
	rd     uint8     // and outstanding
	caps   qp.Caps
}

const (
	memSize  = 16 << 10 // bytes of memory the peer may use
	recvSize = 2048
	mtu      = 1024
	qkey     = 0x11111111

	firstPSN  = 0xFFFFFD // of the attacker: it wraps
	targetPSN = 0x000800

	// answerLimit is how long something that must come is waited for.
	answerLimit = 10 * time.Second
)

// exchange is a case under way.
type exchange struct {
	c    Case
	set  config
	node verbs.Node
	at   *Attacker

	pd       verbs.Handle
	scq, rcq verbs.CQ
	mr       verbs.MR
	recvMR   verbs.MR
	before   []byte
	qp       verbs.QP
	ah       verbs.Handle // of the attacker, for datagrams
	own      bth.QPN      // the attacker's, as the target knows it
	psn      bth.PSN      // next expected by the target

	canary    verbs.QP // answers to show that what was sent before it has been looked at
	canaryOwn bth.QPN
	canaryPSN bth.PSN
	alive     bool // the canary's answer is here

	answers  []string
	requests []request // of the target
	ids      uint64

	stream    *stream // of good packets, if some are needed
	uncounted uint64  // what the target had counted before
}

// request is a packet the target sent on its own account.
type request struct {
	op  bth.Opcode
	psn bth.PSN
}

func newExchange(c Case, n verbs.Node, a *Attacker) *exchange {
	x := &exchange{c: c, node: n, at: a, psn: firstPSN, canaryPSN: 0x100}
	x.set = config{access: mr.LocalWrite | mr.RemoteWrite | mr.RemoteRead | mr.RemoteAtomic, rights: mr.RemoteWrite | mr.RemoteRead | mr.RemoteAtomic,
		dest: 4, rd: 4, caps: qp.Caps{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 2, MaxRecvSGE: 2}}
	if c.Set != nil {
		c.Set(&x.set)
	}
	x.pd = must1(n.AllocPD())
	x.scq, x.rcq = must1(n.CreateCQ(63, 0, 0)), must1(n.CreateCQ(63, 0, 0))
	x.mr = must1(n.RegMR(x.pd, must1(n.Alloc(memSize)), memSize, x.set.access))
	x.before = make([]byte, memSize)
	for i := range x.before {
		x.before[i] = byte(i)
	}
	must(n.WriteMem(x.mr.Addr, x.before))
	room := uint64(recvSize * max(c.Recv, 1))
	x.recvMR = must1(n.RegMR(x.pd, must1(n.Alloc(room)), room, mr.LocalWrite))
	x.canary, x.canaryOwn = x.connect(qp.RC, x.canaryPSN, mr.RemoteWrite)
	x.qp, x.own = x.connect(c.Type, x.psn, x.set.rights)
	if a.Way.Mode == Mixed {
		x.stream = x.newStream()
	}
	a.sent = 0
	x.uncounted, _ = counted(n)
	for i := range c.Recv {
		must(n.PostRecv(x.qp.H, verbs.RecvWR{ID: uint64(i), SG: []mr.SGE{x.recvMR.SGE(uint64(i*recvSize), recvSize)}}))
	}
	return x
}

// connect makes a queue pair that takes the attacker for its peer.
func (x *exchange) connect(typ qp.Type, psn bth.PSN, rights mr.Access) (verbs.QP, bth.QPN) {
	n := x.node
	x.at.qpns++
	own := 0x770000 + x.at.qpns&0xFFFF
	q := must1(n.CreateQP(verbs.QPInit{PD: x.pd, Type: typ, SendCQ: x.scq.H, RecvCQ: x.rcq.H, Caps: x.set.caps}))
	av := verbs.AH{Port: 1, DGID: x.at.Own, HopLimit: 64}
	av.SGIDIndex, _ = n.GID()
	a := &verbs.QPAttr{Port: 1, Access: rights, QKey: qkey, AV: av, PathMTU: bth.MTU1024, DestQPN: own, RQPSN: psn, SQPSN: targetPSN,
		Timeout: 20, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12, MaxRdAtomic: x.set.rd, MaxDestRdAtomic: x.set.dest}
	const (
		toInit = qp.AttrState | qp.AttrPKeyIndex | qp.AttrPort
		toRTR  = qp.AttrState | qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN
		toRTS  = qp.AttrState | qp.AttrSQPSN
		rcRTR  = qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer
		rcRTS  = qp.AttrTimeout | qp.AttrRetryCnt | qp.AttrRNRRetry | qp.AttrMaxRdAtomic
	)
	masks := [3]qp.AttrMask{toInit | qp.AttrAccess, toRTR, toRTS}
	switch typ {
	case qp.RC:
		masks[1], masks[2] = toRTR|rcRTR, toRTS|rcRTS
	case qp.UD:
		masks[0], masks[1] = toInit|qp.AttrQKey, qp.AttrState
		x.ah = must1(n.CreateAH(x.pd, av))
	}
	for i, s := range []qp.State{qp.Init, qp.RTR, qp.RTS} {
		a.State = s
		must(n.ModifyQP(q.H, a, masks[i]))
	}
	return q, own
}

// send injects packets one by one, each after what came before it has been dealt
// with.
func (x *exchange) send(packets ...packet) {
	for _, p := range packets {
		x.inject(p, x.qp.QPN, x.psn)
	}
}

// pass injects a packet that is in order and counts its PSN as used.
func (x *exchange) pass(p packet) {
	x.send(p)
	if x.at.Way.Origin == Peer { // otherwise the same one is still expected
		x.psn = x.psn.Add(1)
	}
}

// settle waits until the target has said all it has to say: it answers the canary,
// and then nothing more comes for a while.
func (x *exchange) settle() {
	x.alive = false
	x.at.queue(packet{op: bth.RCWriteOnly, ack: true, ext: reth(0, 0, 0)}, Peer, x.canary.QPN, x.canaryPSN)
	must(x.at.Port.Flush())
	x.canaryPSN = x.canaryPSN.Add(1)
	for deadline := time.Now().Add(answerLimit); !x.alive; {
		if time.Now().After(deadline) {
			giveUp("the target answers on no queue pair any more")
		}
		x.at.receive(100*time.Millisecond, x.saw)
	}
	for deadline := time.Now().Add(x.at.Quiet); time.Now().Before(deadline); {
		x.at.receive(time.Until(deadline), x.saw)
	}
}

// saw sorts a packet that came from the target.
func (x *exchange) saw(p *frame.Packet) {
	switch {
	case p.DestQPN() == x.canaryOwn:
		x.alive = true
	case p.DestQPN() != x.own:
	case p.Info.Flags&bth.Request != 0:
		x.requests = append(x.requests, request{p.Op, p.PSN()})
	default:
		x.answers = append(x.answers, x.describe(p))
	}
}

// describe puts an answer into words; its PSN is relative to the first packet of the
// case.
func (x *exchange) describe(p *frame.Packet) string {
	at := fmt.Sprintf("%+d", p.PSN().Sub(firstPSN))
	f := p.Info.Flags
	switch {
	case f&bth.Atomic != 0:
		value := fmt.Sprintf("=%#x", p.AtomicValue())
		if p.AtomicValue() == x.mr.Addr {
			value = "= the address of the memory"
		}
		return fmt.Sprintf("ATOMIC_ACK %s %s msn %d", at, value, p.MSN())
	case f&bth.Read != 0 || p.PayloadLen() > 0 || p.Op == bth.RCReadResponseOnly:
		s := fmt.Sprintf("%s %s %d B", strings.TrimPrefix(p.Info.Name, "RC READ_RESPONSE_"), at, p.PayloadLen())
		if p.Info.Headers&bth.HasAETH != 0 {
			s += fmt.Sprintf(" msn %d", p.MSN())
		}
		return "READ " + s
	}
	name := map[bth.Syndrome]string{bth.NAKSequence: "NAK sequence", bth.NAKInvalidRequest: "NAK invalid", bth.NAKRemoteAccess: "NAK access",
		bth.NAKRemoteOp: "NAK operation"}[p.Syndrome()]
	switch {
	case name != "":
	case p.Syndrome().Kind() == bth.KindRNR:
		name = "RNR"
	case p.Syndrome().Kind() == bth.KindACK:
		name = "ACK"
	default:
		name = fmt.Sprintf("syndrome %#x", uint8(p.Syndrome()))
	}
	return fmt.Sprintf("%s %s msn %d", name, at, p.MSN())
}

// post makes the target send something, and waits for its first packet; what of it
// comes at once is passed over.
func (x *exchange) post(op qp.Opcode, n uint64) bth.PSN {
	before := len(x.requests)
	x.ids++
	w := verbs.SendWR{ID: x.ids, Op: op, Flags: qp.Signaled, SG: []mr.SGE{x.mr.SGE(0, n)}, RemoteAddr: 0x1000, RKey: 0x1234, AH: x.ah, QPN: x.own, QKey: qkey}
	must(x.node.PostSend(x.qp.H, w))
	for deadline := time.Now().Add(answerLimit); len(x.requests) == before; {
		if time.Now().After(deadline) {
			giveUp("the target does not send its %v", op)
		}
		x.at.receive(100*time.Millisecond, x.saw)
	}
	x.settle()
	return x.requests[before].psn
}

// answer injects a packet with a PSN of the target's.
func (x *exchange) answer(psn bth.PSN, packets ...packet) {
	for _, p := range packets {
		x.inject(p, x.qp.QPN, psn)
	}
}

// outcome describes everything that came of the case.
func (x *exchange) outcome() string {
	out := x.answers
	for _, q := range []struct {
		name string
		h    verbs.Handle
	}{{"recv", x.rcq.H}, {"send", x.scq.H}} {
		var wcs []string
		for _, w := range must1(x.node.Poll(q.h, 32, 0)) {
			s := w.Status.String()
			if w.Status == cq.Success && w.Opcode.Recv() {
				s += fmt.Sprintf(" %d B", w.ByteLen)
			}
			if n := len(wcs); n > 0 && (wcs[n-1] == s || strings.HasPrefix(wcs[n-1], s+" ×")) {
				times := 1
				fmt.Sscanf(strings.TrimPrefix(wcs[n-1], s), " ×%d", &times)
				wcs[n-1] = fmt.Sprintf("%s ×%d", s, times+1)
				continue
			}
			wcs = append(wcs, s)
		}
		if len(wcs) > 0 {
			out = append(out, q.name+" "+strings.Join(wcs, ", "))
		}
	}
	if now := must1(x.node.ReadMem(x.mr.Addr, memSize)); !bytes.Equal(now, x.before) {
		first, last := 0, memSize-1
		for now[first] == x.before[first] {
			first++
		}
		for now[last] == x.before[last] {
			last--
		}
		out = append(out, fmt.Sprintf("memory %d…%d changed", first, last))
	}
	if a, _, err := x.node.QueryQP(x.qp.H, qp.AttrState); err != nil {
		must(err)
	} else if a.State != qp.RTS {
		out = append(out, a.State.String())
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, "; ")
}
