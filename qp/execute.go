package qp

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
)

// execute executes the request with the expected PSN if it passes the checks of IBTA
// 9.7.4.1. The first check that fails decides. Their order is the same for every kind of
// request: place in the message, target, access that the queue pair grants, resources,
// length, key.
func (q *QP) execute(p *frame.Packet) verdict {
	f := p.Info.Flags
	if !q.responder.inOrder(f) || q.typ == XRCRecv && !q.findTarget(p) {
		return invalidRequest
	}
	switch {
	case f&bth.Send != 0:
		return q.executeSend(p, f)
	case f&bth.Write != 0:
		return q.executeWrite(p, f)
	case f&bth.Read != 0:
		return q.executeRead(p)
	case f&bth.Atomic != 0:
		return q.executeAtomic(p)
	case f&bth.Flush != 0:
		return q.executeFlush(p)
	case f&bth.AtomicWrite != 0:
		return q.executeAtomicWrite(p)
	}
	return invalidRequest
}

// inOrder reports whether a packet is allowed at this place: MIDDLE and LAST continue a
// message of their kind, all others start one (IBTA 9.7.4.1.2).
func (s *responder) inOrder(f bth.OpcodeFlags) bool {
	if s.in == noMessage {
		return f&bth.First != 0
	}
	return f&bth.First == 0 && family(f) == s.in
}

// family returns the kind of message that a packet belongs to.
func family(f bth.OpcodeFlags) message {
	switch {
	case f&bth.Send != 0:
		return sendMessage
	case f&bth.Write != 0:
		return writeMessage
	}
	return noMessage
}

// fits reports whether a packet of a SEND or WRITE has the size that its place in the message
// requires (IBTA 9.7.4.1.6).
func (q *QP) fits(f bth.OpcodeFlags, n uint32) bool {
	first, last := f&bth.First != 0, f&bth.Last != 0
	return n <= q.mtu && (last || n == q.mtu) && (first || n > 0)
}

// executeSend executes a packet of a SEND. The first packet needs a receive.
func (q *QP) executeSend(p *frame.Packet, f bth.OpcodeFlags) verdict {
	s := &q.responder
	first, last := f&bth.First != 0, f&bth.Last != 0
	data, got := p.Payload(), s.received
	if first {
		got = 0
	}
	recv, ok := q.nextRecv()
	switch {
	case !ok: // so it is the first packet
		return notReady
	case !q.fits(f, uint32(len(data))):
		return invalidRequest
	case uint64(got)+uint64(len(data)) > total(recv):
		return tooLong
	}
	if first {
		q.consumeRecv()
		s.in, s.scatter = sendMessage, cursor{}
	}
	if len(data) > 0 {
		if fault := q.place(got, data); fault != mr.OK {
			return localFault
		}
		got += uint32(len(data))
	}
	s.received = got
	q.accept(p, f, got)
	if !last {
		return proceed
	}
	s.in = noMessage
	into, wc := q.endRecv()
	wc.ByteLen = got
	failed := false
	switch {
	case f&bth.Imm != 0:
		wc.Flags, wc.Imm = cq.WithImm, p.Imm()
	case f&bth.Inv != 0:
		// The SEND itself is acknowledged. A key that must not be invalidated is an
		// error of this side (class J).
		if failed = q.mem.Invalidate(s.pd, q.num, p.InvKey()) != mr.OK; failed {
			wc.Status = cq.RemInvReqErr
		} else {
			wc.Flags, wc.InvKey = cq.WithInv, p.InvKey()
		}
	}
	q.reportRecv(into, wc, p.Solicited())
	if failed && q.state != Err {
		q.flushAll(q.sq.tail, cq.WRFlushErr)
	}
	return proceed
}

// executeWrite executes a packet of a WRITE. With immediate data the last packet needs a
// receive. The whole rest of the message must be within the region, not only this packet.
func (q *QP) executeWrite(p *frame.Packet, f bth.OpcodeFlags) verdict {
	s := &q.responder
	first, last := f&bth.First != 0, f&bth.Last != 0
	va, key, left := s.writeVA, s.writeKey, s.writeLeft
	if first {
		va, key, left = p.VA(), p.RKey(), p.DMALen()
	}
	data := p.Payload()
	n := uint32(len(data))
	switch {
	case q.access&mr.RemoteWrite == 0:
		return invalidRequest
	case f&bth.Imm != 0 && !q.hasRecv():
		return notReady
	case !q.fits(f, n), left > MaxMessage, last && n != left, !last && n >= left:
		return invalidRequest
	}
	if left > 0 {
		region, at, fault := s.trail.Remote(q.mem, s.pd, q.num, key, va, uint64(left), mr.RemoteWrite)
		if fault == mr.OK {
			fault = region.WriteAt(at, data)
		}
		if fault != mr.OK {
			return remoteAccess
		}
	}
	if first {
		s.in, s.writeKey, s.writeLen = writeMessage, key, left
	}
	s.writeVA, s.writeLeft = va+uint64(n), left-n
	q.accept(p, f, s.writeLen)
	if last {
		s.in = noMessage
		q.cnt.RDMAWrites++
		if f&bth.Imm != 0 {
			q.consumeRecv()
			into, wc := q.endRecv()
			wc.Opcode, wc.Flags, wc.Imm, wc.ByteLen = cq.OpRecvRDMAWithImm, cq.WithImm, p.Imm(), s.writeLen
			q.reportRecv(into, wc, p.Solicited())
		}
	}
	return proceed
}

// accept advances past an executed SEND or WRITE packet, and acknowledges it if it has AckReq. For the last packet, n
// is the length of the message.
func (q *QP) accept(p *frame.Packet, f bth.OpcodeFlags, n uint32) {
	s := &q.responder
	psn := s.expect
	s.nakSent = false
	s.expect, s.acked = psn.Add(1), psn
	if f&bth.Last != 0 {
		s.msn = s.msn.Add(1)
		s.taken += uint64(n)
	}
	if p.AckReq() && q.reliable() {
		q.acknowledge(psn)
	}
}

// admits checks the access and the resources of a READ, atomic or ATOMIC_WRITE, which needs
// one of the granted places.
func (q *QP) admits(need mr.Access) verdict {
	s := &q.responder
	switch {
	case q.access&need == 0, s.granted == 0:
		return invalidRequest
	case !s.answers.full():
		return proceed
	case s.answers.operations() >= 2*ringSize(s.granted):
		return invalidRequest // more than was granted
	}
	return noRoom
}

// executeRead queues the answer to a READ. A READ of no bytes touches no memory, and its key
// is not checked (IBTA 9.7.4.1.7).
func (q *QP) executeRead(p *frame.Packet) verdict {
	s := &q.responder
	va, key, n := p.VA(), p.RKey(), p.DMALen()
	if v := q.admits(mr.RemoteRead); v != proceed {
		return v
	}
	if n > MaxMessage {
		return invalidRequest
	}
	if n > 0 {
		if _, _, fault := s.trail.Remote(q.mem, s.pd, q.num, key, va, uint64(n), mr.RemoteRead); fault != mr.OK {
			return remoteAccess
		}
	}
	psn := s.expect
	last := psn.Add(packetsFor(n, q.mtu) - 1)
	s.nakSent = false
	s.expect = last.Add(1)
	s.msn = s.msn.Add(1)
	s.served += uint64(n)
	// Assigned field by field: the compiler would build a composite literal elsewhere and copy it.
	a := s.answers.add()
	a.kind, a.syndrome, a.started, a.repeated = answerRead, 0, false, false
	a.psn, a.last, a.msn, a.key, a.length, a.va, a.value, a.pd = psn, last, s.msn, key, n, va, 0, s.pd
	v := s.saved.put()
	v.first, v.last, v.atomic, v.valid, v.key, v.length, v.va, v.value, v.pd = psn, last, false, true, key, n, va, 0, s.pd
	return proceed
}

// executeAtomic executes an atomic, and keeps the result for a duplicate of the request.
func (q *QP) executeAtomic(p *frame.Packet) verdict {
	s := &q.responder
	if v := q.admits(mr.RemoteAtomic); v != proceed {
		return v
	}
	o := operand(p)
	if !q.admitsOperand(o, len(p.Payload())) {
		return invalidRequest
	}
	old, fault := q.doAtomic(p, o)
	if fault != mr.OK {
		return remoteAccess
	}
	var size uint32 // 0: of 8 bytes or less
	if o.Size > 8 {
		size = uint32(o.Size)
	}
	psn := s.expect
	s.nakSent = false
	s.expect = psn.Add(1)
	s.msn = s.msn.Add(1)
	*s.saved.put() = saved{first: psn, last: psn, atomic: true, valid: true, length: size, value: old}
	s.answers.push(answer{kind: answerAtomic, psn: psn, msn: s.msn, length: size, value: old})
	return proceed
}
