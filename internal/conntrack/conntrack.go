// Package conntrack finds out which connection a RoCE packet belongs to, and its PSN relative to the
// first of the connection. It watches from a place in the path between the two ends.
//
// A connection that the connection manager makes is known from the handshake: REQ and REP carry the
// queue pair numbers and the starting PSNs. Of one that is made out of band, the first request to a
// queue pair has relative PSN 0, and the first response that fits joins the two directions. A
// packet has only the number of the queue pair that it is for, so that is a guess: the response
// must come from the address that the requests went to, and acknowledge a PSN that was requested.
//
// A Table does no I/O, and takes the time as an argument. It allocates for a new connection only. Its memory is bounded: it
// forgets connections that were ended by the connection manager (DREQ, REJ) or were silent for long, and when it is full
// those that were silent for longest. Forgotten says how many of them were in use.
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

	closedTime = time.Minute // after its end: packets of it may be late, and must begin no connection
	silentTime = time.Hour   // after its last packet, although nobody has ended it
)

// Place is where a packet belongs.
type Place struct {
	Conn  int  // number of the connection, from 1 in the order of their beginnings; 0: none
	Rel   int  // PSN relative to the first of the requester; it goes on when PSNs begin anew
	Known bool // Rel is known
}

// end names a queue pair: the address, and the number.
type end struct {
	addr bth.GID
	qpn  bth.QPN
}

// way is from an address to a queue pair. What other hosts send to that is not of the connection.
type way struct {
	src bth.GID
	to  end
}

// conn is a connection, of one direction until the opposite one is found.
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

// flow is what one host sends to one queue pair.
type flow struct {
	way
	conn    *conn   // nil: the table has forgotten it
	start   bth.PSN // of the requests
	last    bth.PSN // the latest PSN that was requested
	lastRel int     // relative to start
	known   bool    // these are set
	peer    *flow   // the opposite direction; nil: not known yet
}

// rel returns the place of a PSN relative to the start. It is one of the 2^24 around the latest.
func (f *flow) rel(psn bth.PSN) int { return f.lastRel + int(psn.Sub(f.last)) }

// begun returns the requests of a connection that begin with a PSN.
func begun(w way, start bth.PSN) *flow { return &flow{way: w, start: start, last: start, known: true} }

// request is a REQ.
type request struct {
	recent.Entry[*request]
	sender
	to    bth.GID
	qpn   bth.QPN
	start bth.PSN
	made  *conn // the connection that it has become; nil: none yet
}

// sender names a REQ: its source, and the identifier it chose.
type sender struct {
	addr bth.GID
	id   cm.CommID
}

// Table has the connections. The zero value is not usable: see New.
type Table struct {
	flows     map[way]*flow
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
	return &Table{flows: make(map[way]*flow), live: recent.List[*conn]{Slack: Idle / 64}, requests: make(map[sender]*request)}
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
	w := way{src, end{dst, qpn}}
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
		// The responses take the PSNs behind it. How many depends on the MTU: at most this many.
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

// add begins a connection with the packets to one of its ends.
func (t *Table) add(now mono.Time, w way) *flow {
	f := &flow{way: w}
	t.begin(now, f, nil)
	if len(t.open) == maxOpen {
		t.open = append(t.open[:0], t.open[1:]...)
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
			f.conn, c.flows[i], t.flows[f.way] = c, f, f
		}
	}
	t.live.Add(now, &c.Entry, c)
	return c
}

// makeRoom forgets the connections whose time has come, and then others, until there is room for one more.
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
			delete(t.flows, f.way)
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

// pair looks for the requests that a response to flow f answers. The two flows are one connection then, with the lower number.
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
		t.prune()
		return
	}
}

// prune removes from the open flows those that have found the opposite direction, and those that are forgotten.
func (t *Table) prune() {
	t.open = slices.DeleteFunc(t.open, func(f *flow) bool { return f.peer != nil || f.conn == nil })
}

// manage takes a management datagram. A DREQ that arrives ends the connection; so the DREP tells nothing.
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
		t.reject(now, sender{dst, m.RemoteID}, src) // the REQ of the receiver is refused,
		t.reject(now, sender{src, m.LocalID}, dst)  // or the REP that has answered one of the sender
	case *cm.DREQ:
		if f := t.flows[way{src, end{dst, m.RemoteQPN}}]; f != nil {
			t.end(now, f.conn)
		}
	}
}

// request returns the REQ of a sender, a new one if there is none. It forgets the oldest REQ when there are too many: the
// connection of that one is found by its packets.
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

// reject notes that a connection does not come about: the REQ of a sender to an address.
func (t *Table) reject(now mono.Time, of sender, to bth.GID) {
	if r := t.requests[of]; r != nil && r.to == to {
		t.end(now, r.made)
		t.drop(r)
	}
}

// accept notes a connection of two ends and the first PSNs to them, and returns it.
func (t *Table) accept(now mono.Time, active, passive end, toActive, toPassive bth.PSN) *conn {
	there, back := way{active.addr, passive}, way{passive.addr, active}
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
