package lnd

import (
	"encoding/hex"
	"errors"
	"testing"

	"github.com/goroce/roce/examples/o2iblnd/wire"
)

const (
	niStamp   = wire.Stamp(0x660f62897cb2a)
	peerStamp = wire.Stamp(0x1122334455667788)
)

// TestRequestRefusals has a table of requests that a node refuses, with the private data of the refusal. The refusals
// are those of a kernel node, as far as probe-rej-216 shows them.
func TestRequestRefusals(t *testing.T) {
	none := wire.ConnParams{MaxMessage: wire.MaxMessage}
	for _, tt := range []struct {
		name    string
		change  func(m *wire.Message)
		port    uint16
		version wire.Version
		why     wire.Why
		stamp   wire.Stamp
		params  wire.ConnParams
	}{
		{"port", func(*wire.Message) {}, 1024, wire.Version2, wire.Fatal, 0, none},
		{"version 0x13", func(m *wire.Message) { m.Version = 0x13 }, 987, wire.Version2, wire.Fatal, 0, none},
		{"version 0x10", func(m *wire.Message) { m.Version = 0x10 }, 987, wire.Version2, wire.Fatal, 0, none},
		{"another address", func(m *wire.Message) { m.Dst++ }, 987, wire.Version2, wire.Fatal, 0, none},
		{"another net", func(m *wire.Message) { m.Dst += 1 << 32 }, 987, wire.Version2, wire.Fatal, 0, none},
		{"a CONNACK", func(m *wire.Message) { m.Type = wire.ConnAck }, 987, wire.Version2, wire.Fatal, niStamp, params(8)},
		{"another incarnation", func(m *wire.Message) { m.DstStamp = 0x1234 }, 987, wire.Version2, wire.ConnStale, niStamp, params(8)},
		{"depth", func(m *wire.Message) { m.Conn.QueueDepth = 9 }, 987, wire.Version2, wire.MsgQueueSize, niStamp, params(8)},
		{"no depth", func(m *wire.Message) { m.Conn.QueueDepth = 0 }, 987, wire.Version2, wire.Fatal, niStamp, params(8)},
		{"fragments", func(m *wire.Message) { m.Conn.MaxFrags = 300 }, 987, wire.Version2, wire.RDMAFrags, niStamp, params(8)},
		{"no fragments", func(m *wire.Message) { m.Conn.MaxFrags = 0 }, 987, wire.Version2, wire.Fatal, niStamp, params(8)},
		{"message size", func(m *wire.Message) { m.Conn.MaxMessage = 8192 }, 987, wire.Version2, wire.Fatal, niStamp, params(8)},
		{"big-endian, depth", func(m *wire.Message) { m.Order, m.Conn.QueueDepth = wire.BigEndian, 9 }, 987, wire.Version2, wire.MsgQueueSize, niStamp, params(8)},
		{"version 1, depth", func(m *wire.Message) { m.Version, m.Conn.QueueDepth = wire.Version1, 9 }, 987, wire.Version1, wire.Fatal, niStamp, params(8)},
		{"version 1, depth of 2", func(m *wire.Message) { m.Version, m.Conn.QueueDepth = wire.Version1, 2 }, 987, wire.Version1, wire.Fatal, niStamp, params(8)},
		{"version 1, fragments", func(m *wire.Message) { m.Version, m.Conn.MaxFrags = wire.Version1, 300 }, 987, wire.Version1, wire.Fatal, niStamp, params(8)},
		{"version 1, another incarnation", func(m *wire.Message) { m.Version, m.DstStamp = wire.Version1, 5 }, 987, wire.Version1, wire.ConnStale, niStamp, params(8)},
	} {
		ni := NewNI(Config{}, 1, niStamp)
		ni.Privileged = true
		m := wire.Message{Version: wire.Version2, Type: wire.ConnReq, Src: 2, SrcStamp: peerStamp, Dst: 1, Conn: params(8)}
		tt.change(&m)
		a := ni.Request(m.Append(nil), tt.port, false)
		want := (&wire.Reject{Version: tt.version, Why: tt.why, Stamp: tt.stamp, Params: tt.params}).Append(nil)
		if !a.Reject || string(a.Private) != string(want) {
			t.Errorf("%s: refused %v with %x, want %x", tt.name, a.Reject, a.Private, want)
		}
		if len(ni.peers) != 0 {
			t.Errorf("%s: the refused peer is kept", tt.name)
		}
	}
	for name, private := range map[string]string{"nothing": "", "another magic": "7856341212" + "00c0", "unified LNet": "6369724512" + "00c0", "5 bytes": "911be90b12"} {
		b, err := hex.DecodeString(private)
		if err != nil {
			t.Fatal(err)
		}
		a := NewNI(Config{}, 1, niStamp).Request(b, 987, false)
		if r, err := wire.DecodeReject(a.Private); err != nil || r.Why != wire.Fatal || r.Stamp != 0 || r.Version != wire.Version2 {
			t.Errorf("%s: answered %v, %v", name, r, err)
		}
	}
}

// TestAfterRefusal has a table of refusals, with the next request of the refused node.
func TestAfterRefusal(t *testing.T) {
	for _, tt := range []struct {
		name    string
		reject  wire.Reject
		again   bool
		version wire.Version
		stamp   wire.Stamp
		depth   uint16
		frags   uint16
	}{
		{"race", wire.Reject{Version: wire.Version2, Why: wire.ConnRace, Stamp: 7}, true, wire.Version2, 7, 16, 257},
		{"no resources", wire.Reject{Version: wire.Version2, Why: wire.NoResources, Stamp: 7}, false, 0, 0, 0, 0},
		{"fatal", wire.Reject{Version: wire.Version2, Why: wire.Fatal, Stamp: 7}, false, 0, 0, 0, 0},
		{"fatal of version 1", wire.Reject{Version: wire.Version1, Why: wire.Fatal, Stamp: 7}, true, wire.Version1, anyStamp, 8, 257},
		{"another version", wire.Reject{Version: wire.Version2, Why: wire.Uncompatible, Stamp: 7}, true, wire.Version2, 7, 16, 257},
		{"stale", wire.Reject{Version: wire.Version2, Why: wire.ConnStale, Stamp: 7}, true, wire.Version2, 7, 16, 257},
		{"fragments", wire.Reject{Version: wire.Version2, Why: wire.RDMAFrags, Stamp: 7, Params: wire.ConnParams{MaxFrags: 100}}, true, wire.Version2, 7, 16, 100},
		{"more fragments", wire.Reject{Version: wire.Version2, Why: wire.RDMAFrags, Stamp: 7, Params: wire.ConnParams{MaxFrags: 300}}, false, 0, 0, 0, 0},
		{"depth", wire.Reject{Version: wire.Version2, Why: wire.MsgQueueSize, Stamp: 7, Params: wire.ConnParams{QueueDepth: 8}}, true, wire.Version2, 7, 8, 257},
		{"more depth", wire.Reject{Version: wire.Version2, Why: wire.MsgQueueSize, Stamp: 7, Params: wire.ConnParams{QueueDepth: 16}}, false, 0, 0, 0, 0},
		{"invalid service", wire.Reject{Version: wire.Version2, Why: 8}, false, 0, 0, 0, 0},
		{"early", wire.Reject{Version: wire.Version2, Why: 9}, false, 0, 0, 0, 0},
		{"version 0x13", wire.Reject{Version: 0x13, Why: wire.ConnStale}, false, 0, 0, 0, 0},
	} {
		ni := NewNI(Config{PeerCredits: 16}, 1, niStamp)
		p := ni.Peer(2)
		ni.Dial(p)
		err := ni.Refused(epoch, p, cmConsumer, tt.reject.Append(nil), 0)
		if tt.again != (err == nil) || err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if !tt.again {
			continue
		}
		m, err := wire.Decode(ni.Hello(p))
		if err != nil || m.Version != tt.version || m.DstStamp != tt.stamp || m.Conn.QueueDepth != tt.depth || m.Conn.MaxFrags != tt.frags {
			t.Errorf("%s: asks with %v, %v", tt.name, m, err)
		}
	}
}

// TestVersion1 checks that a node that is refused by a node of version 1 asks again with version 1, but only once. The next
// connection begins with version 2. All connections with a peer have the same version.
func TestVersion1(t *testing.T) {
	a, b := NewNI(Config{PeerCredits: 16}, 1, niStamp), NewNI(Config{}, 2, peerStamp)
	old := wire.Reject{Version: wire.Version1, Why: wire.Fatal}
	p := a.Peer(2)
	a.Dial(p)
	if err := a.Refused(epoch, p, cmConsumer, old.Append(nil), 0); err != nil {
		t.Fatal(err)
	}
	a.Dial(p)
	stale := b.Request(a.Hello(p), 987, false) // the stamp of any incarnation
	if r, err := wire.DecodeReject(stale.Private); err != nil || r.Why != wire.ConnStale || r.Version != wire.Version1 || r.Stamp != peerStamp {
		t.Fatalf("answered %v, %v", r, err)
	}
	if err := a.Refused(epoch, p, cmConsumer, stale.Private, 0); err != nil {
		t.Fatal(err)
	}
	a.Dial(p)
	answer := b.Request(a.Hello(p), 987, false)
	if answer.Reject || answer.Identity.Version != wire.Version1 || answer.Params.QueueDepth != 8 {
		t.Fatalf("%+v", answer)
	}
	id, c, err := a.Accepted(p, answer.Private)
	if err != nil || id.Version != wire.Version1 || c.QueueDepth != 8 {
		t.Fatalf("%+v, %+v, %v", id, c, err)
	}
	newer := wire.Message{Version: wire.Version2, Type: wire.ConnReq, Src: 1, SrcStamp: niStamp, Dst: 2, Conn: params(8)}
	if other := b.Request(newer.Append(nil), 987, false); !other.Reject || !other.CloseOld {
		t.Errorf("a request of another version: %+v", other)
	}
	a.Alone(p)
	a.Dial(p)
	if m, err := wire.Decode(a.Hello(p)); err != nil || m.Version != wire.Version2 || m.Conn.QueueDepth != 16 {
		t.Errorf("the next request is %v, %v", m, err)
	}
	if err := a.Refused(epoch, p, cmConsumer, old.Append(nil), 0); err != nil {
		t.Fatal(err)
	}
	a.Dial(p)
	if err := a.Refused(epoch, p, cmConsumer, old.Append(nil), 0); !errors.Is(err, ErrRefused) {
		t.Errorf("refused in version 1 as well: %v", err)
	}
}
