package lnd

import (
	"bytes"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/examples/o2iblnd/sniff"
	"github.com/goroce/roce/examples/o2iblnd/wire"
)

var epoch = time.Unix(1e9, 0)

func captured(t *testing.T, name string) []*sniff.Unit {
	t.Helper()
	f, err := os.Open("../../../testdata/pcaps/lnet/" + name + ".pcap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := sniff.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// player plays the part of one node of a capture on one connection.
type player struct {
	t      *testing.T
	conn   *Conn
	now    time.Time
	sent   []*Transmit
	closed int
	puts   map[wire.Cookie]*Op // of the peer, unanswered
	gets   map[wire.Cookie]*Op
}

func newPlayer(t *testing.T, c *Conn) *player {
	return &player{t: t, conn: c, now: epoch, puts: map[wire.Cookie]*Op{}, gets: map[wire.Cookie]*Op{}}
}

// poll takes the outputs. SENDs complete at once.
func (p *player) poll() {
	for {
		switch o := p.conn.Poll().(type) {
		case nil:
			return
		case *Transmit:
			p.sent = append(p.sent, o)
			p.conn.Sent(p.now, o.ID)
		case *Arrival:
			if o.Op != nil && o.Op.Kind == TakePut {
				p.puts[o.Op.peer] = o.Op
			} else if o.Op != nil {
				p.gets[o.Op.peer] = o.Op
			}
		case *Closed:
			p.closed++
		}
	}
}

// act does what the layer above the driver of the captured node has done to send a message.
func (p *player) act(m *wire.Message) {
	switch m.Type {
	case wire.NoOp: // a keepalive, or the credits of before the capture
		p.now = p.conn.NextTimeout()
		p.conn.Timeout(p.now)
	case wire.Immediate:
		p.conn.Submit(p.now, &Op{Kind: SendImmediate, LNet: m.LNet, Payload: m.Payload})
	case wire.PutReq:
		p.conn.nextCookie = m.Cookie - 1
		p.conn.Submit(p.now, &Op{Kind: SendPut, LNet: m.LNet, Size: m.LNet.Size()})
	case wire.GetReq:
		p.conn.nextCookie = m.Cookie - 1
		p.conn.Submit(p.now, &Op{Kind: SendGet, LNet: m.LNet, Sink: m.Desc})
	case wire.PutAck:
		p.conn.nextCookie = m.SinkCookie - 1
		p.conn.AcceptPut(p.now, p.puts[m.Cookie], m.Desc)
	case wire.PutNak:
		p.conn.RefusePut(p.now, p.puts[m.Cookie], m.Status)
	case wire.GetDone:
		if m.Status < 0 {
			p.conn.RefuseGet(p.now, p.gets[m.Cookie])
		} else {
			p.conn.ServeGet(p.now, p.gets[m.Cookie], int(m.Status))
		}
	}
}

// creditsAt is where a message has its credits.
const creditsAt = 7

// a and b are the nodes of the captures.
var a, b = netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("10.77.0.2")

// played says how a capture is played.
type played struct {
	name   string
	hosts  []netip.Addr // nil: both
	config Config
	loose  bool // credits are not compared, only their sum: messages cross, or a node gives the credit of a PUT back behind the LNet ACK
	begun  bool // the capture begins in the middle of a connection
	closes int  // connections that break the protocol
}

// replays are the captured connections that are played, and by whom: all but three. probe-rej-216 has no connection, in
// connect-timeout-216 the other node is frozen before it has answered, and kill-216 is cut in the middle of operations.
var replays = []played{
	{name: "ping-216"}, {name: "teardown-216"}, {name: "qdepth-216"}, {name: "race-216", loose: true}, {name: "race-215-216"}, {name: "stale-216"},
	{name: "brwsizes-216"}, {name: "lnetx-216", loose: true}, {name: "keepalive-216"}, {name: "discovery-2conns-216", loose: true}, {name: "mixed-215-216"},
	{name: "jumbo-217-215", loose: true},
	{name: "bugs-215", begun: true, loose: true}, {name: "straddle-217-215", begun: true, loose: true},
	{name: "brw1-216", begun: true, loose: true},
	{name: "silent-216", hosts: []netip.Addr{a}},                                                          // b was frozen
	{name: "cksum-216", hosts: []netip.Addr{a}, config: Config{Checksum: wire.SignedChecksum}, closes: 2}, // b sends wrong checksums only
	// b is a test peer without flow control.
	{name: "probe-ok-216", hosts: []netip.Addr{a}},
	{name: "probe-frags-216"}, {name: "probe-iget-216"}, {name: "probe-shortget-216"},
	{name: "probe-err-216", hosts: []netip.Addr{a}, loose: true, closes: 7},
	{name: "probe-srv-216", hosts: []netip.Addr{a}},
	{name: "probe-srvrej-216", hosts: []netip.Addr{a}}, {name: "probe-srvrej2-216", hosts: []netip.Addr{a}},
}

// TestReplay plays nodes of captured connections, as a rule both. Whatever the captured node has sent, this
// one must send too, byte for byte, credits included. It closes a connection where the captured node did.
func TestReplay(t *testing.T) {
	for _, r := range replays {
		hosts := r.hosts
		if hosts == nil {
			hosts = []netip.Addr{a, b}
			if r.name == "race-215-216" {
				hosts[0] = netip.MustParseAddr("10.77.1.1")
			}
		}
		for _, host := range hosts {
			t.Run(r.name+"/"+host.String(), func(t *testing.T) {
				(&replay{t: t, played: r, host: host, players: map[side]*player{}}).play(captured(t, r.name))
			})
		}
	}
}

// side is an end of a captured connection.
type side struct {
	host netip.Addr
	qpn  bth.QPN
}

// replay plays a host in a capture.
type replay struct {
	t *testing.T
	played
	host    netip.Addr
	asked   []*sniff.Unit    // requests without an answer
	players map[side]*player // by either end of the connection
	only    *player          // of the connection that was begun before
	checked int
	ahead   int
}

func (r *replay) play(all []*sniff.Unit) {
	for _, u := range all {
		switch {
		case u.QPN == bth.QPNGSI:
			r.connect(u)
		case u.Dst == r.host:
			if p := r.player(u); p != nil {
				p.conn.Receive(p.now, u.Bytes)
				p.poll()
			}
		case u.Message != nil:
			r.compare(r.player(u), u)
		}
	}
	closed := 0
	for _, p := range r.players {
		closed += p.closed
	}
	if closed /= 2; closed != r.closes { // each is in the table twice
		r.t.Errorf("%d connections were closed, want %d", closed, r.closes)
	}
	if r.checked == 0 {
		r.t.Error("nothing to check")
	}
}

// connect takes a message of the connection manager.
func (r *replay) connect(u *sniff.Unit) {
	m := u.Message
	if m != nil && m.Type == wire.ConnReq {
		r.asked = append(r.asked, u)
		return
	}
	at := slices.IndexFunc(r.asked, func(q *sniff.Unit) bool { return q.Src == u.Dst })
	if at < 0 {
		return
	}
	request := r.asked[at]
	if r.asked = slices.Delete(r.asked, at, at+1); m == nil {
		return
	}
	p := newPlayer(r.t, NewConn(epoch, r.config, r.identity(u), m.Conn))
	r.players[side{u.Src, u.Own}], r.players[side{u.Dst, request.Own}] = p, p
}

// identity is that of the host, by a message of either side.
func (r *replay) identity(u *sniff.Unit) Identity {
	m := u.Message
	if u.Src == r.host {
		return Identity{Local: m.Src, LocalStamp: m.SrcStamp, Peer: m.Dst, PeerStamp: m.DstStamp, Version: m.Version}
	}
	return Identity{Local: m.Dst, LocalStamp: m.DstStamp, Peer: m.Src, PeerStamp: m.SrcStamp, Version: m.Version}
}

// player returns the player of the connection that a message belongs to; nil: the request is not captured.
func (r *replay) player(u *sniff.Unit) *player {
	p := r.players[side{u.Dst, u.QPN}]
	if p == nil && r.begun && u.Message != nil {
		if r.only == nil { // with half of the credits: it does not matter where the others are
			r.only = newPlayer(r.t, NewConn(epoch, r.config, r.identity(u), params(8)))
			r.only.conn.credits, r.only.conn.granted = 4, 4
		}
		p = r.only
	}
	return p
}

// compare compares a message of the captured node with that of this one.
func (r *replay) compare(p *player, u *sniff.Unit) {
	if p == nil {
		return
	}
	r.t.Helper()
	m := u.Message
	if len(p.sent) == 0 {
		p.act(m)
		p.poll()
	}
	if len(p.sent) == 0 {
		r.t.Fatalf("sent nothing, the captured node sent %v", m)
	}
	got := take(&p.sent).Message
	g, _ := wire.Decode(got)
	if r.loose {
		r.ahead += int(g.Credits) - int(m.Credits)
		got[creditsAt], u.Bytes[creditsAt] = 0, 0
	}
	if r.checked++; !bytes.Equal(got, u.Bytes) || !r.begun && (r.ahead < 0 || r.ahead > 1) {
		r.t.Fatalf("message %d:\nsent     %v\ncaptured %v", r.checked, g, m)
	}
}

// TestReplayRequests asks an interface what captured nodes were asked. It must accept and refuse
// with the same bytes.
func TestReplayRequests(t *testing.T) {
	for name, want := range map[string]int{"ping-216": 1, "teardown-216": 1, "qdepth-216": 3, "race-216": 2, "race-215-216": 3, "stale-216": 2,
		"probe-rej-216": 7, "brwsizes-216": 1, "discovery-2conns-216": 2,
		"keepalive-216": 1, "mixed-215-216": 1, "jumbo-217-215": 1, "silent-216": 1, "lnetx-216": 1, "probe-ok-216": 3, "probe-err-216": 10,
		"probe-iget-216": 1, "probe-shortget-216": 2, "probe-srv-216": 1} {
		t.Run(name, func(t *testing.T) {
			all := captured(t, name)
			interfaces := map[netip.Addr]*NI{}
			checked := 0
			for i, u := range all {
				if u.Message == nil || u.Message.Type != wire.ConnReq {
					continue
				}
				at := answerTo(all, i)
				if at < 0 {
					continue
				}
				answer, stamp := all[at], stampAt(all[at:], u.Dst)
				ni := interfaces[u.Dst]
				if ni == nil || ni.stamp != stamp {
					ni = NewNI(Config{Race: raceRule(name, u.Dst)}, wire.O2IB(u.Dst, 0), stamp)
					interfaces[u.Dst] = ni
					if name == "stale-216" { // the capture begins when the peer has restarted
						old := *u.Message
						old.SrcStamp--
						ni.Settled(ni.Request(old.Append(nil), 1023, false).Peer)
					}
				}
				ni.Peer(u.Message.Src).connecting = dialing(all, i, at)
				a := ni.Request(u.Bytes, 1023, false)
				if checked++; !bytes.Equal(a.Private, answer.Bytes) {
					t.Errorf("request %v\nanswered %x\ncaptured %x", u, a.Private, answer.Bytes)
				}
				if !a.Reject {
					ni.Settled(a.Peer)
				}
				if name == "probe-ok-216" { // each connection is over before the next one
					ni.Alone(a.Peer)
				}
			}
			if checked != want {
				t.Errorf("checked %d requests, want %d", checked, want)
			}
		})
	}
}

// TestReplayAsking hands an interface the answers that a captured node has got. It must ask again when that did, with
// the same bytes: in another version, for another depth, or of another incarnation.
func TestReplayAsking(t *testing.T) {
	for name, want := range map[string]struct{ requests, unfit int }{"probe-srvrej-216": {20, 3}, "probe-srvrej2-216": {7, 1}} {
		t.Run(name, func(t *testing.T) {
			all := captured(t, name)
			var ni *NI
			again, requests, unfit := false, 0, 0
			for i, u := range all {
				if u.Message == nil || u.Message.Type != wire.ConnReq || u.Src != a {
					continue
				}
				m := u.Message
				if ni == nil {
					ni = NewNI(Config{}, m.Src, m.SrcStamp)
				}
				p := ni.Peer(m.Dst)
				if !again {
					ni.Alone(p)
					p.depth, p.frags = m.Conn.QueueDepth, m.Conn.MaxFrags
				}
				ni.Dial(p)
				if got := ni.Hello(p); !bytes.Equal(got, u.Bytes) {
					g, _ := wire.Decode(got)
					t.Errorf("request %d:\nasked    %v\ncaptured %v", requests, g, m)
				}
				requests++
				at := answerTo(all, i)
				if at < 0 {
					continue
				}
				if answer := all[at]; answer.Reject != nil {
					again = ni.Refused(epoch, p, cmConsumer, answer.Bytes, 0) == nil
				} else {
					again = false
					if _, _, err := ni.Accepted(p, answer.Bytes); err != nil {
						unfit++
					}
				}
			}
			if requests != want.requests || unfit != want.unfit {
				t.Errorf("checked %d requests, %d of them with a CONNACK that does not fit; want %d and %d", requests, unfit, want.requests, want.unfit)
			}
		})
	}
}

// raceRule returns the rule of a captured node: 10.77.1.1 in the mixed race is Lustre 2.15.
func raceRule(name string, host netip.Addr) RaceRule {
	if name == "race-215-216" && host == netip.MustParseAddr("10.77.1.1") {
		return RaceByNumber
	}
	return RaceByWords
}

// answerTo returns the place of the answer to the request at i: the next of the connection manager
// the other way. -1: there is none.
func answerTo(all []*sniff.Unit, i int) int {
	for j := i + 1; j < len(all); j++ {
		if a := all[j]; a.QPN == bth.QPNGSI && a.Src == all[i].Dst && a.Err == nil && (a.Reject != nil || a.Message.Type == wire.ConnAck) {
			return j
		}
	}
	return -1
}

// stampAt returns the stamp of a node in its next answer that tells it.
func stampAt(rest []*sniff.Unit, host netip.Addr) wire.Stamp {
	for _, u := range rest {
		switch {
		case u.Src != host || u.QPN != bth.QPNGSI || u.Err != nil:
		case u.Reject == nil:
			return u.Message.SrcStamp
		case u.Reject.Stamp != 0:
			return u.Reject.Stamp
		}
	}
	return 0
}

// dialing reports whether a node had a request of its own on its way when it answered the request
// at i. The answer to that was captured behind the request: it could not have arrived before.
func dialing(all []*sniff.Unit, i, answer int) bool {
	for j, b := range all[:answer] {
		if b.Message != nil && b.Message.Type == wire.ConnReq && b.Src == all[i].Dst && (answerTo(all, j) < 0 || answerTo(all, j) > i) {
			return true
		}
	}
	return false
}
