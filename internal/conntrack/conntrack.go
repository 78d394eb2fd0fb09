// Package conntrack finds out which connection a RoCE packet belongs to, and its PSN relative to the
// first of the connection. It watches from a place in the path between the two ends.
//
// A connection that the connection manager makes is known from the handshake: REQ and REP carry the
// queue pair numbers and the starting PSNs. Of one that is made out of band, the first request to a
// queue pair has relative PSN 0, and the first response that fits joins the two directions. A
// packet has only the number of the queue pair that it is for, so that is a guess: the response
// must come from the address that the requests went to, and acknowledge a PSN that was requested.
//
// A Table does no I/O. It allocates for a new connection only, and its memory is bounded.
package conntrack

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
)

const (
	maxFlows    = 1 << 17 // directions of connections
	maxRequests = 1 << 12 // of the connection manager, without their REP
	maxOpen     = 1 << 12 // flows without the opposite direction
)

// Place is where a packet belongs.
type Place struct {
	Conn  int  // number of the connection, from 1 in the order of their beginnings; 0: none
	Rel   int  // PSN relative to the first of the requester
	Known bool // Rel is known
}

// end names a queue pair: the address, and the number.
type end struct {
	addr bth.GID
	qpn  bth.QPN
}

// flow is what goes to one queue pair.
type flow struct {
	to    end
	conn  int
	src   bth.GID
	start bth.PSN // of the requests
	last  bth.PSN // the latest PSN that was requested
	known bool    // start and last are set
	peer  *flow   // the opposite direction; nil: not known yet
	cm    bool    // known from a handshake
}

// request is a REQ that waits for its REP.
type request struct {
	qpn   bth.QPN
	start bth.PSN
}

// sender names a REQ: its source, and the identifier it chose.
type sender struct {
	addr bth.GID
	id   cm.CommID
}

// Table has the connections. The zero value is not usable: see New.
type Table struct {
	flows    map[end]*flow
	requests map[sender]request
	open     []*flow // without the opposite direction, oldest first
	conns    int
}

// New returns an empty table.
func New() *Table {
	return &Table{flows: make(map[end]*flow), requests: make(map[sender]request)}
}

// Len returns how many connections were seen.
func (t *Table) Len() int { return t.conns }

// Observe notes a packet from src to dst, and says where it belongs.
func (t *Table) Observe(src, dst bth.GID, p *bth.Packet) Place {
	qpn := p.DestQPN()
	switch {
	case qpn == bth.QPNGSI:
		t.manage(src, dst, p)
		return Place{}
	case p.Op.Transport() == bth.UD || p.Op == bth.CNP:
		f := t.flows[end{dst, qpn}]
		if f == nil {
			return Place{}
		}
		return Place{Conn: f.conn}
	}
	f := t.flows[end{dst, qpn}]
	if f == nil {
		if f = t.add(end{dst, qpn}, src); f == nil {
			return Place{}
		}
	}
	if p.Info.Flags&bth.Response != 0 {
		if f.peer == nil {
			t.pair(f, src, dst, p.PSN())
		}
		if f.peer == nil || !f.peer.known {
			return Place{Conn: f.conn}
		}
		return Place{f.conn, int(p.PSN().Sub(f.peer.start)), true}
	}
	last := p.PSN()
	if p.Info.Flags&bth.Read != 0 {
		// The responses take the PSNs behind it. How many depends on the MTU: at most this many.
		last = last.Add(int(min(p.DMALen()/uint32(bth.MTU256.Bytes()), 1<<22)))
	}
	if !f.known {
		f.known, f.start, f.last = true, p.PSN(), last
	} else if f.last.Less(last) {
		f.last = last
	}
	return Place{f.conn, int(p.PSN().Sub(f.start)), true}
}

// add begins a connection with the packets to one of its ends. It returns nil if the table is full.
func (t *Table) add(to end, src bth.GID) *flow {
	if len(t.flows) >= maxFlows {
		return nil
	}
	t.conns++
	f := &flow{to: to, conn: t.conns, src: src}
	t.flows[to] = f
	if len(t.open) == maxOpen {
		t.open = append(t.open[:0], t.open[1:]...)
	}
	t.open = append(t.open, f)
	return f
}

// pair looks for the requests that a response to flow f answers.
func (t *Table) pair(f *flow, src, dst bth.GID, psn bth.PSN) {
	for i := len(t.open) - 1; i >= 0; i-- {
		q := t.open[i]
		if q == f || q.src != dst || q.to.addr != src || !q.known || psn.Less(q.start) || q.last.Less(psn) {
			continue
		}
		q.peer, f.peer = f, q
		f.conn = min(f.conn, q.conn)
		q.conn = f.conn
		t.prune()
		return
	}
}

// prune forgets the open flows that have found the opposite direction.
func (t *Table) prune() {
	n := 0
	for _, f := range t.open {
		if f.peer == nil {
			t.open[n] = f
			n++
		}
	}
	clear(t.open[n:])
	t.open = t.open[:n]
}

// manage takes a management datagram.
func (t *Table) manage(src, dst bth.GID, p *bth.Packet) {
	m, err := cm.DecodeMAD(p.Payload())
	if err != nil {
		return
	}
	switch m := m.(type) {
	case *cm.REQ:
		if len(t.requests) >= maxRequests {
			clear(t.requests) // of a flood; the connections of those are found by their packets
		}
		t.requests[sender{src, m.LocalID}] = request{m.QPN, m.StartingPSN}
	case *cm.REP:
		q, ok := t.requests[sender{dst, m.RemoteID}]
		if !ok || len(t.flows)+2 > maxFlows {
			return
		}
		t.accept(end{dst, q.qpn}, end{src, m.QPN}, q.start, m.StartingPSN)
	}
}

// accept notes a connection of two ends and the first PSNs to them.
func (t *Table) accept(active, passive end, toActive, toPassive bth.PSN) {
	a, p := t.flows[active], t.flows[passive]
	if a != nil && a.cm && a.peer == p && a.start == toActive && p.start == toPassive {
		return // the REP was repeated
	}
	t.conns++
	a = &flow{to: active, conn: t.conns, src: passive.addr, start: toActive, last: toActive, known: true, cm: true}
	p = &flow{to: passive, conn: t.conns, src: active.addr, start: toPassive, last: toPassive, known: true, cm: true}
	a.peer, p.peer = p, a
	t.flows[active], t.flows[passive] = a, p
}
