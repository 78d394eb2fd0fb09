package qp

import "github.com/goroce/roce/mono"

// SplitReads makes READs of more than n packets go out as several requests, as
// those beyond half a window do otherwise.
func (q *QP) SplitReads(n uint32) { q.readPSNs = n }

// RetryTimeout is NextTimeout without the probes.
func (q *QP) RetryTimeout() mono.Time {
	return min(q.requester.ackDeadline, q.requester.rnrDeadline)
}

// InFlight is how many packets may be on the way now.
func (q *QP) InFlight() int { return int(q.requester.flight.window) }
