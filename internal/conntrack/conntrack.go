// Package conntrack finds out which connection a RoCE packet belongs to, and its PSN relative to the first PSN
// of the connection. It sees the packets on the path between the two hosts.
//
// A connection that the connection manager makes is known from the handshake: REQ and REP carry the
// queue pair numbers and the starting PSNs. A connection that is made out of band has no handshake. Its first
// request to a queue pair gets relative PSN 0. The table assumes that the first response that fits belongs to
// the same connection. That is a guess, because a packet has only the number of its destination queue pair: the
// response must come from the address that the requests went to, and acknowledge a PSN that was requested.
//
// A Table does no I/O, and takes the time as an argument. It allocates only for a new connection. Its memory is
// bounded: it forgets connections that the connection manager has ended (DREQ, REJ) and those without packets
// for a long time. A full table forgets the connections that have been without packets for the longest time.
// Forgotten says how many of them were in use.
package conntrack

import (
	"slices"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/recent"
	"github.com/goroce/roce/mono"
)

const (
	maxFlows    = 1 << 17 // directions of connections
	maxRequests = 1 << 12 // of the connection manager
	maxOpen     = 1 << 12 // flows without the opposite direction
)

// When connections are forgotten.
const (
	// Idle is how long a connection is in use after a packet. Within this time packets are sent again.
	Idle = time.Minute

	closedTime = time.Minute // after its end: late packets must not begin a new connection
	silentTime = time.Hour   // after its last packet, if no message has ended it
)

// Place is where a packet belongs.
type Place struct {
	Conn  int  // number of the connection, from 1 in the order of their beginnings; 0: none
	Rel   int  // PSN relative to the first PSN of the requester; it does not wrap at 2^24
	Known bool // Rel is known
}

// end names a queue pair: the address, and the number.
type end struct {
	addr bth.GID
	qpn  bth.QPN
}

// direction identifies the packets of a connection that one host sends: their source address and their
// destination queue pair.
type direction struct {
	src bth.GID
	to  end
}

// conn is a connection. It has only one direction until the table finds the opposite one.
type conn struct {
	recent.Entry[*conn] // of Table.live or Table.closed
	number              int
	flows               [2]*flow
	closed              bool
}

// over reports whether the time has come to forget a connection.
func (c *conn) over(now mono.Time) bool {
	if c.closed {
		return now.Sub(c.Used()) > closedTime
	}
	return now.Sub(c.Used()) > silentTime
}

// flow is the state of the packets that one host sends to one queue pair.
type flow struct {
	direction
	conn    *conn   // nil: the table has forgotten it
	start   bth.PSN // the first PSN that was requested
	last    bth.PSN // the latest PSN that was requested
	lastRel int     // relative to start
	known   bool    // start, last and lastRel are set
	peer    *flow   // the opposite direction; nil: not known yet
}

// rel returns a PSN relative to the start. A PSN has 24 bits, so rel takes the one nearest to the latest
// request.
func (f *flow) rel(psn bth.PSN) int { return f.lastRel + int(psn.Sub(f.last)) }

// begun returns a flow whose first request has the PSN start.
func begun(w direction, start bth.PSN) *flow {
	return &flow{direction: w, start: start, last: start, known: true}
}

// request is a REQ.
type request struct {
	recent.Entry[*request]
	sender
	to    bth.GID
	qpn   bth.QPN
	start bth.PSN
	made  *conn // the connection that the REQ has become; nil: none yet
}

// sender names a REQ: its source, and the identifier it chose.
type sender struct {
	addr bth.GID
	id   cm.CommID
}

// Table has the connections. The zero value is not usable: see New.
type Table struct {
	flows     map[direction]*flow
	live      recent.List[*conn] // by their last packet
	closed    recent.List[*conn] // by their end
	requests  map[sender]*request
	asked     recent.List[*request]
	open      []*flow // without the opposite direction, oldest first
	conns     int
	forgotten uint64
}

// New returns an empty table.
func New() *Table {
	return &Table{flows: make(map[direction]*flow), live: recent.List[*conn]{Slack: Idle / 64}, requests: make(map[sender]*request)}
}

// Len returns how many connections were seen.
func (t *Table) Len() int { return t.conns }

// Forgotten returns how many connections that were in use the table has forgotten because it was full. The next packet of such
// a connection began another one.
func (t *Table) Forgotten() uint64 { return t.forgotten }

// Observe notes a packet from src to dst, and says where it belongs.
func (t *Table) Observe(now mono.Time, src, dst bth.GID, p *bth.Packet) Place {
	qpn := p.DestQPN()
	if qpn == bth.QPNGSI {
		t.manage(now, src, dst, p)
		return Place{}
	}
	w := direction{src, end{dst, qpn}}
	f := t.flows[w]
	if f != nil && f.conn.over(now) {
		t.forget(f.conn)
		f = nil
	}
	datagram := p.Op.Transport() == bth.UD || p.Op == bth.CNP
	switch {
	case f == nil && datagram:
		return Place{}
	case f == nil:
		f = t.add(now, w)
	case !f.conn.closed:
		t.live.Touch(now, &f.conn.Entry)
	}
	if datagram {
		return Place{Conn: f.conn.number}
	}
	if p.Info.Flags&bth.Response != 0 {
		if f.peer == nil && !f.conn.closed {
			t.pair(f, src, dst, p.PSN())
		}
		if f.peer == nil || !f.peer.known {
			return Place{Conn: f.conn.number}
		}
		return Place{f.conn.number, f.peer.rel(p.PSN()), true}
	}
	last := p.PSN()
	if p.Info.Flags&bth.Read != 0 {
		// The responses take the following PSNs. Their number depends on the path MTU, which is unknown here:
		// this is the maximum.
		last = last.Add(int(min(p.DMALen()/uint32(bth.MTU256.Bytes()), 1<<22)))
	}
	if !f.known {
		f.known, f.start, f.last = true, p.PSN(), p.PSN()
	}
	rel := f.rel(p.PSN())
	if f.last.Less(last) {
		f.last, f.lastRel = last, f.rel(last)
	}
	return Place{f.conn.number, rel, true}
}

// add begins a connection of which only one direction is known.
func (t *Table) add(now mono.Time, w direction) *flow {
	f := &flow{direction: w}
	t.begin(now, f, nil)
	if len(t.open) == maxOpen {
		t.open = slices.Delete(t.open, 0, 1)
	}
	t.open = append(t.open, f)
	return f
}

// begin begins a connection of one or two flows.
func (t *Table) begin(now mono.Time, flows ...*flow) *conn {
	t.makeRoom(now)
	t.conns++
	c := &conn{number: t.conns}
	for i, f := range flows {
		if f != nil {
			f.conn, c.flows[i], t.flows[f.direction] = c, f, f
		}
	}
	t.live.Add(now, &c.Entry, c)
	return c
}

// makeRoom forgets the expired connections, and then others, until there is room for one more.
func (t *Table) makeRoom(now mono.Time) {
	for _, list := range []*recent.List[*conn]{&t.closed, &t.live} {
		for c, _, ok := list.Oldest(); ok && c.over(now); c, _, ok = list.Oldest() {
			t.forget(c)
		}
	}
	for len(t.flows)+2 > maxFlows {
		c, _, ok := t.closed.Oldest()
		if !ok {
			if c, _, _ = t.live.Oldest(); now.Sub(c.Used()) < Idle {
				t.forgotten++
			}
		}
		t.forget(c)
	}
}

// forget removes a connection.
func (t *Table) forget(c *conn) {
	if c.closed {
		t.closed.Remove(&c.Entry)
	} else {
		t.live.Remove(&c.Entry)
	}
	for _, f := range c.flows {
		if f != nil {
			delete(t.flows, f.direction)
			f.conn = nil
		}
	}
}

// end notes that a connection is over.
func (t *Table) end(now mono.Time, c *conn) {
	if c == nil || c.closed {
		return
	}
	t.live.Remove(&c.Entry)
	c.closed = true
	t.closed.Add(now, &c.Entry, c)
}

// pair looks for the requests that a response to flow f answers. If it finds them, it makes the two flows one
// connection, which keeps the lower number.
func (t *Table) pair(f *flow, src, dst bth.GID, psn bth.PSN) {
	for i := len(t.open) - 1; i >= 0; i-- {
		q := t.open[i]
		if q == f || q.conn == nil || q.conn.closed || q.src != dst || q.to.addr != src || !q.known || q.rel(psn) < 0 || q.rel(psn) > q.lastRel {
			continue
		}
		c, other := f.conn, q.conn
		if other.number < c.number {
			c, other = other, c
		}
		t.live.Remove(&other.Entry)
		q.peer, f.peer, q.conn, f.conn, c.flows = f, q, c, c, [2]*flow{f, q}
		// Remove the flows whose opposite direction is known, and the forgotten ones.
		t.open = slices.DeleteFunc(t.open, func(f *flow) bool { return f.peer != nil || f.conn == nil })
		return
	}
}

// manage handles a management datagram. The DREQ already ends a connection, so manage ignores the DREP.
func (t *Table) manage(now mono.Time, src, dst bth.GID, p *bth.Packet) {
	m, err := cm.DecodeMAD(p.Payload())
	if err != nil {
		return
	}
	switch m := m.(type) {
	case *cm.REQ:
		r := t.request(now, sender{src, m.LocalID})
		r.to, r.qpn, r.start = dst, m.QPN, m.StartingPSN
	case *cm.REP:
		if r := t.requests[sender{dst, m.RemoteID}]; r != nil && r.to == src {
			r.made = t.accept(now, end{dst, r.qpn}, end{src, m.QPN}, r.start, m.StartingPSN)
		}
	case *cm.REJ:
		t.reject(now, sender{dst, m.RemoteID}, src) // the sender refuses the REQ of the receiver,
		t.reject(now, sender{src, m.LocalID}, dst)  // or refuses a REP that has answered its own REQ
	case *cm.DREQ:
		if f := t.flows[direction{src, end{dst, m.RemoteQPN}}]; f != nil {
			t.end(now, f.conn)
		}
	}
}

// request returns the REQ of a sender, or makes a new one. If there are too many, it forgets the oldest REQ:
// the table then recognises that connection only by its packets.
func (t *Table) request(now mono.Time, of sender) *request {
	if r := t.requests[of]; r != nil {
		t.asked.Renew(now, &r.Entry)
		return r
	}
	if len(t.requests) >= maxRequests {
		oldest, _, _ := t.asked.Oldest()
		t.drop(oldest)
	}
	r := &request{sender: of}
	t.asked.Add(now, &r.Entry, r)
	t.requests[of] = r
	return r
}

// drop forgets a REQ.
func (t *Table) drop(r *request) {
	t.asked.Remove(&r.Entry)
	delete(t.requests, r.sender)
}

// reject notes that the REQ of a sender to an address leads to no connection.
func (t *Table) reject(now mono.Time, of sender, to bth.GID) {
	if r := t.requests[of]; r != nil && r.to == to {
		t.end(now, r.made)
		t.drop(r)
	}
}

// accept returns the connection between two ends, with the first PSNs to them. It adds the connection to the
// table unless the REP was repeated.
func (t *Table) accept(now mono.Time, active, passive end, toActive, toPassive bth.PSN) *conn {
	there, back := direction{active.addr, passive}, direction{passive.addr, active}
	a, p := t.flows[back], t.flows[there]
	if a != nil && p != nil && a.peer == p && a.known && p.known && a.start == toActive && p.start == toPassive {
		return a.conn // the REP was repeated
	}
	for _, f := range []*flow{a, p} {
		if f != nil && f.conn != nil { // of an earlier connection
			t.forget(f.conn)
		}
	}
	a, p = begun(back, toActive), begun(there, toPassive)
	a.peer, p.peer = p, a
	return t.begin(now, a, p)
}
