package qp

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
)

// Repair of READs and atomics: a lost response costs one response, not all behind it.
//
// Most packets that a requester of READs receives are responses, so most losses hit them. A
// requester that goes back asks for everything behind the loss again, although the rest is
// in flight. Here the requester keeps the responses that have arrived: it writes a response
// beyond a missing one to the memory of its work request at once, and notes its PSN. It asks
// only for the missing responses again, by a READ request of exactly that part. Any responder
// answers such a request: it is a duplicate of a part of a READ that it has executed (IBTA
// 9.7.5.1.3).
//
// Work requests still complete in order, credits are still returned in order, and acked
// still moves in order: absorb does it whenever the oldest missing response arrives.
//
// An original request is a READ request as it was sent first. For each original request, rxe remembers the address at
// which the latest part began, and ignores parts that begin before it. So the requester asks for the parts of one
// original request in ascending order, one at a time, until the responder has shown that it is not rxe. rxe answers a
// part with MIDDLE and LAST, all others with FIRST or ONLY.
//
// A network that reorders packets delays responses without losing them. askDelay is learnt:
// it is 0 until a response arrives too soon after its request was repeated to be the answer
// to the repetition, or in the middle of a message, while the answer begins one. The latter says nothing if the whole
// request was sent twice: the peer answers it twice.

// Limits of a repair.
const (
	repairSpan  = 512 // PSNs behind the oldest missing response that can be noted: more than a window and a READ
	maxAsks     = 48  // parts that are missing at a time; with more the requester goes back
	maxAskDelay = 500 * time.Microsecond
	minAskWait  = 20 * time.Microsecond
	maxAskShift = 6 // the wait for a part doubles with each repetition so many times
)

// ask is a part of an original request whose responses are missing.
type ask struct {
	original    bth.PSN // first PSN of the original request
	first, last bth.PSN
	begin       bth.PSN   // first when it was asked for last
	noticed     mono.Time // when a response beyond it arrived
	sent        mono.Time // when it was asked for last
	due         mono.Time // when to ask for it, or again
	tries       uint8     // how often it was asked for
}

// readRepair is the state of a requester that misses responses.
type readRepair struct {
	here  [repairSpan / 64]uint64 // PSNs that were answered early, modulo repairSpan; all are at or beyond acked
	held  int                     // how many
	known bth.PSN                 // one beyond the latest PSN that the peer is known to have executed; asks has what is missing before it
	asks  [maxAsks]ask            // in ascending order
	n     int
}

func (e *readRepair) has(psn bth.PSN) bool {
	return e.here[psn%repairSpan/64]&(1<<(psn%64)) != 0
}

func (e *readRepair) set(psn bth.PSN) {
	e.here[psn%repairSpan/64] |= 1 << (psn % 64)
	e.held++
}

func (e *readRepair) take(psn bth.PSN) bool {
	if !e.has(psn) {
		return false
	}
	e.here[psn%repairSpan/64] &^= 1 << (psn % 64)
	e.held--
	return true
}

// remove takes a part off the list.
func (e *readRepair) remove(i int) {
	copy(e.asks[i:e.n], e.asks[i+1:e.n])
	e.n--
}

// learnt is what a requester has learnt about its peer and the network by repairs.
type learnt struct {
	firstPSN bth.PSN       // of the connection
	anyPart  bool          // the peer answers parts of an original request in any order
	askDelay time.Duration // a missing response counts as late, not as lost, for so long
	askRTT   time.Duration // smoothed time from asking for a part to its first response; 0: none measured
	askVar   time.Duration // its mean deviation
}

// repairs reports whether missing responses are asked for one by one. Without retries, or without an ACK timer to
// bound the repetitions, each loss costs a retry, as in the standard.
func (q *QP) repairs() bool {
	r := &q.requester
	return q.repair != nil && r.retryCnt > 0 && r.timeout > 0
}

// beginRepair returns the state of the repair in progress, or of a new one.
func (q *QP) beginRepair() *readRepair {
	r := &q.requester
	if r.missing != nil {
		return r.missing
	}
	var e *readRepair
	if n := len(q.repair.reads); n > 0 {
		e, q.repair.reads = q.repair.reads[n-1], q.repair.reads[:n-1]
	} else {
		e = new(readRepair)
	}
	e.known = r.acked
	r.missing = e
	r.timing = false // a round trip measured across a missing response is not valid
	return e
}

// endRepair ends the repair in progress, if there is one.
func (q *QP) endRepair() {
	r := &q.requester
	r.repairAt, r.repairDue = mono.Never, false
	e := r.missing
	if e == nil {
		return
	}
	r.missing = nil
	if e.held > 0 {
		clear(e.here[:])
	}
	e.held, e.n = 0, 0
	q.repair.reads = append(q.repair.reads, e)
}

// forgetAsks stops asking for parts because the requester goes back: everything from acked on is requested again.
// Responses that have arrived stay.
func (q *QP) forgetAsks() {
	r := &q.requester
	r.repairAt, r.repairDue = mono.Never, false
	if e := r.missing; e != nil {
		e.n, e.known = 0, r.acked
		if e.held == 0 {
			q.endRepair()
		}
	}
}

// original returns the first PSN of the original request that asked for the response psn of
// w.
func (q *QP) original(w *sendWQE, psn bth.PSN) bth.PSN {
	seq := uint32(psn.Sub(w.first))
	return psn.Add(-int(seq % q.readPSNs))
}

// noteExecuted notes that the peer has executed every request before end, and lists the
// responses before it that are missing.
func (q *QP) noteExecuted(now mono.Time, end bth.PSN) {
	r := &q.requester
	e := q.beginRepair()
	if e.known.Less(r.acked) {
		e.known = r.acked
	}
	if !e.known.Less(end) || end.Sub(r.acked) > repairSpan {
		return
	}
	for i := q.holder(e.known); i != q.sq.tail && e.known.Less(end); i++ {
		w := q.sq.at(i)
		if w.kind == kindLocal {
			continue
		}
		stop := min(end.Sub(e.known), w.last.Sub(e.known)+1)
		if w.kind.returnsData() {
			for ; stop > 0; stop-- {
				if !e.has(e.known) && !q.addMissing(e, w, now) {
					return
				}
				e.known = e.known.Add(1)
			}
			continue
		}
		e.known = e.known.Add(int(stop))
	}
	if r.askDelay == 0 {
		r.dueRepair()
	} else {
		r.repairAt = min(r.repairAt, now.Add(r.askDelay))
	}
}

// addMissing adds the response e.known of w to the parts to ask for. It reports false if there
// are too many.
func (q *QP) addMissing(e *readRepair, w *sendWQE, now mono.Time) bool {
	original := q.original(w, e.known)
	if e.n > 0 {
		if a := &e.asks[e.n-1]; a.original == original && a.last.Add(1) == e.known && a.tries == 0 && a.noticed == now {
			a.last = e.known
			return true
		}
	}
	if e.n == maxAsks {
		return false
	}
	q.cnt.ImpliedNAK++
	e.asks[e.n] = ask{original: original, first: e.known, last: e.known, noticed: now, due: now.Add(q.requester.askDelay)}
	e.n++
	return true
}

// early handles the answer psn to a READ, atomic, FLUSH or ATOMIC_WRITE while answers before it are missing. It
// ignores an answer that does not fit its work request: that answer is handled when it comes again in order.
func (q *QP) early(now mono.Time, p *frame.Packet, psn bth.PSN) {
	r := &q.requester
	if psn.Sub(r.acked) >= repairSpan {
		return
	}
	q.noteExecuted(now, psn)
	e := r.missing
	i := q.holder(psn)
	if e.has(psn) || i == q.sq.tail {
		return
	}
	w := q.sq.at(i)
	if !q.placeEarly(w, p, psn) {
		return
	}
	if w.kind.returnsData() {
		e.set(psn)
		q.cnt.EarlyResponses++
	}
	if e.known == psn {
		e.known = psn.Add(1)
	}
}

// placeEarly writes the data of an early answer to memory, and reports whether the answer fits its work request.
func (q *QP) placeEarly(w *sendWQE, p *frame.Packet, psn bth.PSN) bool {
	atomic := p.Info.Flags&bth.Atomic != 0
	if p.Info.Headers&bth.HasAETH != 0 && p.Syndrome().Kind() != bth.KindACK || atomic != (w.kind == kindAtomic) {
		return false
	}
	var c cursor
	switch w.kind {
	case kindRead:
		off := uint32(psn.Sub(w.first)) * q.mtu
		data := p.Payload()
		if off == 0 { // the cursor may be that of an earlier work request with the same index
			q.requester.scatter = cursor{}
		}
		return uint32(len(data)) == min(q.mtu, w.length-off) && q.scatter(q.sq.list(w), &c, off, data) == mr.OK
	case kindAtomic:
		var buf [mr.MaxOperand]byte
		old := q.atomicResult(&buf, p, int(w.length))
		return old != nil && q.scatter(q.sq.list(w), &c, 0, old) == mr.OK
	case kindFlush, kindAtomicWrite:
		return p.Info.Flags&bth.Only == bth.Only && p.PayloadLen() == 0
	}
	return false
}

// absorb is called after each answer during a repair. It moves acked past all PSNs that are answered, and completes
// work requests.
func (q *QP) absorb(now mono.Time) {
	r := &q.requester
	e := r.missing
	before := r.acked
	for q.sq.head != q.sq.tail {
		w := q.sq.at(q.sq.head)
		if w.kind.returnsData() && !r.acked.Less(w.first) {
			if !e.take(r.acked) {
				break
			}
			q.advanceRead(w, r.acked)
			continue
		}
		at := r.acked
		if !at.Less(e.known) {
			break
		}
		if q.ackThrough(now, e.known.Add(-1)); r.acked == at {
			break
		}
	}
	if r.acked != before {
		q.progress(now, before)
	}
	r.timing = false
	if e.held == 0 && !r.acked.Less(e.known) {
		q.endRepair()
		if r.probeAt != mono.Never {
			q.armProbe(now) // the wait is shorter now
		}
	}
}

// advanceRead moves acked beyond the response psn of w, a READ or atomic, which is in place.
func (q *QP) advanceRead(w *sendWQE, psn bth.PSN) {
	r := &q.requester
	r.acked = psn.Add(1)
	last := psn == w.last
	if (last || (uint32(psn.Sub(w.first))+1)%q.readPSNs == 0) && psn.Less(r.next) {
		r.reads-- // its request was sent after the requester went back last
	}
	if last {
		q.completeSend(cq.Success)
	}
}

// filled notes that the response psn has come while a repair is in progress, and learns from
// how long it took.
func (q *QP) filled(now mono.Time, p *frame.Packet, psn bth.PSN) {
	r := &q.requester
	e := r.missing
	for i := range e.n {
		a := &e.asks[i]
		if psn.Less(a.first) {
			return
		}
		if a.last.Less(psn) {
			continue
		}
		r.dueRepair() // the part behind it may be asked for
		begins := p.Info.Flags&bth.First != 0
		if begins && psn != a.original && a.tries > 0 {
			r.anyPart = true
		}
		if psn != a.first || e.has(psn) {
			return
		}
		took := now.Sub(a.sent)
		switch {
		case a.tries == 0, a.tries == 1 && (took < r.leastRTT*3/4 || r.anyPart && !begins && psn == a.begin && psn != a.original && !r.single.answersTwice(psn)):
			r.askDelay = max(r.askDelay, min(now.Sub(a.noticed)*5/4, maxAskDelay)) // it was late
		case a.tries == 1:
			r.askDelay -= r.askDelay / 4
			r.measureAsk(took)
			if r.askDelay == 0 {
				e.overtaken(now, a.sent)
			}
		}
		return
	}
}

// overtaken requests the missing parts again that were requested before a time: the answer to a later request has
// arrived, so their requests or the answers got lost.
func (e *readRepair) overtaken(now, sent mono.Time) {
	for i := range e.n {
		if a := &e.asks[i]; a.tries > 0 && a.sent < sent {
			a.due = min(a.due, now)
		}
	}
}

// measureAsk notes how long the answer to the first request for a part took (RFC 6298).
func (l *learnt) measureAsk(took time.Duration) {
	if l.askRTT == 0 {
		l.askRTT, l.askVar = took, took/2
		return
	}
	dev := took - l.askRTT
	l.askRTT += dev / 8
	l.askVar += (max(dev, -dev) - l.askVar) / 4
}

// askWait returns how long a requester waits before it asks for a part again.
func (r *requester) askWait() time.Duration {
	rtt, dev := r.askRTT, r.askVar
	if rtt == 0 {
		rtt, dev = r.srtt, r.rttvar
	}
	if rtt == 0 {
		return firstProbe
	}
	return max(rtt+3*dev, rtt*5/4, minAskWait)
}

// trim removes the responses that have arrived from both ends of a part, and reports whether any is still missing.
func (q *QP) trim(e *readRepair, a *ask) bool {
	r := &q.requester
	for !a.last.Less(a.first) && (a.first.Less(r.acked) || e.has(a.first)) {
		a.first = a.first.Add(1)
	}
	for a.first.Less(a.last) && e.has(a.last) {
		a.last = a.last.Add(-1)
	}
	return !a.last.Less(a.first)
}

// emitMissing asks for the next missing part that is due. If none is due, it sets the deadline of the next one. The
// peer has granted a number of READs at a time. An original request counts as one READ until all its responses have
// arrived. So one of its parts needs no further READ; each further part needs one of the READs that are left.
func (q *QP) emitMissing(now mono.Time, sink frame.Sink) emission {
	r := &q.requester
	e := r.missing
	next := mono.Never
	spare := int(q.maxRdAtomic)
	for i := 0; e != nil && i < e.n; {
		a := &e.asks[i]
		if !q.trim(e, a) {
			e.remove(i)
			continue
		}
		may := true
		if i > 0 && e.asks[i-1].original == a.original {
			may = r.anyPart && spare > 0
			spare--
		}
		if may {
			if !now.Before(a.due) {
				res := q.emitPart(sink, a)
				if res == idle {
					e.remove(i) // the work request cannot be sent again
					continue
				}
				if res == emitted {
					a.begin, a.sent, a.due = a.first, now, now.Add(r.askWait()<<min(a.tries, maxAskShift))
					a.tries = min(a.tries+1, maxAskShift+1)
				}
				return res
			}
			next = min(next, a.due)
		}
		i++
	}
	r.repairAt, r.repairDue = next, false
	return idle
}

// emitPart asks for one missing part. Transmission then goes on where it was.
func (q *QP) emitPart(sink frame.Sink, a *ask) (res emission) {
	r := &q.requester
	i := q.holder(a.first)
	w := q.sq.at(i)
	if w.fail {
		return idle
	}
	next, cur, reads := r.next, q.sq.cur, r.reads
	r.next, q.sq.cur, r.reads = a.first, i, 0
	if w.kind == kindAtomic {
		res = q.emitAtomic(sink, w, &opTable[w.op])
	} else {
		off := uint32(a.first.Sub(w.first)) * q.mtu
		n := min(w.length-off, uint32(a.last.Sub(a.first)+1)*q.mtu)
		res = q.emitRead(sink, w, off, n)
	}
	r.next, q.sq.cur, r.reads = next, cur, reads
	if res == emitted {
		q.repaired(&q.cnt.PartialReads)
	}
	return res
}

// retryFrom goes back to psn because a NAK says that it is missing at the peer, while answers
// before it are missing here: these are asked for one by one. It costs no retry, as in
// retryAgain.
func (q *QP) retryFrom(now mono.Time, psn bth.PSN) {
	r := &q.requester
	q.noteExecuted(now, psn)
	if !psn.Less(r.next) || r.backTo == psn && r.next != r.max && r.stale(now) {
		return
	}
	r.next, r.backTo = psn, psn
	r.single.goesBack(r.max)
	r.backAt = now
	q.sq.cur = q.holder(psn)
	r.reads = 0
	for i := q.sq.head; i != q.sq.cur+1 && i != q.sq.tail; i++ {
		w := q.sq.at(i)
		from, end := w.first, w.last.Add(1)
		if psn.Less(end) {
			end = psn
		}
		if from.Less(r.acked) {
			from = r.acked
		}
		switch {
		case !w.kind.takesCredit() || !from.Less(end):
		case w.kind == kindRead:
			asked := int(end.Sub(w.first))
			if end != psn || psn == w.last.Add(1) {
				asked += int(q.readPSNs) - 1 // the request that psn lies in is sent again
			}
			r.reads += int32(asked/int(q.readPSNs) - int(from.Sub(w.first))/int(q.readPSNs))
		default:
			r.reads++
		}
	}
	r.probed = false
	q.cnt.CompleterRetryErr++
	r.wentBack(now, true)
	q.noteAnswer(now)
}
