package qp

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/recent"
	"github.com/goroce/roce/mono"
)

// A context is the state that a target keeps for one connected initiator. It is small until the first data packet
// arrives. A data packet has the random number that the target sent in ACCEPT. So its sender has received ACCEPT, and
// has not forged the address of an initiator. Then the context gets a responder, which it keeps until the initiator
// leaves. A target keeps no memory for initiators that are not connected.

// dcOrigin is the source of a packet. The Ethernet address is zero on links that do not report it. It is part of the
// origin because a target may have to answer an Ethernet address that it cannot look up. If a host forges the IP
// address of an initiator, that host gets the answers to its own packets, and the initiator gets the answers to its
// packets.
type dcOrigin struct {
	gid bth.GID
	mac frame.MAC
}

func originOf(p *frame.Packet) dcOrigin { return dcOrigin{p.Src, p.SrcMAC} }

// dcInitiator names an initiator.
type dcInitiator struct {
	dcOrigin
	qpn bth.QPN
}

// dcContext is a connection at the target.
type dcContext struct {
	recent.Entry[*dcContext] // by its last packet

	qpn        bth.QPN // of the initiator
	number     uint32  // random: a sender that has not seen ACCEPT would have to guess it
	connection uint32  // the initiator's number of the connection
	psn        bth.PSN
	depth      uint8
	mtu        bth.MTU
	queued     bool // on target.ready
	proven     bool // a request has come: its sender has received ACCEPT
	source     *dcSource
	responder  *QP        // nil before the first packet of data, and when the initiator has left
	sibling    *dcContext // the next older one of the same initiator
}

// maxDCAttempts limits the contexts of one initiator that wait for their first request. An initiator makes one
// attempt at a time; further CONNECTs are late or forged.
const maxDCAttempts = 8

// siblings describes the contexts of one initiator.
type siblings struct {
	used     *dcContext // the context in which requests have arrived
	oldest   *dcContext // the oldest of the other contexts
	attempts int        // number of the other contexts
}

// attempt returns the context of a connection number of an initiator, or nil, and a description of all its contexts.
func (t *target) attempt(i dcInitiator, connection uint32) (found *dcContext, known siblings) {
	for c := t.initiators[i]; c != nil; c = c.sibling {
		switch {
		case c.connection == connection:
			found = c
		case c.proven:
			known.used = c
		}
		if !c.proven {
			known.oldest = c
			known.attempts++
		}
	}
	return found, known
}

// prove handles the first request of a context. It ends the context that the initiator used before and returns true.
// If that context belongs to a later connection, the request is late: prove ends c instead and returns false.
func (q *QP) prove(c *dcContext) bool {
	_, known := q.dct.attempt(c.initiator(), c.connection)
	if u := known.used; u != nil {
		if int32(c.connection-u.connection) < 0 {
			q.dropContext(c)
			return false
		}
		q.dropContext(u)
	}
	c.proven = true
	return true
}

func (c *dcContext) initiator() dcInitiator { return dcInitiator{c.source.dcOrigin, c.qpn} }

// dcSource is an origin from which initiators are connected.
type dcSource struct {
	dcOrigin
	path     *frame.Path
	contexts int
}

// newContext makes a context for the sender of a CONNECT, given a description of its contexts. It returns nil if
// there is no room or no path back. If there is no room, it ends the oldest attempt of the same initiator, but never
// the context that the initiator uses, because the CONNECT may be forged. An initiator that uses a context always
// gets one for its first attempt to connect anew: when it sends a request in the new context, the old one ends. So
// there are at most twice MaxInitiators contexts. Otherwise newContext ends the context that was unused for longest,
// if that was at least dcEvictable.
func (q *QP) newContext(now mono.Time, p *frame.Packet, x bth.DCCETHFields, known *siblings) *dcContext {
	t := q.dct
	from := originOf(p)
	s := t.sources[from]
	greedy := s != nil && s.contexts >= (t.MaxInitiators+1)/2 && len(t.sources) > 1
	full := len(t.contexts) >= t.MaxInitiators
	switch oldest, used, ok := t.order.Oldest(); {
	case known.attempts >= maxDCAttempts, (greedy || full) && known.attempts > 0:
		q.dropContext(known.oldest)
	case !greedy && !full || known.used != nil:
	case greedy || !ok || now.Sub(used) < dcEvictable:
		return nil
	default:
		q.dropContext(oldest)
	}
	s = t.sources[from]
	if s == nil {
		path := t.PathBack(p, true)
		if path == nil {
			return nil
		}
		s = &dcSource{dcOrigin: from, path: path}
		t.sources[from] = s
	}
	s.contexts++
	c := &dcContext{qpn: p.DCETH().QPN, number: uint32(t.Rand()), connection: x.Connection, psn: p.PSN(),
		depth: min(x.Depth, t.MaxDestRdAtomic), mtu: bth.MTU(x.MTU), source: s}
	for t.contexts[c.number] != nil {
		c.number++
	}
	i := c.initiator()
	c.sibling = t.initiators[i]
	t.contexts[c.number], t.initiators[i] = c, c
	t.order.Add(now, &c.Entry, c)
	q.dcDeadline = min(q.dcDeadline, now.Add(DCContextIdle))
	return c
}

// dropContext ends a context. A receive that a message has begun to use is flushed.
func (q *QP) dropContext(c *dcContext) {
	if c.responder != nil {
		c.responder.fail(cq.WRFlushErr)
		c.responder = nil
	}
	q.dct.unlink(c)
}

// unlink takes a context out of the tables.
func (t *target) unlink(c *dcContext) {
	t.order.Remove(&c.Entry)
	delete(t.contexts, c.number)
	if i := c.initiator(); t.initiators[i] != c {
		at := t.initiators[i]
		for at.sibling != c {
			at = at.sibling
		}
		at.sibling = c.sibling
	} else if c.sibling != nil {
		t.initiators[i] = c.sibling
	} else {
		delete(t.initiators, i)
	}
	c.sibling = nil
	if c.source.contexts--; c.source.contexts == 0 {
		delete(t.sources, c.source.dcOrigin)
		t.released(c.source.path)
	}
}

func (t *target) released(p *frame.Path) {
	if t.PathBackReleased != nil {
		t.PathBackReleased(p)
	}
}

// forgetIdle ends the contexts that were not used for long.
func (q *QP) forgetIdle(now mono.Time) {
	t := q.dct
	if t == nil {
		return
	}
	for c, used, ok := t.order.Oldest(); ok; c, used, ok = t.order.Oldest() {
		if end := used.Add(DCContextIdle); now.Before(end) {
			q.dcDeadline = end
			return
		}
		q.dropContext(c)
	}
}

// newResponder makes the responder of a context: the answering half of an RC queue
// pair under the number of the target.
func (q *QP) newResponder(c *dcContext) *QP {
	t := q.dct
	r := &QP{num: q.num, typ: DCT, base: dcBase, mem: q.mem, pd: q.pd, recvCQ: q.recvCQ, srq: q.srq, cnt: q.cnt, onEvent: t.onEvent,
		window: DefaultWindow, autoWindow: true, portMTU: q.portMTU}
	r.reset()
	r.state, r.access, r.destQPN = RTR, t.Access, c.qpn
	r.setMTU(c.mtu)
	r.setPath(c.source.path)
	s := &r.responder
	s.established = true
	s.expect, s.acked, s.minRNR = c.psn, c.psn.Add(-1), t.MinRNRTimer
	s.setResources(int(c.depth), t.Access)
	return r
}
