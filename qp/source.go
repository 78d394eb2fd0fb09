package qp

import "github.com/goroce/roce/bth"

// Source returns the only address from which the queue pair takes packets: that of its peer. one is false if it may
// take packets from several addresses or from every address, and while it has no path yet: a datagram queue pair, one
// that is dynamically connected, and one with an alternate path or whose peer may still send over the path before a
// migration.
func (q *QP) Source() (from bth.GID, one bool) {
	others := q.mig.others
	if q.path == nil || q.typ >= DCI || others != nil && (others.alt != nil || others.late != ends{}) {
		return bth.GID{}, false
	}
	return q.peerGID, true
}

// Dry reports whether the queue pair is a datagram queue pair with a receive queue of its own
// that is empty: it drops every datagram until the program posts a receive. False: it has
// receives, it shares the receives of an SRQ, or it is of another service.
func (q *QP) Dry() bool { return q.typ == UD && q.srq == nil && q.rq.empty() }
