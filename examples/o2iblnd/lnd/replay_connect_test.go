package lnd

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"

	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// probeStamp is the incarnation of the test peer.
const probeStamp wire.Stamp = 0x1122334455667788

// asks repeats the connection requests of a host and acts on the captured answers. It returns the number of requests.
func (p played) asks(t *testing.T, c *capture, host netip.Addr) (n int) {
	keeps := host == b && p.probe
	var ni *NI
	again := false // after the last refusal, the interface may ask again
	for i, u := range c.units {
		if !u.request || u.Src != host {
			continue
		}
		n++
		answer := c.answer(i)
		m := u.Message
		if u.cut {
			m = requestOf(c, answer)
		}
		self, stamp, asked := wire.O2IB(host, 0), probeStamp, params(8)
		if m != nil {
			self, stamp, asked = m.Src, m.SrcStamp, m.Conn
		} else if !keeps {
			t.Errorf("request %d is no message: %v", n, u.Err)
			continue
		}
		if ni == nil || ni.stamp != stamp || keeps {
			config := p.config
			config.PeerCredits = int(asked.QueueDepth)
			ni, again = NewNI(config, self, stamp), false
		}
		peer := ni.Peer(wire.O2IB(u.Dst, 0))
		if !again {
			ni.Alone(peer)
			peer.depth, peer.frags = asked.QueueDepth, min(asked.MaxFrags, wire.MaxFragments)
		}
		ni.Dial(peer)
		hello := ni.Hello(peer)
		switch {
		case keeps: // the request of the test peer breaks a rule, or has another byte order or version
			if a := NewNI(Config{PeerCredits: int(asked.QueueDepth)}, wire.O2IB(u.Dst, 0), 1).Request(hello, 1023, false); a.Reject {
				t.Errorf("request %d is one that a node refuses: % x", n, a.Private)
			}
		case !u.cut && !bytes.Equal(hello, u.Bytes):
			g, _ := wire.Decode(hello)
			t.Errorf("request %d:\nasked    %v\ncaptured %v", n, g, m)
		}
		again = p.hears(t, c, ni, peer, n, answer)
	}
	return n
}

// hears hands an interface the answer to its request; answer is its index, -1 if there is none. It reports whether the
// interface asks again.
func (p played) hears(t *testing.T, c *capture, ni *NI, peer *Peer, n, answer int) (again bool) {
	said, err := wire.Decode(ni.Hello(peer))
	if err != nil {
		t.Fatal(err)
	}
	if answer < 0 {
		if err := ni.Refused(epoch, peer, cmTimeout, nil, 0); !errors.Is(err, ErrUnreachable) {
			t.Errorf("request %d without an answer: %v", n, err)
		}
		return false
	}
	u := c.units[answer]
	if m := u.Message; m != nil {
		fits := m.Version == said.Version && m.Conn.QueueDepth <= said.Conn.QueueDepth && m.Conn.MaxFrags <= said.Conn.MaxFrags && m.Conn.MaxMessage <= wire.MaxMessage
		id, params, err := ni.Accepted(peer, u.Bytes)
		if (err == nil) != fits || err == nil && (params != m.Conn || id.PeerStamp != m.SrcStamp) {
			t.Errorf("request %d is answered by %v, which fits: %v; %v, %v", n, m, fits, params, err)
		}
		return false
	}
	want := demanded(u.Reject, said)
	err = ni.Refused(epoch, peer, cmConsumer, u.Bytes, 0)
	if (err == nil) != (want != nil) || err != nil && !errors.Is(err, ErrRefused) {
		t.Errorf("request %d is refused with %v: %v, the rules demand %v", n, u, err, want)
		return false
	}
	if err == nil {
		if got, err := wire.Decode(ni.Hello(peer)); err != nil || !bytes.Equal(plain(got), plain(want)) {
			t.Errorf("request %d is refused with %v:\nasks next %v, %v\ndemanded  %v", n, u, got, err, want)
		}
	}
	return err == nil
}

// demanded returns the request that the rules require after the request said was refused with r, and nil if they
// require none.
func demanded(r *wire.Reject, said *wire.Message) *wire.Message {
	next := *said
	if r == nil { // it cannot be decoded
		return nil
	}
	next.DstStamp = r.Stamp
	switch r.Why {
	case wire.ConnRace, wire.Uncompatible, wire.ConnStale:
		return &next
	case wire.MsgQueueSize:
		next.Conn.QueueDepth = r.Params.QueueDepth
		if r.Params.QueueDepth < said.Conn.QueueDepth {
			return &next
		}
	case wire.RDMAFrags:
		next.Conn.MaxFrags = r.Params.MaxFrags
		if r.Params.MaxFrags < said.Conn.MaxFrags {
			return &next
		}
	case wire.Fatal:
		if next.Version, next.DstStamp = r.Version, anyStamp; r.Version == wire.Version1 {
			return &next
		}
	}
	return nil
}

// requestOf derives a request from its answer. The captured request is truncated.
func requestOf(c *capture, answer int) *wire.Message {
	m := *c.units[answer].Message
	m.Type, m.Src, m.SrcStamp, m.Dst, m.DstStamp = wire.ConnReq, m.Dst, m.DstStamp, m.Src, 0
	return &m
}

// answers answers the requests that a host has received, and returns their number. In the place of a kernel node it must
// accept and refuse with the same bytes. In the place of a test peer it accepts all requests except those for another
// incarnation: they come from a kernel node and are valid.
func (p played) answers(t *testing.T, c *capture, host netip.Addr) (n int) {
	keeps := host == b && (p.probe && p.name != "cksum-216" || p.frozen)
	interfaces := map[wire.Stamp]*NI{}
	for i, u := range c.units {
		if !u.request || u.Dst != host {
			continue
		}
		n++
		answer, stamp := c.answer(i), probeStamp
		private := u.Bytes
		m := u.Message
		if u.cut {
			m = requestOf(c, answer)
			private = m.Append(nil)
		}
		if !keeps {
			if answer < 0 {
				t.Errorf("request %d has no answer", n)
				continue
			}
			stamp = c.stamp(answer, host)
		}
		ni := interfaces[stamp]
		if ni == nil {
			config := p.config
			config.Race = raceRule(p.name, host)
			ni = NewNI(config, wire.O2IB(host, 0), stamp)
			interfaces[stamp] = ni
			if p.name == "stale-216" { // the capture begins when the peer has restarted
				old := *m
				old.SrcStamp--
				ni.Settled(ni.Request(old.Append(nil), 1023, false).Peer)
			}
		}
		if m != nil && !keeps {
			ni.Peer(m.Src).connecting = c.dialing(i, answer)
		}
		got := ni.Request(private, 1023, false)
		want := []byte(nil)
		if keeps {
			want = kept(m, stamp)
		} else {
			want = c.units[answer].Bytes
		}
		if !bytes.Equal(got.Private, want) {
			t.Errorf("request %d: %v\nanswered %x\nwant     %x", n, u, got.Private, want)
		}
		if !got.Reject {
			ni.Settled(got.Peer)
		}
		if p.probe && got.Peer != nil { // each connection is over before the next one
			ni.Alone(got.Peer)
		}
	}
	return n
}

// kept returns the answer that the rules require to a valid request.
func kept(m *wire.Message, stamp wire.Stamp) []byte {
	if m.DstStamp != 0 && m.DstStamp != stamp {
		return (&wire.Reject{Version: m.Version, Why: wire.ConnStale, Stamp: stamp, Params: params(8)}).Append(nil)
	}
	ack := *m
	ack.Type, ack.Src, ack.SrcStamp, ack.Dst, ack.DstStamp = wire.ConnAck, m.Dst, stamp, m.Src, m.SrcStamp
	return ack.Append(nil)
}

// raceRule returns the rule of a captured node: 10.77.1.1 in the mixed race is Lustre 2.15.
func raceRule(name string, host netip.Addr) RaceRule {
	if name == "race-215-216" && host == netip.MustParseAddr("10.77.1.1") {
		return RaceByNumber
	}
	return RaceByWords
}
