package qp

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
)

// message is the kind of multi-packet request in progress.
type message uint8

const (
	noMessage message = iota
	sendMessage
	writeMessage
)

// responder is the answering half of an RC queue pair.
type responder struct {
	expect  bth.PSN // next PSN
	msn     bth.MSN // messages completed
	nakSent bool    // a NAK for expect is out: say nothing until expect arrives
	ahead   bth.PSN // last one beyond expect, since then
	nakAt   bth.PSN // the one the NAK was sent for
	nakLeft uint8   // how often it may be repeated
	acked   bth.PSN // latest PSN that an ACKNOWLEDGE may name: not that of a READ or atomic

	established bool // COMM_EST has been raised

	minRNR  bth.RNRTimer
	granted int // MaxDestRdAtomic as set

	pd        *mr.PD   // domain of the memory that the request at hand names
	trail     mr.Trail // of the keys of requests
	in        message  // request in progress
	recv      recvWQE  // the receive in use, if held: off its queue, not completed yet
	held      bool
	srq       *SRQ   // where the message at hand takes its receive from; nil: the own queue
	from      *SRQ   // where the one in use was taken from
	received  uint32 // bytes of the SEND in progress
	scatter   cursor
	writeVA   uint64 // where the WRITE in progress continues
	writeKey  bth.RKey
	writeLeft uint32
	writeLen  uint32 // RETH length, reported by WRITE with immediate

	answers answerQueue
	saved   savedRing
}

// nakRepeats is how often a sequence NAK may be repeated because packets behind
// the gap go on to come and ask for an acknowledgement: the NAK may have been
// lost, and then the requester would go on until its window is full and wait for
// a timer. The standard knows one NAK; a requester that takes every copy for a
// loss of its own, as rxe does not, must have retries left.
const nakRepeats = 3

func (s *responder) reset() {
	s.letGo()
	*s = responder{answers: s.answers, saved: s.saved, recv: recvWQE{sg: s.recv.sg[:0]}}
	s.answers.clear()
	s.saved.clear()
}

// stop abandons the request in progress; answers already due still go out.
func (s *responder) stop() { s.in = noMessage }

// setResources sizes the memory of READs and atomics. rxe takes the peer's
// limit rounded up to a power of two and may send that many, so as many are
// kept.
func (s *responder) setResources(n int, access mr.Access) {
	s.granted = n
	s.saved.resize(ringSize(n))
	s.setAnswers(access)
}

// setAnswers makes room for the answers to what is granted.
func (s *responder) setAnswers(access mr.Access) {
	flushes := 0
	if access&(mr.FlushGlobal|mr.FlushPersistent) != 0 {
		flushes = flushRoom
	}
	s.answers.resize(2*s.saved.limit+2, flushes)
}

// verdict is the outcome of a responder step.
type verdict uint8

const (
	proceed verdict = iota
	notReady
	noRoom         // for the answer, until those before it have left: dropped, the peer repeats it
	invalidRequest // NAK 0x61; the receive in use gets REM_INV_REQ_ERR
	remoteAccess   // NAK 0x62; the receive in use gets REM_ACCESS_ERR
	notPlaced      // NAK 0x63: persistent memory failed
	tooLong        // NAK 0x61; the receive in use gets LOC_LEN_ERR
	localFault     // NAK 0x63; the receive in use gets LOC_PROT_ERR
)

// verdicts says what each error verdict does: the NAK, the status of the
// receive in use, and the event raised when there is none (IBTA 9.9.3, table
// 58 and 11.6.3).
var verdicts = [...]struct {
	nak    bth.Syndrome
	status cq.Status
	event  EventType
}{
	invalidRequest: {bth.NAKInvalidRequest, cq.RemInvReqErr, EventReqErr},
	remoteAccess:   {bth.NAKRemoteAccess, cq.RemAccessErr, EventAccessErr},
	notPlaced:      {bth.NAKRemoteOp, cq.RemOpErr, EventFatal},
	tooLong:        {bth.NAKInvalidRequest, cq.LocLenErr, EventReqErr},
	localFault:     {bth.NAKRemoteOp, cq.LocProtErr, EventFatal},
}

// steps are the checks of an inbound request and its execution, in the order
// of IBTA 9.7.4.1. The first that does not let the packet proceed decides.
var steps = [...]func(*QP, *frame.Packet) verdict{
	(*QP).checkSequence,
	(*QP).checkTarget,
	(*QP).checkAllowed,
	(*QP).checkResources,
	(*QP).checkLength,
	(*QP).checkKey,
	(*QP).execute,
}

// handleRequest processes a request packet.
func (q *QP) handleRequest(_ mono.Time, p *frame.Packet) {
	switch q.state {
	case RTR, RTS, SQD:
	default:
		q.cnt.WrongState++
		return
	}
	q.cnt.RcvdPkts++
	s := &q.responder
	psn := p.PSN()
	switch d := psn.Sub(s.expect); {
	case d > 0:
		q.cnt.OutOfSeqRequest++
		// Going back, the sender has lost it again if it skips it again.
		again := s.nakSent && psn.Less(s.ahead)
		s.ahead = psn
		switch {
		case !s.nakSent || again:
			s.nakLeft = nakRepeats
		case s.nakLeft > 0 && p.AckReq() && psn.Sub(s.nakAt) >= ackEvery:
			s.nakLeft--
		default:
			return
		}
		if s.answers.push(answer{kind: answerAck, syndrome: bth.NAKSequence, psn: s.expect, msn: s.msn}) {
			s.nakSent, s.nakAt = true, psn
			q.cnt.SeqNAKSent++
		}
		return
	case d < 0:
		q.handleDuplicate(p, psn)
		return
	}
	if q.state == RTR && !s.established {
		s.established = true
		q.event(EventCommEst)
	}
	if p.Op == bth.RCReadRequest && q.takeRead(p) {
		return
	}
	for _, step := range steps {
		if v := step(q, p); v != proceed {
			q.refuse(v, psn)
			return
		}
	}
}

// takeRead takes a READ as the steps would, without looking for what else the packet
// could be. One that they may refuse it leaves to them, and reports false.
func (q *QP) takeRead(p *frame.Packet) bool {
	s := &q.responder
	va, key, n := p.VA(), p.RKey(), p.DMALen()
	if s.in != noMessage || q.access&mr.RemoteRead == 0 || s.granted == 0 || s.answers.full() || n > MaxMessage {
		return false
	}
	if n > 0 {
		if _, _, fault := s.trail.Remote(q.mem, s.pd, q.num, key, va, uint64(n), mr.RemoteRead); fault != mr.OK {
			return false
		}
	}
	return q.executeRead(va, key, n) == proceed
}

// refuse answers a request that a step did not let through.
func (q *QP) refuse(v verdict, psn bth.PSN) {
	s := &q.responder
	switch v {
	case noRoom:
		q.cnt.DupDropped++
		return
	case notReady:
		q.cnt.SendRNRErr++
		s.nakSent, s.ahead, s.nakLeft = true, psn, 0
		s.answers.push(answer{kind: answerAck, syndrome: bth.RNR(s.minRNR), psn: psn, msn: s.msn})
		return
	}
	e := &verdicts[v]
	q.cnt.FatalNAKSent++
	s.answers.push(answer{kind: answerAck, syndrome: e.nak, psn: psn, msn: s.msn})
	if v >= tooLong {
		q.takeRecv() // the fault is in it, or it is too small
	}
	if s.held {
		q.completeRecv(&cq.WC{Status: e.status, Opcode: cq.OpRecv}, false)
	} else {
		q.event(e.event)
	}
	q.flushAll(q.sq.tail, cq.WRFlushErr)
}

// family returns the message kind of a segmented request.
func family(f bth.OpcodeFlags) message {
	switch {
	case f&bth.Send != 0:
		return sendMessage
	case f&bth.Write != 0:
		return writeMessage
	}
	return noMessage
}

// checkSequence: MIDDLE and LAST continue a message of their kind, everything
// else starts one (IBTA 9.7.4.1.2).
func (q *QP) checkSequence(p *frame.Packet) verdict {
	s := &q.responder
	starts := p.Info.Flags&bth.First != 0
	switch {
	case s.in == noMessage && starts:
		return proceed
	case s.in != noMessage && !starts && family(p.Info.Flags) == s.in:
		return proceed
	}
	return invalidRequest
}

// checkAllowed: the queue pair grants the kind of access (IBTA 9.7.4.1.5).
func (q *QP) checkAllowed(p *frame.Packet) verdict {
	if need := accessFor(p); q.access&need != need {
		return invalidRequest
	}
	if p.Info.Flags&answerable == 0 {
		return invalidRequest
	}
	return proceed
}

// answerable are the kinds of request that the engine executes.
const answerable = bth.Send | bth.Write | bth.Read | bth.Atomic | bth.Flush | bth.AtomicWrite

// accessFor is the right a request needs, on the queue pair and on the memory.
func accessFor(p *frame.Packet) mr.Access {
	switch f := p.Info.Flags; {
	case f&(bth.Write|bth.AtomicWrite) != 0:
		return mr.RemoteWrite
	case f&bth.Flush != 0:
		return flushAccess(p.FlushType())
	case f&bth.Read != 0:
		return mr.RemoteRead
	case f&bth.Atomic != 0:
		return mr.RemoteAtomic
	}
	return 0
}

// checkResources: a SEND needs a receive at its first packet, a WRITE with
// immediate at its last, a READ or atomic a place among the granted ones.
func (q *QP) checkResources(p *frame.Packet) verdict {
	f := p.Info.Flags
	s := &q.responder
	switch {
	case f&bth.Flush != 0:
		if !s.answers.takesFlush() {
			return noRoom
		}
	case f&(bth.Read|bth.Atomic|bth.AtomicWrite) != 0:
		switch {
		case s.granted == 0:
			return invalidRequest
		case !s.answers.full():
		case s.answers.operations() >= 2*ringSize(s.granted):
			return invalidRequest // more than was granted, whatever was repeated
		default:
			return noRoom
		}
	case f&bth.Send != 0 && f&bth.First != 0, f&bth.Write != 0 && f&bth.Imm != 0:
		if q.nextRecv() == nil {
			return notReady
		}
	}
	return proceed
}

// checkLength: every packet has the size its place in the message demands
// (IBTA 9.7.4.1.6).
func (q *QP) checkLength(p *frame.Packet) verdict {
	f, n := p.Info.Flags, uint32(len(p.Payload()))
	s := &q.responder
	first, last := f&bth.First != 0, f&bth.Last != 0
	switch {
	case f&(bth.Flush|bth.AtomicWrite) != 0:
		return checkPlacement(p)
	case f&bth.Atomic != 0:
		return checkOperand(p)
	case f&bth.Read != 0:
		if p.DMALen() > MaxMessage {
			return invalidRequest
		}
		return proceed
	case !last && n != q.mtu, !first && n == 0, n > q.mtu:
		return invalidRequest
	}
	if f&bth.Write != 0 {
		left := s.writeLeft
		if first {
			left = p.DMALen()
		}
		if left > MaxMessage || (last && n != left) || (!last && n >= left) {
			return invalidRequest
		}
		return proceed
	}
	got := s.received
	if first {
		got = 0
	}
	if uint64(got)+uint64(n) > q.nextRecv().length {
		return tooLong
	}
	return proceed
}

// checkKey: the memory named by the request exists, belongs to the same
// protection domain and grants the access. A zero-length access touches no
// memory and its key is not looked at (IBTA 9.7.4.1.7).
func (q *QP) checkKey(p *frame.Packet) verdict {
	f := p.Info.Flags
	if f&bth.Send != 0 {
		return proceed
	}
	s := &q.responder
	va, key, n := p.VA(), p.RKey(), uint64(p.DMALen())
	switch {
	case f&bth.Flush != 0:
		if _, _, _, fault := q.flushTarget(p); fault != mr.OK {
			return remoteAccess
		}
		return proceed
	case f&bth.Atomic != 0:
		n = uint64(operand(p).Size)
	case f&bth.Write != 0 && f&bth.First == 0:
		va, key, n = s.writeVA, s.writeKey, uint64(s.writeLeft)
	}
	if n == 0 {
		return proceed
	}
	if _, _, fault := s.trail.Remote(q.mem, s.pd, q.num, key, va, n, accessFor(p)); fault != mr.OK {
		return remoteAccess
	}
	return proceed
}

// execute does what the request asks and schedules the answer.
func (q *QP) execute(p *frame.Packet) verdict {
	f := p.Info.Flags
	switch {
	case f&bth.Send != 0:
		return q.executeSend(p)
	case f&bth.Write != 0:
		return q.executeWrite(p)
	case f&bth.Read != 0:
		return q.executeRead(p.VA(), p.RKey(), p.DMALen())
	case f&bth.Flush != 0:
		return q.executeFlush(p)
	case f&bth.AtomicWrite != 0:
		return q.executeAtomicWrite(p)
	default:
		return q.executeAtomic(p)
	}
}

func (q *QP) executeSend(p *frame.Packet) verdict {
	s, f := &q.responder, p.Info.Flags
	if f&bth.First != 0 {
		q.takeRecv()
		s.in, s.received, s.scatter = sendMessage, 0, cursor{}
	}
	data := p.Payload()
	if fault := q.place(s.received, data); fault != mr.OK {
		return localFault
	}
	s.received += uint32(len(data))
	q.accept(p)
	if f&bth.Last == 0 {
		return proceed
	}
	s.in = noMessage
	wc := cq.WC{Opcode: cq.OpRecv, ByteLen: s.received}
	switch {
	case f&bth.Imm != 0:
		wc.Flags, wc.Imm = cq.WithImm, p.Imm()
	case f&bth.Inv != 0:
		wc.Flags, wc.InvKey = cq.WithInv, p.InvKey()
		if q.mem.Invalidate(s.pd, q.num, p.InvKey()) != mr.OK {
			// The SEND itself was fine and is acknowledged; the key was not
			// ours to invalidate, which is this side's error (class J).
			wc = cq.WC{Opcode: cq.OpRecv, Status: cq.RemInvReqErr}
		}
	}
	q.completeRecv(&wc, p.Solicited())
	if wc.Status != cq.Success && q.state != Err {
		q.flushAll(q.sq.tail, cq.WRFlushErr)
	}
	return proceed
}

func (q *QP) executeWrite(p *frame.Packet) verdict {
	s, f := &q.responder, p.Info.Flags
	if f&bth.First != 0 {
		s.in = writeMessage
		s.writeVA, s.writeKey, s.writeLen = p.VA(), p.RKey(), p.DMALen()
		s.writeLeft = s.writeLen
	}
	if data := p.Payload(); len(data) > 0 {
		region, at, fault := s.trail.Remote(q.mem, s.pd, q.num, s.writeKey, s.writeVA, uint64(len(data)), mr.RemoteWrite)
		if fault == mr.OK {
			fault = region.WriteAt(at, data)
		}
		if fault != mr.OK {
			return remoteAccess
		}
		s.writeVA += uint64(len(data))
		s.writeLeft -= uint32(len(data))
	}
	q.accept(p)
	if f&bth.Last != 0 {
		s.in = noMessage
		if f&bth.Imm != 0 {
			q.takeRecv()
			q.completeRecv(&cq.WC{Opcode: cq.OpRecvRDMAWithImm, Flags: cq.WithImm, Imm: p.Imm(), ByteLen: s.writeLen}, p.Solicited())
		}
	}
	return proceed
}

// accept advances past an executed SEND or WRITE packet and acknowledges it
// when asked to.
func (q *QP) accept(p *frame.Packet) {
	s := &q.responder
	psn := s.expect
	s.nakSent = false
	s.expect, s.acked = psn.Add(1), psn
	if p.Info.Flags&bth.Last != 0 {
		s.msn = s.msn.Add(1)
	}
	if p.AckReq() && q.reliable() {
		q.acknowledge(psn)
	}
}

func (q *QP) executeRead(va uint64, key bth.RKey, n uint32) verdict {
	s := &q.responder
	a := s.answers.add()
	if a == nil {
		return noRoom // never, after checkResources
	}
	psn := s.expect
	last := psn.Add(packetsFor(n, q.mtu) - 1)
	s.nakSent = false
	s.expect = last.Add(1)
	s.msn = s.msn.Add(1)
	// Field by field: a composite literal is made elsewhere and copied.
	a.kind, a.syndrome, a.started, a.repeated = answerRead, 0, false, false
	a.psn, a.last, a.msn, a.key, a.length, a.va, a.value, a.pd = psn, last, s.msn, key, n, va, 0, s.pd
	v := s.saved.put()
	v.first, v.last, v.atomic, v.valid, v.key, v.length, v.va, v.value, v.pd = psn, last, false, true, key, n, va, 0, s.pd
	return proceed
}

func (q *QP) executeAtomic(p *frame.Packet) verdict {
	s := &q.responder
	old, fault := q.doAtomic(p)
	if fault != mr.OK {
		return remoteAccess
	}
	psn := s.expect
	s.nakSent = false
	s.expect = psn.Add(1)
	s.msn = s.msn.Add(1)
	*s.saved.put() = saved{first: psn, last: psn, atomic: true, valid: true, value: old}
	s.answers.push(answer{kind: answerAtomic, psn: psn, msn: s.msn, value: old})
	return proceed
}
