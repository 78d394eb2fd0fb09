package qp

import (
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mono"
)

// Emit builds packets into sink until there is nothing to send, the sink is full, or the
// queue pair has had a fair share. It reports whether it has more to send. Responses go
// before requests, with two exceptions: a single acknowledgement lets one request pass, and
// if there are always both kinds they take turns of emitBurst packets. So neither kind keeps
// the other from being sent, however many requests the peer sends.
func (q *QP) Emit(now mono.Time, sink frame.Sink) (more bool) {
	if q.typ == DCT {
		return q.emitTarget(now, sink)
	}
	if q.owes && q.emitFinal(now, sink) == blocked {
		return true
	}
	if q.cc != nil {
		if q.emitCNP(sink) == blocked {
			return true
		}
		sink = q.cc.meter(now, sink)
	}
	emitRequest := q.requests()
	if q.passed {
		q.passed = false
	} else if q.requestMayPass() && emitRequest(q, now, sink) == blocked {
		return true
	}
	for range emitBudget {
		if !q.responder.answers.empty() && q.requestTurn == 0 {
			switch q.emitResponse(sink) {
			case emitted:
				if q.answerTurn++; q.answerTurn == emitBurst {
					q.answerTurn, q.requestTurn = 0, emitBurst
				}
				continue
			case blocked:
				return true
			}
		}
		switch emitRequest(q, now, sink) {
		case emitted:
			q.answerTurn = 0
			if q.requestTurn != 0 {
				q.requestTurn--
			}
		case blocked:
			return true
		default:
			if q.requestTurn == 0 {
				return false
			}
			q.requestTurn = 0 // there is no request: the responses go on
		}
	}
	return true
}

// EmitPassing builds one request if a single acknowledgement is the only answer that is due: the request passes it.
// The caller calls Emit afterwards. If a caller calls EmitPassing of several queue pairs first, their requests leave
// one behind the other. The driver may then send packets of one length as a super-packet; an acknowledgement between
// two requests would end it.
func (q *QP) EmitPassing(now mono.Time, sink frame.Sink) {
	if q.cc == nil && q.typ != DCT && !q.passed && q.requestMayPass() {
		q.passed = q.requests()(q, now, sink) != blocked
	}
}

// requests returns the function that builds the next request packet of the queue pair's service.
func (q *QP) requests() func(*QP, mono.Time, frame.Sink) emission {
	if q.typ == RC {
		return (*QP).emitRequest
	}
	return (*QP).emitOther
}

// requestMayPass reports whether a single acknowledgement is the only answer that is due. A request is more urgent
// for the peer.
func (q *QP) requestMayPass() bool {
	a := &q.responder.answers
	return a.len() == 1 && a.lastAck() != nil
}

// OwesOnlyACK reports whether the queue pair has nothing to send but a positive acknowledgement, or nothing at all.
func (q *QP) OwesOnlyACK() bool {
	a := &q.responder.answers
	return q.typ != DCT && (q.dci == nil || !q.dci.leaving) && q.cc == nil && !q.owes && (a.empty() || q.requestMayPass()) && !q.hasRequests()
}

// emitBurst is how many responses in a row are sent while requests wait, and then how many
// requests while responses wait: enough for a full super-packet.
const emitBurst = emitBudget

// emitBudget is how many packets one Emit may build, so that one queue pair
// cannot keep the port from the others.
const emitBudget = 64

// emission is the result of trying to build a packet.
type emission uint8

const (
	idle    emission = iota // nothing to send now
	emitted                 // one packet built, or a local operation done
	blocked                 // the sink has no room
)
