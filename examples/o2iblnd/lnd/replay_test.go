package lnd

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/examples/o2iblnd/wire"
)

var epoch = time.Unix(1e9, 0)

// player replaces one node of a capture on one connection.
type player struct {
	t        *testing.T
	conn     *Conn
	now      time.Time
	sent     []*Transmit
	closed   int
	finished []*Finished
	puts     map[wire.Cookie]*Op // of the peer, unanswered
	gets     map[wire.Cookie]*Op

	arrived  []*Arrival      // messages that serve must answer
	answered []*wire.Message // answers of serve
}

func newPlayer(t *testing.T, c *Conn) *player {
	return &player{t: t, conn: c, now: epoch, puts: map[wire.Cookie]*Op{}, gets: map[wire.Cookie]*Op{}}
}

// at sets the time of the player to a time of the capture.
func (p *player) at(t time.Duration) { p.now = epoch.Add(t) }

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
			p.arrived = append(p.arrived, o)
		case *Finished:
			p.finished = append(p.finished, o)
		case *Closed:
			p.closed++
		}
	}
}

// next returns the next message of the player, nil if it sends none. m is the message that the captured node has sent.
func (p *player) next(m *wire.Message) []byte {
	if len(p.sent) == 0 {
		p.act(m)
		p.poll()
	}
	if len(p.sent) == 0 {
		return nil
	}
	return take(&p.sent).Message
}

// serve answers the arrived messages, like an LNet with memory for all of them.
func (p *player) serve() {
	ack := func(h *wire.LNetHeader) {
		if h.Type == wire.Put && h.MD != wire.NoMD {
			p.conn.Submit(p.now, &Op{Kind: SendImmediate, LNet: wire.LNetHeader{Dst: h.Src, Src: h.Dst, DstPID: h.SrcPID, SrcPID: h.DstPID, Type: wire.Ack,
				MD: h.MD, MatchBits: h.MatchBits, MLength: h.PayloadLen}})
		}
	}
	for len(p.arrived) > 0 {
		a := take(&p.arrived)
		h := a.LNet
		switch {
		case a.Op == nil && h.Type == wire.Get:
			b := make([]byte, 48)
			p.conn.Submit(p.now, &Op{Kind: SendImmediate, Payload: b, LNet: wire.LNetHeader{Dst: h.Src, Src: h.Dst, DstPID: h.SrcPID, SrcPID: h.DstPID, Type: wire.Reply,
				PayloadLen: uint32(len(b)), MD: h.MD}})
		case a.Op == nil:
			ack(&h)
		case a.Op.Kind == TakePut:
			p.conn.AcceptPut(p.now, a.Op, wire.Descriptor{RKey: 1, Frags: []wire.Fragment{{Len: h.PayloadLen, Addr: 1 << 20}}})
		default:
			p.conn.ServeGet(p.now, a.Op, int(h.SinkLen))
		}
		p.poll()
	}
	for _, f := range p.finished {
		if f.Op.Kind == TakePut && f.Err == nil {
			ack(&f.Op.LNet)
		}
	}
	p.finished = nil
	p.poll()
}

// act makes the call with which the layer above has caused m.
func (p *player) act(m *wire.Message) {
	switch m.Type {
	case wire.NoOp: // a keepalive, or credits that were owed before the capture began
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

// creditsAt is the offset of the credits in a message.
const creditsAt = 7

// a and b are the nodes of the captures.
var a, b = netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("10.77.0.2")

// played says how a capture is played.
type played struct {
	name   string
	other  netip.Addr // address of the host that is not b; zero: a
	probe  bool       // b is a test peer, which breaks rules; our end in its place does not
	frozen bool       // b answers nothing; our end in its place answers
	lost   bool       // b loses its power before the end
	config Config     // configuration of the host that is not b
	loose  bool       // only the sum of credits is compared: messages cross, or a node gives the credit of a PUT back after the LNet ACK
	begun  bool       // the capture begins in the middle of a connection
	closes int        // how many connections a violation of the protocol closes
}

// replays are all captures. The test replaces each of the two hosts in turn.
var replays = []played{
	{name: "ping-216"}, {name: "teardown-216"}, {name: "qdepth-216"}, {name: "race-216", loose: true}, {name: "stale-216"},
	{name: "race-215-216", other: netip.MustParseAddr("10.77.1.1")},
	{name: "brwsizes-216"}, {name: "lnetx-216", loose: true}, {name: "keepalive-216"}, {name: "discovery-2conns-216", loose: true}, {name: "mixed-215-216"},
	{name: "jumbo-217-215", loose: true},
	{name: "bugs-215", begun: true, loose: true}, {name: "straddle-217-215", begun: true, loose: true},
	{name: "brw1-216", begun: true, loose: true},
	{name: "kill-216", loose: true, lost: true},
	{name: "connect-timeout-216", frozen: true},
	{name: "silent-216", probe: true, frozen: true},
	{name: "cksum-216", probe: true, config: Config{Checksum: wire.SignedChecksum}, closes: 2}, // b sends wrong checksums only
	{name: "probe-ok-216", probe: true},
	{name: "probe-rej-216", probe: true},
	{name: "probe-frags-216", probe: true}, {name: "probe-iget-216"}, {name: "probe-shortget-216"},
	{name: "probe-err-216", probe: true, loose: true, closes: 7},
	{name: "probe-srv-216", probe: true},
	{name: "probe-srvrej-216", probe: true}, {name: "probe-srvrej2-216", probe: true},
}

// TestReplay replaces each of the two hosts of every capture by our end: when the host requests connections, when it
// answers requests, and on its connections. Our end must send every message of a kernel node, byte for byte, credits included, and
// must close a connection where the kernel node did. In the place of a test peer, which breaks rules on purpose, our end
// keeps the rules. The test covers every message that a host has sent and every request that it has received.
func TestReplay(t *testing.T) {
	files, err := filepath.Glob(captures + "*.pcap")
	if err != nil || len(files) != len(replays) {
		t.Errorf("there are %d captures, and %d are played: %v", len(files), len(replays), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".pcap")
		at := slices.IndexFunc(replays, func(p played) bool { return p.name == name })
		if at < 0 {
			t.Errorf("%s is not played", name)
			continue
		}
		p := replays[at]
		first := a
		if p.other.IsValid() {
			first = p.other
		}
		for _, host := range []netip.Addr{first, b} {
			t.Run(name+"/"+host.String(), func(t *testing.T) {
				c := captured(t, name)
				asking := p.asks(t, c, host)
				asked := p.answers(t, c, host)
				r := &replay{t: t, played: p, capture: c, host: host, keeps: host == b && p.probe, players: map[side]*player{}}
				sent := r.play()
				t.Logf("asked %d, answered %d, sent %d, refrained %d", asking, asked, sent, r.refrained)
				if asking+asked+sent == 0 && !(host == b && p.frozen) {
					t.Error("nothing was played")
				}
			})
		}
	}
}
