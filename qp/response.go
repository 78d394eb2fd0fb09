package qp

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mr"
)

// answerKind is the kind of a response that is due.
type answerKind uint8

const (
	answerAck         answerKind = iota // ACKNOWLEDGE: an ACK or a NAK
	answerRead                          // READ responses
	answerAtomic                        // ATOMIC ACKNOWLEDGE
	answerFlush                         // READ response without data
	answerAtomicWrite                   // the same
)

// answer is a response that is due. For a READ, psn, va and length advance with every response packet.
type answer struct {
	kind     answerKind
	syndrome bth.Syndrome
	started  bool // READ: the first response of this answer is out
	repeated bool // READ, atomic or ATOMIC_WRITE: it was executed before
	psn      bth.PSN
	last     bth.PSN // READ: PSN of the last response
	msn      bth.MSN
	key      bth.RKey
	length   uint32
	va       uint64
	value    uint64
	pd       *mr.PD // READ: domain of the memory
}

// answerQueue holds the responses that are due in the order of the requests. It is bounded:
// READs and atomics by what was granted to the peer, FLUSHes by places of their own. The
// responder asks for room (full, hasRoomForFlush) before it executes a request, because a
// request that was executed must be answered.
//
// There is always room for an ACKNOWLEDGE. The last place of the ring is reserved for one.
// When that is taken, the newest answer is an ACKNOWLEDGE, and a new one replaces it.
type answerQueue struct {
	ring[answer]
	tail       uint32
	places     int32 // for all but FLUSHes
	flushes    int32 // FLUSHes in it
	maxFlushes int32
}

// resize gives the queue n places and some for FLUSHes, and at least as many as it needs for
// the answers that are due and an ACKNOWLEDGE.
func (a *answerQueue) resize(n, flushes int) {
	old := *a
	a.places, a.maxFlushes = int32(n), int32(flushes)
	a.ring = newRing[answer](max(n+flushes, old.len()+1))
	a.clear()
	for i := old.head; i != old.tail; i++ {
		a.push(*old.at(i))
	}
}

func (a *answerQueue) clear()      { a.head, a.tail, a.flushes = 0, 0, 0 }
func (a *answerQueue) empty() bool { return a.head == a.tail }
func (a *answerQueue) len() int    { return int(a.tail - a.head) }

// full reports whether there is no room for another READ or atomic. One place is kept for
// the acknowledgement behind it. The queue may hold more than its places if its answers were
// accepted under other limits.
func (a *answerQueue) full() bool {
	n := a.len()
	return n-int(a.flushes)+1 >= int(a.places) || n+1 >= a.cap()
}

// hasRoomForFlush reports whether there is room for another FLUSH.
func (a *answerQueue) hasRoomForFlush() bool { return a.flushes < a.maxFlushes && a.len()+1 < a.cap() }

// operations counts the READs and atomics that wait for their answer. Duplicates do not count. A requester may ask
// again for many parts of one READ. If the responses were only late, it may send new READs before the parts are
// answered.
func (a *answerQueue) operations() (n int) {
	for i := a.head; i != a.tail; i++ {
		if x := a.at(i); x.kind != answerAck && x.kind != answerFlush && !x.repeated {
			n++
		}
	}
	return n
}

// push appends the answer to an operation, for which there is room.
func (a *answerQueue) push(x answer) {
	*a.add() = x
	if x.kind == answerFlush {
		a.flushes++
	}
}

// acknowledge appends an ACKNOWLEDGE, for which there is always room. If the queue is full,
// the newest answer is an ACKNOWLEDGE, too, and the new one replaces it: a NAK acknowledges
// all packets before its PSN, and an ACK of the packet that a NAK asked for makes the NAK
// obsolete. Only an ACK of packets before the NAK adds nothing and is left out.
func (a *answerQueue) acknowledge(x answer) {
	if t := a.add(); t != nil {
		*t = x
		return
	}
	if t := a.at(a.tail - 1); x.syndrome != bth.AckNoCredits || !x.psn.Less(t.psn) {
		*t = x
	}
}

// add appends an answer, other than to a FLUSH, and returns it; the caller sets every field,
// because the slot holds an old answer. It returns nil if there is no room.
func (a *answerQueue) add() *answer {
	switch n := a.len(); {
	case n >= a.cap():
		return nil
	case n == len(a.slots):
		a.grow(a.head)
	case n == 0:
		a.head, a.tail = 0, 0 // the slot used last is likely to be in a cache
	}
	a.tail++
	return a.at(a.tail - 1)
}

// insert is push for the answer to a duplicate request: it goes to its place by PSN among
// the answers that are due.
func (a *answerQueue) insert(x answer) {
	a.push(x)
	i := a.tail - 1
	for ; i != a.head && x.psn.Less(a.at(i-1).psn); i-- {
		*a.at(i) = *a.at(i - 1)
	}
	*a.at(i) = x
}

// pop takes the oldest answer away.
func (a *answerQueue) pop() {
	if a.at(a.head).kind == answerFlush {
		a.flushes--
	}
	a.head++
}

// lastAck returns the newest answer if it is a positive acknowledgement, otherwise nil. A
// later answer can replace it.
func (a *answerQueue) lastAck() *answer {
	if a.empty() {
		return nil
	}
	if t := a.at(a.tail - 1); t.kind == answerAck && t.syndrome == bth.AckNoCredits {
		return t
	}
	return nil
}

// acknowledge queues an ACK for everything up to psn. It replaces an ACK that has not left
// yet: acknowledgements coalesce per batch.
func (q *QP) acknowledge(psn bth.PSN) {
	s := &q.responder
	if t := s.answers.lastAck(); t != nil {
		t.psn, t.msn = psn, s.ackMSN()
		q.cnt.AckDeferred++
		return
	}
	s.answers.acknowledge(answer{kind: answerAck, syndrome: bth.AckNoCredits, psn: psn, msn: s.ackMSN()})
}

// queueNAK queues a NAK for psn.
func (q *QP) queueNAK(nak bth.Syndrome, psn bth.PSN) {
	s := &q.responder
	s.answers.acknowledge(answer{kind: answerAck, syndrome: nak, psn: psn, msn: s.msn})
}

// emitResponse builds the next response packet.
func (q *QP) emitResponse(sink frame.Sink) emission {
	s := &q.responder
	if s.answers.empty() || q.path == nil {
		return idle
	}
	a := s.answers.at(s.answers.head)
	var res emission
	switch a.kind {
	case answerAck:
		res = q.emitAck(sink, a)
	case answerAtomic:
		res = q.emitAtomicAck(sink, a)
	case answerFlush, answerAtomicWrite:
		res = q.emitPlaced(sink, a)
	case answerRead:
		return q.emitReadResponse(sink, a)
	}
	if res == emitted {
		s.answers.pop()
	}
	return res
}

// putResponse writes the BTH of a response, an operation of RC.
func (q *QP) putResponse(body []byte, op bth.Opcode, pad int, psn bth.PSN) {
	bth.PutBTH(body, op|q.base, q.mig.bit, pad, bth.DefaultPKey, q.destQPN, psn)
}

func (q *QP) emitAck(sink frame.Sink, a *answer) emission {
	const hdr = bth.BTHLen + bth.AETHLen
	// Only packets without AckReq came since: the ACK covers them, too.
	if s := &q.responder; a == s.answers.lastAck() && a.psn.Less(s.acked) {
		a.psn, a.msn = s.acked, s.ackMSN()
	}
	body, crc, ok := sink.Begin(q.path, hdr+bth.ICRCLen)
	if !ok {
		return blocked
	}
	q.putResponse(body, bth.RCAck, 0, a.psn)
	bth.PutAETH(body[bth.BTHLen:], a.syndrome, a.msn)
	seal(body, hdr, 0, crc)
	sink.Commit()
	q.cnt.SentPkts++
	if a.syndrome != bth.AckNoCredits {
		q.countNAK(a.syndrome)
	}
	return emitted
}

// countNAK counts a NAK that has left.
func (q *QP) countNAK(s bth.Syndrome) {
	switch {
	case s == bth.NAKSequence:
		q.cnt.SeqNAKSent++
		q.incidents().NAKsSent++
	case s.Kind() == bth.KindRNR:
		q.cnt.SendRNRErr++
		q.incidents().RNRsSent++
	default:
		q.cnt.FatalNAKSent++
		q.incidents().NAKsSent++
	}
}

func (q *QP) emitAtomicAck(sink frame.Sink, a *answer) emission {
	if a.length > 0 {
		return q.emitWideAck(sink, a)
	}
	const hdr = bth.BTHLen + bth.AETHLen + bth.AtomicAckETHLen
	body, crc, ok := sink.Begin(q.path, hdr+bth.ICRCLen)
	if !ok {
		return blocked
	}
	q.putResponse(body, bth.RCAtomicAck, 0, a.psn)
	bth.PutAETH(body[bth.BTHLen:], bth.AckNoCredits, a.msn)
	bth.PutAtomicAckETH(body[bth.BTHLen+bth.AETHLen:], a.value)
	seal(body, hdr, 0, crc)
	sink.Commit()
	q.cnt.SentPkts++
	return emitted
}

// emitReadResponse builds one READ response packet. The key is checked for every packet. If
// the region was deregistered meanwhile, or the key invalidated, the READ ends with a NAK:
// the memory may be used for something else by then.
func (q *QP) emitReadResponse(sink frame.Sink, a *answer) emission {
	s := &q.responder
	if q.cc != nil && q.cc.hold() {
		return idle
	}
	n := min(q.mtu, a.length)
	var region mr.Memory
	var at uint64
	var fault mr.Fault
	if n > 0 {
		region, at, fault = s.trail.Remote(q.mem, a.pd, q.num, a.key, a.va, uint64(n), mr.RemoteRead)
		if fault != mr.OK {
			return q.endRead(sink, a)
		}
	}
	last := n == a.length
	op := bth.RCReadResponseMiddle
	switch {
	case !a.started && last:
		op = bth.RCReadResponseOnly
	case !a.started:
		op = bth.RCReadResponseFirst
	case last:
		op = bth.RCReadResponseLast
	}
	hdr := int(op.Info().HeaderLen)
	pad := int(-n & 3)
	body, crc, ok := sink.Begin(q.path, hdr+int(n)+pad+bth.ICRCLen)
	if !ok {
		return blocked
	}
	q.putResponse(body, op, pad, a.psn)
	if hdr > bth.BTHLen {
		bth.PutAETH(body[bth.BTHLen:], bth.AckNoCredits, a.msn)
	}
	if n > 0 {
		if fault = region.ReadAt(body[hdr:hdr+int(n)], at); fault != mr.OK {
			return q.endRead(sink, a)
		}
	}
	seal(body, hdr+int(n), pad, crc)
	sink.Commit()
	if q.cc != nil {
		q.cc.spend()
	}
	q.cnt.SentPkts++
	a.started = true
	a.psn = a.psn.Add(1)
	a.va += uint64(n)
	a.length -= n
	if last {
		s.answers.pop()
	}
	return emitted
}

// endRead answers a READ whose memory is gone: a NAK replaces the response that is due and
// those behind it.
//
// A duplicate READ does not fail this queue pair. The requester may have received all data,
// and the program may have ended the key for that reason, long before the network delivers
// the duplicate; such a requester ignores the NAK. A requester that does miss a response
// gets the NAK that it would have got the first time.
func (q *QP) endRead(sink frame.Sink, a *answer) emission {
	if a.repeated {
		q.cnt.DupDropped++
		*a = answer{kind: answerAck, syndrome: bth.NAKRemoteAccess, psn: a.psn, msn: q.responder.msn}
		return q.emitResponse(sink)
	}
	psn := a.psn
	q.responder.answers.clear()
	q.refuse(remoteAccess, psn)
	return q.emitResponse(sink)
}
