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
	expect bth.PSN // next PSN
	msn    bth.MSN // messages completed
	ahead  bth.PSN // last PSN beyond expect that arrived since the NAK
	nakAt  bth.PSN // PSN of the packet that the NAK answered
	acked  bth.PSN // latest PSN that an ACKNOWLEDGE may name: not that of a READ or atomic

	nakSent     bool  // a NAK for expect was sent: no other one until expect arrives
	nakLeft     uint8 // how often it may be repeated
	established bool  // COMM_EST has been raised
	withheld    bool  // the last executed PSN must not be acknowledged yet: see withholdEnd
	repairing   bool  // a hold is in progress, or its end still matters: executeAndDrain handles requests
	minRNR      bth.RNRTimer

	in    message  // request in progress
	held  bool     // recv is in use
	taken uint64   // bytes of payload in messages completed: see QP.Observe
	trail mr.Trail // of the keys of requests
	pd    *mr.PD   // domain of the memory that the request at hand names

	granted   int    // MaxDestRdAtomic as set
	recv      inUse  // the receive in use: off its queue, not completed yet
	srq       *SRQ   // where the message at hand takes its receive from; nil: the own queue
	from      *SRQ   // where the one in use was taken from
	received  uint32 // bytes of the SEND in progress
	writeLen  uint32 // RETH length, reported by WRITE with immediate
	scatter   cursor
	writeVA   uint64 // where the WRITE in progress continues
	writeKey  bth.RKey
	writeLeft uint32

	answers answerQueue
	saved   savedRing
	wide    *wideResults // nil: no atomic of more than 8 bytes was executed
	served  uint64       // bytes of all READs of the peer

	hold   *hold       // nil: no request is missing, or those behind it are dropped
	gapDue mono.Time   // see gapTimeout
	learnt *peerHabits // nil: the queue pair goes back
}

// nakRepeats is how often a sequence NAK is repeated while packets with AckReq go on to
// arrive behind the gap. The NAK may have been lost; the requester would then go on until
// its window is full and wait for a timer. The standard has one NAK only. A requester that
// takes each copy for another loss, unlike rxe, must have retries left.
const nakRepeats = 3

func (s *responder) reset() {
	s.releaseRecv()
	*s = responder{taken: s.taken, served: s.served, answers: s.answers, saved: s.saved, recv: inUse{long: s.recv.long}, wide: s.wide, gapDue: mono.Never, learnt: s.learnt}
	if s.learnt != nil {
		*s.learnt = peerHabits{}
	}
	s.answers.clear()
	s.saved.clear()
}

// start sets the first PSN.
func (s *responder) start(psn bth.PSN) {
	s.expect, s.acked = psn, psn.Add(-1)
	if s.learnt != nil {
		s.learnt.first = psn
	}
}

// stop abandons the request in progress. Answers that are due already are still sent.
func (s *responder) stop() { s.in = noMessage }

// setResources sets how many READs and atomics are kept. The rxe requester rounds the limit
// up to a power of two and may send that many, so that many are kept.
func (s *responder) setResources(n int, access mr.Access) {
	s.granted = n
	s.saved.resize(ringSize(n))
	s.setAnswers(access)
}

// setAnswers makes room for the answers to all requests that are granted.
func (s *responder) setAnswers(access mr.Access) {
	flushes := 0
	if access&(mr.FlushGlobal|mr.FlushPersistent) != 0 {
		flushes = flushRoom
	}
	s.answers.resize(2*s.saved.cap()+2, flushes)
}

// verdict is the outcome of a responder step.
type verdict uint8

const (
	proceed verdict = iota
	notReady
	noRoom         // no room for the answer until earlier answers have been sent: the request is dropped, and the peer repeats it
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

// handleRequest processes a request packet.
func (q *QP) handleRequest(now mono.Time, p *frame.Packet) {
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
		if q.handleAhead(now, p, psn, d) {
			return
		}
		s.waitForSilence(now)
		// If the requester has gone back and skips the packet again, the packet was lost again.
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
		s.nakSent, s.nakAt = true, psn
		q.queueNAK(bth.NAKSequence, s.expect)
		return
	case d < 0:
		if q.repair != nil {
			q.copyOf(now, psn)
			q.sawRepetition(now, p, psn)
		}
		q.handleDuplicate(p, psn)
		if s.hold != nil && p.AckReq() && s.hold.naks > 0 && now.Sub(s.hold.lastNAK) > silence {
			q.nakGap(now, s.nakAt) // the peer probes: the NAK was lost
		}
		return
	}
	if q.state == RTR && !s.established {
		s.established = true
		q.event(EventCommEst)
	}
	if s.repairing {
		q.executeAndDrain(now, p)
	} else if v := q.execute(p); v != proceed {
		q.refuse(v, psn)
	}
}

// refuse answers a request that was not executed.
func (q *QP) refuse(v verdict, psn bth.PSN) {
	s := &q.responder
	switch v {
	case noRoom:
		q.cnt.DupDropped++
		return
	case notReady:
		if s.learnt != nil {
			s.learnt.long = false // the NAK acknowledges all before it, and the peer waits
		}
		s.nakSent, s.ahead, s.nakLeft = true, psn, 0
		q.queueNAK(bth.RNR(s.minRNR), psn)
		return
	}
	e := &verdicts[v]
	if v >= tooLong {
		q.consumeRecv() // the fault is in the receive, or it is too small
	}
	if s.held {
		q.failRecv(e.status)
	} else {
		q.event(e.event)
	}
	q.flushAll(q.sq.tail, cq.WRFlushErr)
	q.queueNAK(e.nak, psn) // after the completions: one that finds no room clears the answers
}
