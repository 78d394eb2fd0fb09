package qp

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
)

// requester is the sending half of an RC queue pair.
//
// The PSNs [acked, max) are outstanding. next is the PSN of the next packet: it equals max
// while nothing is retransmitted, and is set back to acked to go back.
type requester struct {
	postPSN bth.PSN // first PSN of the next work request to be posted
	next    bth.PSN // next PSN to transmit
	acked   bth.PSN // oldest PSN not acknowledged
	max     bth.PSN // one beyond the highest PSN ever transmitted

	sendBytes uint64   // of payload in all SENDs and WRITEs that were posted: see QP.Observe
	readBytes uint64   // the same of READs
	reads     int32    // READs and atomics on the wire
	readsFull bool     // there were as many as allowed, and too few were answered since
	repairing bool     // emitRepairs may have something to send, or to keep back
	repairDue bool     // emitMissing may have something to send
	trail     mr.Trail // of the keys of local memory
	gather    cursor   // of the SEND or WRITE in progress
	scatter   cursor   // of the READ in progress
	gatherFor uint32   // send queue index the gather cursor belongs to
	scattFor  uint32   // the same for scatter

	timeout     time.Duration // how long the ACK timer runs; 0: none does
	timeoutCode uint8
	retryCnt    uint8 // retries granted
	retryLeft   uint8
	rnrRetry    uint8
	rnrLeft     uint8
	recovering  bool // went back and has had no progress since
	drained     bool // SQ_DRAINED has been reported
	probed      bool // emitFlushQuery has run since the requester went back

	inFlight

	missing  *readRepair // nil: no response is missing
	repairAt mono.Time   // when repairDue is set
	*learnt              // nil: the queue pair goes back
	single   *single     // nil: the same

	ackDeadline mono.Time
	ackLimit    mono.Time // ackDeadline is never moved beyond
	rnrDeadline mono.Time
}

func (r *requester) reset() {
	*r = requester{sendBytes: r.sendBytes, readBytes: r.readBytes, learnt: r.learnt, single: r.single, ackDeadline: mono.Never, rnrDeadline: mono.Never, repairAt: mono.Never, inFlight: inFlight{armedAt: mono.Never, probeAt: mono.Never}}
	if r.learnt != nil {
		*r.learnt, *r.single = learnt{}, single{wakeAt: mono.Never}
	}
}

// setTimeout sets the local ACK timeout by its code.
func (r *requester) setTimeout(code uint8) {
	timeout := bth.AckTimeout(code)
	r.timeout, r.timeoutCode, r.armedAt = ackTimeoutFor(timeout, r.retryCnt), code, mono.Never
}

// setRetries sets how many transport retries there are.
func (r *requester) setRetries(n uint8) {
	r.retryCnt, r.retryLeft = n, n
	r.setTimeout(r.timeoutCode)
}

// start sets the first PSN.
func (r *requester) start(psn bth.PSN) {
	r.postPSN, r.next, r.acked, r.max, r.ackReqEnd = psn, psn, psn, psn, psn
	if r.learnt != nil {
		r.firstPSN = psn
	}
}

// ackEvery is how many packets of a long message may go without AckReq. rxe acknowledges
// only packets with AckReq, and an rxe peer stalls after 64 packets without one.
const ackEvery = 32

// emitOther is emitRequest for the services that are not RC.
func (q *QP) emitOther(now mono.Time, sink frame.Sink) emission {
	if q.typ == DCI {
		if res, ready := q.toTarget(now, sink); !ready {
			return res
		}
	}
	if q.reliable() {
		return q.emitRequest(now, sink)
	}
	if q.sq.cur == q.sq.tail || q.state != RTS && q.state != SQD {
		return idle
	}
	if q.typ == UC {
		return q.emitUnreliable(sink)
	}
	return q.emitDatagram(sink)
}

// hasRequests reports whether there are request packets to send, now or when the window has room.
func (q *QP) hasRequests() bool {
	return q.sq.cur != q.sq.tail || q.requester.probe || q.requester.repairing
}

// emitRequest builds the next request packet of RC, XRC or DC.
func (q *QP) emitRequest(now mono.Time, sink frame.Sink) emission {
	r := &q.requester
	if !q.hasRequests() || q.state != RTS && q.state != SQD {
		return idle
	}
	if r.rnrDeadline != mono.Never {
		return idle
	}
	if r.repairing {
		if res, others := q.emitRepairs(now, sink); !others {
			return res
		}
	}
	if r.probe {
		if res := q.emitProbe(sink); res != idle || q.sq.cur == q.sq.tail {
			return res
		}
	}
	w := q.sq.at(q.sq.cur)
	if w.fail {
		return q.requestAckNow(sink) // it waits until the requests before it are complete
	}
	if w.kind == kindLocal {
		res := q.emitLocal(w)
		if res == idle {
			return q.requestAckNow(sink)
		}
		if q.signals(w) {
			q.requestAck()
		}
		return res
	}
	if r.next == w.first && !q.mayBegin(w) {
		if w.flags&held != 0 {
			return q.requestAckNow(sink) // no later packet requests an ACK for the requests before w
		}
		return idle
	}
	if !q.windowHasRoom(w) {
		return idle
	}
	if q.cc != nil && q.cc.hold() {
		return idle
	}
	psn := r.next
	r.noAckReq = w.kind == kindSend && q.mayOmitAckReq(now, w)
	info := &opTable[w.op]
	var res emission
	switch w.kind {
	case kindSend:
		res = q.emitSend(sink, w, info)
	case kindRead:
		off, n := q.readPart(w)
		res = q.emitRead(sink, w, off, n)
	case kindAtomic:
		res = q.emitAtomic(sink, w, info)
	case kindFlush:
		res = q.emitFlush(sink, w, info)
	case kindAtomicWrite:
		res = q.emitAtomicWrite(sink, w, info)
	}
	if w.fail {
		return q.requestAckNow(sink)
	}
	if res != emitted {
		return res
	}
	if q.cc != nil {
		q.cc.spend()
	}
	q.cnt.SentPkts++
	if r.max.Less(r.next) {
		r.max = r.next
		r.sent(now, psn, r.max)
	} else {
		q.cnt.RetransPkts++
		q.incidents().Retransmitted++
		if psn == r.acked || psn == r.backTo {
			r.backAt = now
		}
	}
	if r.timeout > 0 && r.ackDeadline == mono.Never {
		q.arm(now)
	}
	return emitted
}

// mayBegin reports whether the first packet of a work request may be sent. It may not while
// the queue drains, and a fence waits for the READs and atomics before it.
func (q *QP) mayBegin(w *sendWQE) bool {
	r := &q.requester
	if q.state == SQD && !w.first.Less(r.max) {
		return false
	}
	if w.flags&(Fence|held) != 0 && (w.flags&held != 0 || r.reads > 0) {
		return false
	}
	return !w.kind.takesCredit() || q.mayIssueRead()
}

// mayIssueRead reports whether another READ or atomic may be outstanding. Once there were as
// many as allowed, an eighth of them must be answered first, or as many as wait to be sent.
// Otherwise each answer would let one more request go alone, and there would be no
// super-packets of requests any more.
func (q *QP) mayIssueRead() bool {
	r := &q.requester
	most := int32(q.maxRdAtomic)
	free := most - r.reads
	switch {
	case free <= 0:
		r.readsFull = true
	case r.readsFull:
		r.readsFull = free < min(most/8, int32(q.sq.tail-q.sq.cur))
	}
	return !r.readsFull
}

// emitSend builds one packet of a SEND or WRITE.
func (q *QP) emitSend(sink frame.Sink, w *sendWQE, info *opInfo) emission {
	r := &q.requester
	seq := uint32(r.next.Sub(w.first))
	off := seq * q.mtu
	n := min(q.mtu, w.length-off)
	first, last := off == 0, off+n == w.length
	split := q.splitting && w.splits(q.mtu) && q.reliable()
	ops, _ := info.wire(q.typ)
	op := ops.middle
	switch {
	case first && last, split:
		op = ops.only
	case first:
		op = ops.first
	case last:
		op = ops.last
	}
	op |= q.base
	hdr := int(op.Info().HeaderLen)
	pad := int(-n & 3)
	size := hdr + int(n) + pad + bth.ICRCLen
	flags := q.mig.bit
	switch {
	case !q.reliable():
	case last && !r.noAckReq, (seq+1)%ackEvery == 0, r.probe, r.next.Sub(r.acked)+1 >= q.windowFor(w):
		flags |= bth.AckReq // also at the end of the window: only an answer opens it again
	case q.cc != nil && q.cc.pauses(q.path, size):
		flags |= bth.AckReq
	}
	if last && w.flags&Solicited != 0 && info.recv {
		flags |= bth.Solicited
	}
	if r.gatherFor != q.sq.cur || off == 0 {
		r.gather, r.gatherFor = cursor{}, q.sq.cur
	}
	var lent, body, trailer []byte
	var crc bth.CRC
	if q.mem.Lends() {
		lent, body, trailer, crc = q.beginInPlace(sink, w, off, n, hdr, pad)
	}
	if lent == nil {
		var ok bool
		if body, crc, ok = sink.Begin(q.path, size); !ok {
			return blocked
		}
	}
	at := q.putRequest(body, op, flags, pad, r.next, w)
	switch {
	case split:
		at += bth.PutRETH(body[at:], w.addr+uint64(off), w.rkey, n)
	case first && info.reth:
		at += bth.PutRETH(body[at:], w.addr, w.rkey, w.length)
	}
	if at < hdr { // immediate data or the key to invalidate: four bytes either way
		bth.PutImm(body[at:], w.extra)
	}
	if lent != nil {
		clear(trailer[:pad])
		bth.PutICRC(trailer[pad:], crc.UpdateBody(body[:hdr]).Update(lent).Update(trailer[:pad]))
	} else {
		if n > 0 {
			if fault := q.gather(w, &r.gather, body[hdr:hdr+int(n)], off); fault != mr.OK {
				q.failLocally(w)
				return idle
			}
		}
		seal(body, hdr+int(n), pad, crc)
	}
	sink.Commit()
	r.next = r.next.Add(1)
	if last {
		q.sq.cur++
	}
	return emitted
}

// maxSplit is how many packets a WRITE may have that is split into messages of one packet.
// For a longer WRITE, one more super-packet costs little compared with its data.
const maxSplit = 32

// splits reports whether a work request may be split into messages of one packet.
func (w *sendWQE) splits(mtu uint32) bool {
	return w.op == Write && w.length > mtu && w.length <= maxSplit*mtu
}

// beginInPlace begins a packet whose n bytes of payload, from message offset off, are sent
// from the memory region without a copy. lent is nil if they must be copied.
//
// Only the first transmission of a reliable request is sent in place. Its packet is in the
// sink before the peer can acknowledge it, so the work request cannot complete, and the
// program cannot use the memory again, before the packet has left. A retransmission may
// still wait in the driver when the first transmission is acknowledged, and an unreliable
// request completes at once: both are copied.
func (q *QP) beginInPlace(sink frame.Sink, w *sendWQE, off, n uint32, hdr, pad int) (lent, head, trailer []byte, crc bth.CRC) {
	r := &q.requester
	if n == 0 || w.inline > 0 || w.flags&WithCalc != 0 || !q.reliable() || r.next.Less(r.max) {
		return nil, nil, nil, 0
	}
	s, ok := sink.(frame.InPlaceSink)
	if !ok {
		return nil, nil, nil, 0
	}
	sg := q.sq.list(w)
	r.gather.seek(sg, off)
	from := sg[r.gather.i]
	skip := off - r.gather.base
	region, at, fault := r.trail.Local(q.mem, q.pd, from, 0)
	if fault != mr.OK || n > from.Length-skip {
		return nil, nil, nil, 0
	}
	if lent, ok = region.InPlace(at+uint64(skip), uint64(n)); !ok {
		return nil, nil, nil, 0
	}
	if head, trailer, crc, ok = s.BeginInPlace(q.path, hdr, lent, pad+bth.ICRCLen); !ok {
		return nil, nil, nil, 0
	}
	return lent, head, trailer, crc
}

// putRequest writes the BTH of a request and, for XRC, the XRCETH. It returns where the next
// header goes.
func (q *QP) putRequest(body []byte, op bth.Opcode, f bth.BTHFlags, pad int, psn bth.PSN, w *sendWQE) (at int) {
	at = bth.PutBTH(body, op, f, pad, bth.DefaultPKey, q.destQPN, psn)
	if q.typ <= UD {
		return at
	}
	switch q.typ {
	case DCI:
		at += bth.PutDCETH(body[at:], bth.DCETHFields{QPN: q.num, Context: q.dci.context})
	case XRCSend:
		at += bth.PutXRCETH(body[at:], q.sq.rest(w).srqn)
	}
	return at
}

// gather copies len(dst) bytes of a work request's data from message offset
// off into a packet.
func (q *QP) gather(w *sendWQE, c *cursor, dst []byte, off uint32) mr.Fault {
	if w.inline > 0 {
		copy(dst, q.sq.inlined(w)[off:])
		return mr.OK
	}
	if w.flags&WithCalc != 0 {
		return q.gatherCalc(w, dst, off)
	}
	sg := q.sq.list(w)
	for len(dst) > 0 {
		c.seek(sg, off)
		s := sg[c.i]
		region, at, fault := q.requester.trail.Local(q.mem, q.pd, s, 0)
		if fault != mr.OK {
			return fault
		}
		skip := off - c.base
		n := min(uint32(len(dst)), s.Length-skip)
		if fault = region.ReadAt(dst[:n], at+uint64(skip)); fault != mr.OK {
			return fault
		}
		dst, off = dst[n:], off+n
	}
	return mr.OK
}

// readPart returns what the next READ request of w asks for: n bytes from offset off on.
func (q *QP) readPart(w *sendWQE) (off, n uint32) {
	seq := uint32(q.requester.next.Sub(w.first))
	off = seq * q.mtu
	n = w.length - off
	if uint64(w.length) > uint64(q.readPSNs)*uint64(q.mtu) {
		// A repeated request ends where the original request ended.
		n = min(n, (q.readPSNs-seq%q.readPSNs)*q.mtu)
	}
	return off, n
}

// emitRead builds the READ request with the next PSN for n bytes of w from offset off on.
func (q *QP) emitRead(sink frame.Sink, w *sendWQE, off, n uint32) emission {
	r := &q.requester
	if r.reads >= int32(q.maxRdAtomic) {
		return idle
	}
	op := bth.RCReadRequest | q.base
	hdr := int(op.Info().HeaderLen)
	body, crc, ok := sink.Begin(q.path, hdr+bth.ICRCLen)
	if !ok {
		return blocked
	}
	at := q.putRequest(body, op, q.mig.bit|bth.AckReq, 0, r.next, w)
	bth.PutRETH(body[at:], w.addr+uint64(off), w.rkey, n)
	seal(body, hdr, 0, crc)
	sink.Commit()
	r.reads++
	r.next = r.next.Add(packetsFor(n, q.mtu))
	if w.last.Less(r.next) {
		q.sq.cur++
	}
	return emitted
}

// packetsFor returns how many packets n bytes take: at least one.
func packetsFor(n, mtu uint32) int {
	if n <= mtu {
		return 1
	}
	return int((n-1)/mtu) + 1
}

// emitAtomic builds a COMPARE_SWAP or FETCH_ADD, masked or not.
func (q *QP) emitAtomic(sink frame.Sink, w *sendWQE, info *opInfo) emission {
	r := &q.requester
	if r.reads >= int32(q.maxRdAtomic) {
		return idle
	}
	op := info.rc.only | q.base
	n := int(op.Info().HeaderLen)
	hdr := n
	if w.length > 8 {
		n += wideArgsLen(int(w.length))
	}
	body, crc, ok := sink.Begin(q.path, n+bth.ICRCLen)
	if !ok {
		return blocked
	}
	at := q.putRequest(body, op, q.mig.bit|bth.AckReq, 0, r.next, w)
	rest := q.sq.rest(w)
	at += bth.PutAtomicETH(body[at:], w.addr, w.rkey, rest.swapAdd, rest.compare)
	if at < hdr {
		bth.PutMaskETH(body[at:], rest.swapMask, rest.cmpMask, uint8(w.length))
	}
	if n > hdr {
		putWideArgs(body[hdr:n], w.op, rest.args)
	}
	seal(body, n, 0, crc)
	sink.Commit()
	r.reads++
	r.next = r.next.Add(1)
	q.sq.cur++
	return emitted
}
