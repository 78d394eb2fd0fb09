package qp

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
)

// dcTarget is the target that a work request of an initiator names.
type dcTarget struct {
	path *frame.Path
	qpn  bth.QPN
	key  uint64
}

// initiate makes a new queue pair a DCI, whose PSNs and connection numbers begin at a random number.
func (q *QP) initiate(first uint64) {
	q.dci = &initiator{connection: uint32(first >> 32)}
	q.requester.postPSN = bth.PSN(first) & bth.PSNMask
}

// same reports whether two work requests can use one connection.
func (t *dcTarget) same(o *dcTarget) bool {
	return t.qpn == o.qpn && t.key == o.key && (t.path == o.path || t.path.Config() == o.path.Config())
}

// dciState is the connection state of an initiator.
type dciState uint8

const (
	dciFree       dciState = iota // connected to none
	dciConnecting                 // CONNECT sent, or about to be
	dciConnected
)

// initiator is the state of a DCI beyond that of an RC requester. PSNs continue from one target to the next. So a
// late answer of an earlier target has a PSN that was acknowledged long ago.
type initiator struct {
	key   uint64 // AttrDCKey
	depth uint8  // AttrMaxRdAtomic; QP.maxRdAtomic is the part of it that the target grants

	state      dciState
	due        bool // a CONNECT is to be sent
	busy       bool // the target had no resources: the deadline ends a wait, not an attempt
	leaving    bool // a DISCONNECT is to be sent
	to         dcTarget
	context    uint32 // the target's number of the connection, from ACCEPT
	connection uint32 // of the last attempt
}

// reset forgets the connection. Connection numbers continue, so that a late answer does not match.
func (d *initiator) reset() { *d = initiator{connection: d.connection} }

// toTarget connects an initiator to the target of its next work request. It first leaves another target. ready is
// true if the initiator is connected to that target, so that emitRequest may be called.
func (q *QP) toTarget(now mono.Time, sink frame.Sink) (res emission, ready bool) {
	d := q.dci
	if q.state != RTS {
		return idle, false
	}
	if d.leaving {
		if q.leaveTarget(sink) == blocked {
			return blocked, false
		}
	}
	if q.sq.cur == q.sq.tail {
		if d.state == dciConnected && q.sq.empty() && q.dcDeadline == mono.Never {
			q.dcDeadline = now.Add(DCLinger)
		}
		return idle, d.state == dciConnected
	}
	rest := q.sq.rest(q.sq.at(q.sq.cur))
	to := dcTarget{rest.ah, rest.destQPN, rest.dcKey}
	switch d.state {
	case dciConnected:
		q.dcDeadline = mono.Never
		if d.to.same(&to) {
			return idle, true
		}
		if q.sq.head != q.sq.cur {
			// The work requests before it must be complete.
			if q.requester.rnrDeadline != mono.Never {
				return idle, false
			}
			return q.requestAckNow(sink), false
		}
		if q.leaveTarget(sink) == blocked {
			return blocked, false
		}
		q.beginConnect(to)
	case dciFree:
		q.beginConnect(to)
	}
	if !d.due {
		return idle, false
	}
	return q.emitConnect(now, sink), false
}

// beginConnect begins an attempt to connect to a target.
func (q *QP) beginConnect(to dcTarget) {
	d, r := q.dci, &q.requester
	d.state, d.to, d.due = dciConnecting, to, true
	d.connection++
	q.setPath(to.path)
	q.destQPN = to.qpn
	r.retryLeft, r.rnrLeft, r.recovering = r.retryCnt, r.rnrRetry, false
	r.srtt, r.rttvar, r.timing, r.window = 0, 0, false, q.window // these were measured with the previous target
}

// emitConnect sends CONNECT and starts the timer of the attempt, which is the ACK
// timer.
func (q *QP) emitConnect(now mono.Time, sink frame.Sink) emission {
	d, r := q.dci, &q.requester
	res := q.emitDC(sink, &dcReply{op: bth.DCConnect, path: q.path, dest: q.destQPN, psn: r.next,
		connect: bth.DCCETHFields{Key: d.to.key, Connection: d.connection, Depth: d.depth, MTU: uint8(q.pmtu)}})
	if res != emitted {
		return res
	}
	d.due, d.busy = false, false
	if r.timeout > 0 {
		q.dcDeadline = now.Add(r.timeout)
	}
	return emitted
}

// leaveTarget sends DISCONNECT once. If that is lost, the target ends the context when this initiator connects again,
// or after DCContextIdle.
func (q *QP) leaveTarget(sink frame.Sink) emission {
	d := q.dci
	if q.emitDC(sink, &dcReply{op: bth.DCDisconnect, path: q.path, dest: q.destQPN, psn: q.requester.next, context: d.context}) == blocked {
		return blocked
	}
	d.leaving, d.state = false, dciFree
	q.dcDeadline = mono.Never
	return emitted
}

// initiatorTimeout handles the end of an attempt that got no answer, of a wait for
// a target without resources, or of a connection that nobody uses.
func (q *QP) initiatorTimeout(mono.Time) {
	d := q.dci
	switch {
	case q.state != RTS:
	case d.state == dciConnected:
		d.leaving = q.sq.empty()
	case d.state == dciConnecting && d.busy:
		d.due = true
	case d.state == dciConnecting:
		q.cnt.LocalAckTimeout++
		q.incidents().Timeouts++
		if q.useRetry() {
			d.due = true
		}
	}
}

// handleTarget processes a packet of the target.
func (q *QP) handleTarget(now mono.Time, p *frame.Packet) {
	d := q.dci
	switch {
	case p.Info.Flags&bth.Request != 0:
		q.cnt.WrongTransport++ // an initiator is no responder
	case p.Op == bth.DCAccept || p.Op == bth.DCReject:
		x := p.DCCETH()
		if d.state != dciConnecting || q.state != RTS || x.Connection != d.connection || p.DCETH().QPN != d.to.qpn {
			q.cnt.GhostAck++
			return
		}
		q.cnt.RcvdPkts++
		q.dcDeadline = mono.Never
		if p.Op == bth.DCReject {
			q.rejected(now, x.Reason)
			return
		}
		d.state, d.due, d.context = dciConnected, false, p.DCETH().Context
		q.maxRdAtomic = d.depth
		if x.Depth != 0 {
			q.maxRdAtomic = min(d.depth, x.Depth)
		}
		q.requester.retryLeft = q.requester.retryCnt
	case d.state != dciConnected:
		q.cnt.GhostAck++
	default:
		q.handleResponse(now, p)
	}
}

// rejected handles a REJECT. If the target has no resources, the initiator connects again later, as a requester does
// after an RNR NAK.
func (q *QP) rejected(now mono.Time, why bth.DCReason) {
	d, r := q.dci, &q.requester
	switch why {
	case bth.DCNoResources:
		q.cnt.RcvdRNRErr++
		q.incidents().RNRsReceived++
		if r.rnrRetry != infiniteRNR {
			if r.rnrLeft == 0 {
				q.cnt.RetryRNRExceeded++
				q.fail(cq.RNRRetryExcErr)
				return
			}
			r.rnrLeft--
		}
		r.retryLeft = r.retryCnt
		d.due, d.busy = false, true
		q.dcDeadline = now.Add(dcBusyWait)
	case bth.DCKeyViolation:
		q.cnt.FatalNAKRcvd++
		q.incidents().NAKsReceived++
		q.fail(cq.RemAccessErr)
	default:
		q.cnt.FatalNAKRcvd++
		q.incidents().NAKsReceived++
		q.fail(cq.RemInvReqErr)
	}
}
