package qp

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mono"
)

// notification is the notification point: it tells the peer that the peer's packets meet congestion.
type notification struct {
	path ecnPaths  // of the path in use
	alt  ecnPaths  // of the alternate path, made in advance
	due  bool      // a CNP is to be sent
	next mono.Time // earliest time of the next CNP
}

// ecnPaths is a path with the variants that congestion control derives from it.
type ecnPaths struct {
	of   *frame.Path
	data *frame.Path // ECN-capable
	cnp  *frame.Path // in the traffic class of CNPs; ECN-capable, too, as with adapters
}

func (c *congestion) ecnPaths(p *frame.Path) ecnPaths {
	return ecnPaths{p, p.WithTrafficClass(p.Config().TrafficClass&^ecnMask | c.ect()), p.WithTrafficClass(c.CNPDSCP<<2 | c.ect())}
}

// marked counts a packet that a switch marked as congested. The first such packet causes a CNP at once. Later ones
// cause at most one CNP in each CNPInterval.
func (q *QP) marked(now mono.Time, f bth.OpcodeFlags) {
	q.cnt.ECNMarked++
	q.incidents().Marked++
	if c := q.cc; c != nil && dataPacket(f) && now >= c.next {
		c.due, c.next = true, now.Add(c.CNPInterval)
	}
}

// setPath sets the path of the queue pair and returns its ECN-capable variant, which data packets use.
func (c *congestion) setPath(p *frame.Path) *frame.Path {
	if c.path = c.alt; c.path.of != p {
		c.path = c.ecnPaths(p)
	}
	return c.path.data
}

// emitCNP builds the CNP that is due:
//
//	+---------------+-------------------------------+-----------+
//	| BTH (12), B=1 | reserved, zero (16)           | ICRC (4)  |
//	+---------------+-------------------------------+-----------+
//
// PSN and all flags but B are 0 (annex A17.9). It waits neither for the window
// nor for the pacer: it is about the other direction.
func (q *QP) emitCNP(sink frame.Sink) emission {
	c := q.cc
	if !c.due {
		return idle
	}
	if !q.receives() {
		c.due = false
		return idle
	}
	const hdr = bth.BTHLen + bth.CNPReservedLen
	body, crc, ok := sink.Begin(c.path.cnp, hdr+bth.ICRCLen)
	if !ok {
		return blocked
	}
	bth.PutBTH(body, bth.CNP, 0, 0, bth.DefaultPKey, q.destQPN, 0)
	clear(body[bth.BTHLen:hdr])
	seal(body, hdr, 0, crc)
	bth.PutBTH(body, bth.CNP, bth.BECN, 0, bth.DefaultPKey, q.destQPN, 0) // not covered by the ICRC
	sink.Commit()
	c.due = false
	q.cnt.SentPkts++
	q.cnt.CNPsSent++
	q.incidents().CNPsSent++
	return emitted
}

// receives reports whether the queue pair is in a state where it takes requests.
func (q *QP) receives() bool {
	switch q.state {
	case RTR, RTS, SQD, SQE:
		return true
	}
	return false
}

// handleCNP handles a CNP from the peer. It ignores a CNP from another address, which says nothing about the path to
// the peer.
func (q *QP) handleCNP(now mono.Time, p *frame.Packet) {
	switch {
	case q.cc == nil:
		q.cnt.CNPsIgnored++
	case !q.receives():
		q.cnt.WrongState++
	case p.Src != q.peerGID || p.Dst != q.ownGID:
		q.cnt.WrongPeer++
	default:
		q.cnt.RcvdPkts++
		q.cnt.CNPsHandled++
		q.incidents().CNPsReceived++
		q.cc.reduce(now)
	}
}
