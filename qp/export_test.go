package qp

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mono"
)

// SplitReads makes READs of more than n packets go out as several requests, as
// those beyond half a window do otherwise.
func (q *QP) SplitReads(n uint32) { q.readPSNs = n }

// RetryTimeout is NextTimeout without the probes.
func (q *QP) RetryTimeout() mono.Time {
	return min(q.requester.ackDeadline, q.requester.rnrDeadline)
}

// InFlight is how many packets may be on the way now.
func (q *QP) InFlight() int { return int(q.requester.window) }

// SentTwice reports whether outstanding requests may have been sent more than once.
func (q *QP) SentTwice() bool { return q.requester.single.twiceValid }

// HandleSlowly is HandlePacket without the fast paths.
func (q *QP) HandleSlowly(now mono.Time, p *frame.Packet) {
	r := &q.requester
	if psn := p.PSN(); p.Op == bth.RCReadResponseOnly && (q.state == RTS || q.state == SQD) && !psn.Less(r.acked) && psn.Less(r.max) {
		q.cnt.RcvdPkts++
		q.handleOutstanding(now, p, psn)
		return
	}
	q.handleOther(now, p)
}

// HandleAlone is HandlePacket for a packet without a pass.
func (q *QP) HandleAlone(now mono.Time, p *frame.Packet) { q.handleOther(now, p) }

// Idents is what the queue pair knows about the Identifications of its peer.
func (q *QP) Idents() any { return q.idents }

// LookForRepairs has both ends of the queue pair look whether a repair is in progress.
func (q *QP) LookForRepairs() {
	q.requester.repairing, q.responder.repairing = q.repair != nil, q.repair != nil
}
