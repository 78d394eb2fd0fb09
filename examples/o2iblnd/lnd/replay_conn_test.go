package lnd

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// side is an end of a captured connection.
type side struct {
	host netip.Addr
	qpn  bth.QPN
}

// replay replaces a host in a capture by our end.
type replay struct {
	t *testing.T
	played
	*capture
	host      netip.Addr
	keeps     bool                // the host has broken rules, but our end keeps them; our end replaces the other host, too
	asked     []*unit             // requests without an answer
	players   map[side]*player    // by either end of the connection
	others    map[*player]*player // the players of the other host
	only      *player             // player of the connection that began before the capture
	checked   int
	refrained int // messages of the captured node that our end does not send
	ahead     int
}

// play replays the capture and returns how many messages of the host it has compared or has not sent.
func (r *replay) play() int {
	sent := 0
	for _, u := range r.units {
		p := r.player(u)
		if p != nil {
			p.at(u.at)
		}
		switch {
		case u.QPN == bth.QPNGSI:
			r.connect(u)
		case u.Src == r.host:
			sent++
			r.compare(p, u)
		case p == nil:
		case !r.keeps:
			p.conn.Receive(p.now, u.Bytes)
			p.poll()
		default:
			r.exchange(p, u)
		}
	}
	r.end()
	if r.checked+r.refrained != sent {
		r.t.Errorf("compared %d messages and refrained from %d, the host has sent %d", r.checked, r.refrained, sent)
	}
	return sent
}

// end checks the state of the connections at the end of the capture.
func (r *replay) end() {
	ends := map[*player]bool{}
	for _, p := range r.players {
		ends[p] = true
		if o := r.others[p]; o != nil {
			ends[o] = true
		}
	}
	closed := 0
	for p := range ends {
		closed += p.closed
		if r.keeps && (len(p.conn.ops) > 0 || len(p.conn.unanswered) > 0 || p.conn.Err() != nil) {
			r.t.Errorf("%d operations of a host and %d of its peer are under way in the end, %v", len(p.conn.ops), len(p.conn.unanswered), p.conn.Err())
		}
	}
	want := r.closes
	if r.keeps || r.host == b {
		want = 0
	}
	if closed != want {
		r.t.Errorf("%d connections were closed, want %d", closed, want)
	}
	switch {
	case r.frozen && r.keeps && len(ends) > 0:
		r.wantAnswers()
	case r.frozen && r.host == a && len(ends) > 0:
		r.wantTimeout()
	case r.lost:
		r.wantLoss()
	}
}

// connect handles a message of the connection manager.
func (r *replay) connect(u *unit) {
	m := u.Message
	if u.request {
		r.asked = append(r.asked, u)
		return
	}
	at := slices.IndexFunc(r.asked, func(q *unit) bool { return q.Src == u.Dst })
	if at < 0 {
		return
	}
	request := r.asked[at]
	if r.asked = slices.Delete(r.asked, at, at+1); m == nil {
		return
	}
	id := r.identity(u)
	p := newPlayer(r.t, NewConn(epoch.Add(u.at), r.config, id, m.Conn))
	r.players[side{u.Src, u.Own}], r.players[side{u.Dst, request.Own}] = p, p
	if r.keeps {
		if r.others == nil {
			r.others = map[*player]*player{}
		}
		back := Identity{Local: id.Peer, LocalStamp: id.PeerStamp, Peer: id.Local, PeerStamp: id.LocalStamp, Version: id.Version}
		r.others[p] = newPlayer(r.t, NewConn(epoch.Add(u.at), r.config, back, m.Conn))
	}
}

// identity returns the identity of the host, from a message of either side.
func (r *replay) identity(u *unit) Identity {
	m := u.Message
	if u.Src == r.host {
		return Identity{Local: m.Src, LocalStamp: m.SrcStamp, Peer: m.Dst, PeerStamp: m.DstStamp, Version: m.Version}
	}
	return Identity{Local: m.Dst, LocalStamp: m.DstStamp, Peer: m.Src, PeerStamp: m.SrcStamp, Version: m.Version}
}

// player returns the player of the connection that a message belongs to; nil: the request is not captured.
func (r *replay) player(u *unit) *player {
	if u.QPN == bth.QPNGSI {
		return nil
	}
	p := r.players[side{u.Dst, u.QPN}]
	if p == nil && r.begun && u.Message != nil {
		if r.only == nil { // with half of the credits, because the true number is not known
			r.only = newPlayer(r.t, NewConn(epoch, r.config, r.identity(u), params(8)))
			r.only.conn.credits, r.only.conn.granted = 4, 4
		}
		p = r.only
	}
	return p
}

// compare compares a message of the captured node with that of our end.
func (r *replay) compare(p *player, u *unit) {
	r.t.Helper()
	if p == nil {
		r.t.Fatalf("a message without a connection: %v", u)
	}
	m := meant(u)
	if r.keeps && (m == nil || m.Type == wire.NoOp) { // by the rules, our end need not send it
		r.refrained++
		return
	}
	got := p.next(m)
	switch {
	case got == nil && r.keeps:
		r.refrained++
		return
	case got == nil:
		r.t.Fatalf("sent nothing, the captured node sent %v", m)
	}
	g, err := wire.Decode(got)
	if err != nil {
		r.t.Fatalf("sent % x: %v", got, err)
	}
	r.checked++
	want := u.Bytes
	if r.keeps {
		o := r.others[p]
		o.conn.Receive(p.now, got)
		o.poll()
		got, want = plain(g), plain(m)
	} else if r.loose {
		r.ahead += int(g.Credits) - int(m.Credits)
		got[creditsAt], want[creditsAt] = 0, 0
	}
	if !bytes.Equal(got, want) || !r.keeps && !r.begun && (r.ahead < 0 || r.ahead > r.mayBeAhead()) {
		r.t.Fatalf("message %d, credits %d ahead:\nsent     %v\ncaptured %v", r.checked, r.ahead, g, m)
	}
}

// mayBeAhead is how many credits our end may give back earlier than the captured node.
func (r *replay) mayBeAhead() int {
	if r.lost {
		return 8 // many messages cross, up to the queue depth
	}
	return 1
}

// exchange makes our end in the place of the other host send a message to the host.
func (r *replay) exchange(p *player, u *unit) {
	r.t.Helper()
	o := r.others[p]
	o.at(u.at)
	got := o.next(u.Message)
	if got == nil {
		r.t.Fatalf("our end in the place of %v sent nothing, the captured node sent %v", u.Src, u.Message)
	}
	if g, err := wire.Decode(got); err != nil || !bytes.Equal(plain(g), plain(u.Message)) {
		r.t.Fatalf("our end in the place of %v:\nsent     %v, %v\ncaptured %v", u.Src, g, err, u.Message)
	}
	p.conn.Receive(p.now, got)
	p.poll()
	if r.frozen {
		p.serve()
		for len(p.sent) > 0 || len(o.sent) > 0 {
			for _, way := range [][2]*player{{p, o}, {o, p}} {
				for len(way[0].sent) > 0 {
					msg := take(&way[0].sent).Message
					if m, err := wire.Decode(msg); err == nil && way[0] == p {
						p.answered = append(p.answered, m)
					}
					way[1].conn.Receive(p.now, msg)
					way[1].poll()
				}
			}
			p.serve()
		}
	}
}

// plain returns a message without the fields that depend on the sender's state and machine: credits, checksum, byte order.
func plain(m *wire.Message) []byte {
	p := *m
	p.Order, p.Credits, p.Checksum = wire.LittleEndian, 0, 0
	return p.Append(nil)
}

// meant returns the message in a unit, even if its checksum is wrong, and nil if there is none.
func meant(u *unit) *wire.Message {
	if u.Message != nil {
		return u.Message
	}
	if b := slices.Clone(u.Bytes); len(b) >= wire.HeaderLen {
		wire.SetChecksum(b, wire.NoChecksum)
		if m, err := wire.Decode(b); err == nil && m.Type != wire.NoOp {
			return m
		}
	}
	return nil
}

// wantAnswers checks the answers of our end in the place of a frozen host.
func (r *replay) wantAnswers() {
	for _, p := range r.players {
		var got []string
		for _, m := range p.answered {
			name := m.Type.String()
			if m.Type == wire.Immediate {
				name = m.LNet.Type.String()
			}
			got = append(got, name)
		}
		// The answers to a ping, a large PUT with its ACK, a large GET and a small PUT.
		if want := []string{"REPLY", "PUT_ACK", "ACK", "GET_DONE", "ACK"}; !slices.Equal(got, want) {
			r.t.Errorf("answered %v, want %v", got, want)
		}
		for _, f := range r.others[p].finished {
			if f.Err != nil {
				r.t.Errorf("an operation of the other host ended with %v", f.Err)
			}
		}
	}
}

// wantTimeout checks that our end disconnects from a silent peer when its first request has waited for 49 s. The captured
// node did the same, but it checks only four times in that period.
func (r *replay) wantTimeout() {
	var asked time.Duration
	for _, u := range r.units {
		if asked == 0 && u.Src == r.host && u.QPN != bth.QPNGSI && u.Message.Type == wire.PutReq {
			asked = u.at
		}
	}
	if len(r.ended) == 0 || r.ended[0].src != r.host || r.ended[0].at < asked+lndTimeout || r.ended[0].at > asked+lndTimeout*5/4 {
		r.t.Errorf("the captured node asks at %v and disconnects: %v", asked, r.ended)
	}
	for _, p := range r.players {
		due := p.conn.NextTimeout()
		if want := epoch.Add(asked + lndTimeout); due != want {
			r.t.Errorf("gives up after %v, want %v", due.Sub(epoch), want.Sub(epoch))
		}
		waiting := len(p.conn.ops)
		if p.conn.Timeout(due.Add(-1)); p.conn.Err() != nil {
			r.t.Error("gives up too early")
		}
		p.finished = nil
		p.conn.Timeout(due)
		p.poll()
		if !errors.Is(p.conn.Err(), ErrTimeout) || p.closed != 1 || len(p.finished) != waiting || waiting != 2 {
			r.t.Errorf("%v, closed %d times, %d of %d operations ended", p.conn.Err(), p.closed, len(p.finished), waiting)
		}
		for _, f := range p.finished {
			if !errors.Is(f.Err, ErrAborted) {
				r.t.Errorf("an operation ended with %v", f.Err)
			}
		}
		return // each player is in the map twice
	}
}

// wantLoss checks the end of a capture in which a host loses its power. The other host has repeated its last message
// retryCount times, as the queue pair does, and then disconnected. Our end waits as long: no operation
// times out before. When the driver reports that the SEND has failed, all operations end.
func (r *replay) wantLoss() {
	last := r.units[len(r.units)-1].at
	if n := r.resent[a]; n != retryCount || len(r.ended) != 1 || r.ended[0].src != a || r.ended[0].at < last+retryCount*2*time.Second {
		r.t.Errorf("the captured node has repeated %d times, and disconnected: %v; its last message was at %v", n, r.ended, last)
	}
	for _, p := range r.players {
		if r.host == b {
			return // it has no power
		}
		now := epoch.Add(r.ended[0].at)
		if p.conn.Timeout(now); p.conn.Err() != nil {
			r.t.Errorf("gave up before the queue pair: %v", p.conn.Err())
		}
		late := &Op{Kind: SendPut, Size: 8192, LNet: wire.LNetHeader{Type: wire.Put, PayloadLen: 8192}}
		p.conn.Submit(now, late)
		p.conn.Close(errSendFailed)
		p.finished = nil
		p.poll()
		if p.closed != 1 || len(p.conn.ops) != 0 || !slices.ContainsFunc(p.finished, func(f *Finished) bool {
			return f.Op == late && errors.Is(f.Err, ErrAborted) && errors.Is(f.Err, errSendFailed)
		}) {
			r.t.Errorf("closed %d times, %d operations under way, ended %v", p.closed, len(p.conn.ops), p.finished)
		}
		return
	}
}

// lndTimeout is how long a node waits for the answer to a request.
const lndTimeout = 49 * time.Second

// retryCount is the retry count of the queue pairs of o2iblnd.
const retryCount = 5

var errSendFailed = errors.New("RETRY_EXC_ERR")
