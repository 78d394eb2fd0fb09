package qp

import (
	"encoding/binary"
	"fmt"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
)

// FLUSH and ATOMIC_WRITE (IBTA 1.6, annex A19: memory placement extensions).
// Both are answered by a READ response without data.
//
// At the requester each takes one of the MaxRdAtomic credits. The rxe requester takes none
// for a FLUSH. But the rxe responder keeps every FLUSH in the ring of its READs and
// atomics: with one FLUSH too many it forgets a READ that it may have to repeat, and
// without a ring it writes outside of its memory. An answer with a PSN beyond a FLUSH or
// ATOMIC_WRITE completes it: neither brings data back, and a responder answers in order.
//
// At the responder a FLUSH takes none of the granted places, because the rxe requester
// sends as many as its window holds. The FLUSHes that wait for their answer are bounded all
// the same: one too many is dropped, as if the network had lost it. A duplicate FLUSH or
// ATOMIC_WRITE is answered but not executed again. The responder keeps nothing for that:
// every request before the expected PSN was executed.

// flushRoom is how many FLUSHes may wait for their answer: as many as come in one batch.
const flushRoom = 64

// flushTypes are the placement types that exist.
const flushTypes = bth.FlushGlobal | bth.FlushPersistent

// checkFlush returns why a FLUSH cannot be posted, or "".
func checkFlush(wr *SendWR) string {
	switch {
	case wr.FlushType == 0 || wr.FlushType&^flushTypes != 0:
		return fmt.Sprintf("placement type %#x, must be global (1), persistent (2) or both", uint8(wr.FlushType))
	case wr.Selectivity > bth.FlushMR:
		return fmt.Sprintf("selectivity %d, must be range (0) or memory region (1)", uint8(wr.Selectivity))
	case wr.Length > MaxMessage:
		return fmt.Sprintf("range of %d bytes, the limit is 2^31", wr.Length)
	case len(wr.SG) > 0:
		return "a FLUSH has no data; its range is Length"
	}
	return ""
}

// checkAtomicWrite returns why an ATOMIC_WRITE cannot be posted, or "".
func checkAtomicWrite(wr *SendWR, n uint64) string {
	switch {
	case n != 8:
		return fmt.Sprintf("an ATOMIC_WRITE has 8 bytes, not %d", n)
	case wr.RemoteAddr&7 != 0:
		return fmt.Sprintf("remote address %#x of an ATOMIC_WRITE is not 8-byte aligned", wr.RemoteAddr)
	}
	return ""
}

// emitFlush builds a FLUSH.
func (q *QP) emitFlush(sink frame.Sink, w *sendWQE, info *opInfo) emission {
	r := &q.requester
	if r.reads >= int32(q.maxRdAtomic) {
		return idle
	}
	if q.flushQuirk && !r.probed && r.next == r.acked && r.next.Less(r.max) {
		return q.emitFlushQuery(sink)
	}
	op := info.rc.only | q.base
	hdr := int(op.Info().HeaderLen)
	body, crc, ok := sink.Begin(q.path, hdr+bth.ICRCLen)
	if !ok {
		return blocked
	}
	at := q.putRequest(body, op, q.mig.bit|bth.AckReq, 0, r.next, w)
	at += bth.PutFETH(body[at:], bth.FlushType(w.extra), bth.FlushSelectivity(w.extra>>8))
	bth.PutRETH(body[at:], w.addr, w.rkey, w.length)
	crc = crc.UpdateBody(body[:hdr])
	if q.flushQuirk {
		crc = crc.UpdateFlushQuirk(body)
	}
	bth.PutICRC(body[hdr:], crc)
	sink.Commit()
	r.reads++
	r.next = r.next.Add(1)
	q.sq.cur++
	return emitted
}

// CheckICRC reports whether the ICRC of a received packet that is addressed to
// this queue pair is right, in the way its peer computes it.
func (q *QP) CheckICRC(p *frame.Packet) bool {
	if q.flushQuirk {
		return p.CheckICRCFlushQuirk()
	}
	return p.CheckICRC()
}

// emitFlushQuery finds out whether rxe has already executed the FLUSH at the head of the
// queue. rxe of Linux 6.12 silently drops a duplicate FLUSH, so repeating it could go on
// for ever. Instead the requester sends a zero-length WRITE with the PSN before the FLUSH.
// rxe takes it for a duplicate and acknowledges it with the PSN of the last request that it
// executed, which answers the question.
func (q *QP) emitFlushQuery(sink frame.Sink) emission {
	const hdr = bth.BTHLen + bth.RETHLen
	body, crc, ok := sink.Begin(q.path, hdr+bth.ICRCLen)
	if !ok {
		return blocked
	}
	at := q.putRequest(body, bth.RCWriteOnly, q.mig.bit|bth.AckReq, 0, q.requester.next.Add(-1), nil)
	bth.PutRETH(body[at:], 0, 0, 0)
	seal(body, hdr, 0, crc)
	sink.Commit()
	q.requester.probed = true
	return emitted
}

// emitAtomicWrite builds an ATOMIC_WRITE.
func (q *QP) emitAtomicWrite(sink frame.Sink, w *sendWQE, info *opInfo) emission {
	r := &q.requester
	if r.reads >= int32(q.maxRdAtomic) {
		return idle
	}
	op := info.rc.only | q.base
	hdr, n := int(op.Info().HeaderLen), 8
	body, crc, ok := sink.Begin(q.path, hdr+n+bth.ICRCLen)
	if !ok {
		return blocked
	}
	at := q.putRequest(body, op, q.mig.bit|bth.AckReq, 0, r.next, w)
	bth.PutRETH(body[at:], w.addr, w.rkey, uint32(n))
	var c cursor
	if fault := q.gather(w, &c, body[hdr:hdr+n], 0); fault != mr.OK {
		q.failLocally(w)
		return idle
	}
	seal(body, hdr+n, 0, crc)
	sink.Commit()
	r.reads++
	r.next = r.next.Add(1)
	q.sq.cur++
	return emitted
}

// handlePlaced completes a FLUSH or ATOMIC_WRITE by its own answer.
func (q *QP) handlePlaced(now mono.Time, p *frame.Packet, psn bth.PSN) {
	if p.Info.Flags&bth.Only != bth.Only || p.PayloadLen() != 0 || p.Syndrome().Kind() != bth.KindACK {
		q.fail(cq.BadRespErr)
		return
	}
	q.ackThrough(now, psn)
}

// flushAccess returns the access rights that a FLUSH needs.
func flushAccess(t bth.FlushType) (need mr.Access) {
	if t&bth.FlushGlobal != 0 {
		need |= mr.FlushGlobal
	}
	if t&bth.FlushPersistent != 0 {
		need |= mr.FlushPersistent
	}
	return need
}

// flushTarget finds the memory that a FLUSH names. The key is checked even when the range is
// empty. For a whole region address and length do not count.
func (q *QP) flushTarget(p *frame.Packet) (v mr.Memory, off, n uint64, f mr.Fault) {
	need := flushAccess(p.FlushType())
	if p.FlushSelectivity() == bth.FlushMR {
		return q.mem.RemoteRegion(q.responder.pd, q.num, p.RKey(), need)
	}
	n = uint64(p.DMALen())
	v, off, f = q.mem.Remote(q.responder.pd, q.num, p.RKey(), p.VA(), n, need)
	return v, off, n, f
}

// executeFlush executes a FLUSH, which has no payload (oA19-2). WRITEs are executed as they
// arrive, so only the placement itself is left to do. rxe accepts any placement type and
// selectivity.
func (q *QP) executeFlush(p *frame.Packet) verdict {
	t, selectivity := p.FlushType(), p.FlushSelectivity()
	need := flushAccess(t)
	switch {
	case q.access&need != need:
		return invalidRequest
	case p.PayloadLen() != 0, t == 0, t&^flushTypes != 0, selectivity > bth.FlushMR,
		selectivity == bth.FlushRange && p.DMALen() > MaxMessage:
		return invalidRequest // checked before the room: without the right, a queue pair has no room for a FLUSH
	case !q.responder.answers.hasRoomForFlush():
		return noRoom
	}
	v, off, n, fault := q.flushTarget(p)
	if fault != mr.OK {
		return remoteAccess
	}
	switch ok, fault := v.Flush(off, n, t&bth.FlushPersistent != 0); {
	case fault != mr.OK:
		return remoteAccess
	case !ok:
		return notPlaced
	}
	q.placed(answerFlush)
	return proceed
}

// executeAtomicWrite executes an ATOMIC_WRITE: eight bytes at once, at a multiple of eight
// (oA19-28).
func (q *QP) executeAtomicWrite(p *frame.Packet) verdict {
	s := &q.responder
	if v := q.admits(mr.RemoteWrite); v != proceed {
		return v
	}
	if p.PayloadLen() != 8 || p.DMALen() != 8 || p.VA()&7 != 0 {
		return invalidRequest
	}
	v, at, fault := q.mem.Remote(s.pd, q.num, p.RKey(), p.VA(), 8, mr.RemoteWrite)
	if fault == mr.OK {
		fault = v.AtomicWrite(at, binary.NativeEndian.Uint64(p.Payload()))
	}
	if fault != mr.OK {
		return remoteAccess
	}
	s.taken += 8
	q.placed(answerAtomicWrite)
	return proceed
}

// placed advances past an executed FLUSH or ATOMIC_WRITE and answers it.
func (q *QP) placed(kind answerKind) {
	s := &q.responder
	psn := s.expect
	s.nakSent = false
	s.expect, s.acked = psn.Add(1), psn
	s.msn = s.msn.Add(1)
	// The answer also acknowledges everything that an unsent ACK in front of it would acknowledge.
	if s.answers.lastAck() != nil {
		s.answers.tail--
		q.cnt.AckDeferred++
	}
	s.answers.push(answer{kind: kind, psn: psn, msn: s.msn})
}

// repeatPlaced answers a FLUSH or ATOMIC_WRITE that was executed already. The answer goes
// before those to later requests: as with READs and atomics the requester accepts these
// only afterwards.
func (q *QP) repeatPlaced(p *frame.Packet, psn bth.PSN) {
	s := &q.responder
	kind, room := answerAtomicWrite, !s.answers.full()
	if p.Info.Flags&bth.Flush != 0 {
		kind, room = answerFlush, s.answers.hasRoomForFlush()
	}
	if !room {
		q.cnt.DupDropped++
		return
	}
	s.answers.insert(answer{kind: kind, repeated: true, psn: psn, msn: s.msn})
}

// emitPlaced builds the answer to a FLUSH or ATOMIC_WRITE: a READ response
// without data.
func (q *QP) emitPlaced(sink frame.Sink, a *answer) emission {
	const hdr = bth.BTHLen + bth.AETHLen
	body, crc, ok := sink.Begin(q.path, hdr+bth.ICRCLen)
	if !ok {
		return blocked
	}
	q.putResponse(body, bth.RCReadResponseOnly, 0, a.psn)
	bth.PutAETH(body[bth.BTHLen:], bth.AckNoCredits, a.msn)
	seal(body, hdr, 0, crc)
	sink.Commit()
	q.cnt.SentPkts++
	return emitted
}
