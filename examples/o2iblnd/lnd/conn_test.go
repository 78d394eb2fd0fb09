package lnd

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goroce/roce/examples/o2iblnd/wire"
)

var (
	idA = Identity{Local: 1, LocalStamp: 11, Peer: 2, PeerStamp: 22}
	idB = Identity{Local: 2, LocalStamp: 22, Peer: 1, PeerStamp: 11}
)

func params(depth int) wire.ConnParams {
	return wire.ConnParams{QueueDepth: uint16(depth), MaxFrags: wire.MaxFragments, MaxMessage: wire.MaxMessage}
}

// end is one end of a simulated connection.
type end struct {
	t        *testing.T
	conn     *Conn
	peer     *end
	incoming [][]byte // messages on their way to this end, in order
	inFlight []uint64 // IDs of SENDs without completion, in order
	acked    int      // how many of inFlight the peer has received
	requests []*Op    // unanswered requests of the peer
	finished map[*Op]int
	failed   int
	received int
	closed   int
}

// pair connects two ends of the same depth.
func pair(t *testing.T, depth int) (a, b *end) { return pairOf(t, depth, wire.Version2) }

// pairOf connects two ends of the same depth in a version.
func pairOf(t *testing.T, depth int, v wire.Version) (a, b *end) {
	cfg := Config{PeerCredits: depth}
	idA, idB := idA, idB
	idA.Version, idB.Version = v, v
	a = &end{t: t, conn: NewConn(epoch, cfg, idA, params(depth)), finished: map[*Op]int{}}
	b = &end{t: t, conn: NewConn(epoch, cfg, idB, params(depth)), finished: map[*Op]int{}, peer: a}
	a.peer = b
	return a, b
}

// poll takes the outputs and checks the invariants.
func (e *end) poll() {
	for {
		switch o := e.conn.Poll().(type) {
		case nil:
			if c := e.conn; c.credits < 0 || c.credits > c.depth || c.reserved < 0 || c.reserved > c.depth || c.owed > c.depth {
				e.t.Fatalf("credits %d, reserved %d, owed %d at depth %d", c.credits, c.reserved, c.owed, c.depth)
			}
			if posted := Receives(e.peer.conn.depth); len(e.peer.incoming) > posted {
				e.t.Fatalf("%d messages on their way to %d receives", len(e.peer.incoming), posted)
			}
			return
		case *Transmit:
			e.peer.incoming = append(e.peer.incoming, o.Message)
			e.inFlight = append(e.inFlight, o.ID)
		case *Arrival:
			if o.Op == nil {
				e.received++
			} else {
				e.requests = append(e.requests, o.Op)
			}
		case *Finished:
			e.finished[o.Op]++
			if o.Err != nil {
				e.failed++
			}
		case *Closed:
			e.closed++
		}
	}
}

// step does one of three things, chosen by r: it delivers a message, completes a SEND or answers
// a request. It returns false if there is nothing to do.
func (e *end) step(now time.Time, r *rand.Rand) bool {
	var due []func()
	if len(e.incoming) > 0 {
		due = append(due, func() { e.peer.acked++; e.conn.Receive(now, take(&e.incoming)) })
	}
	if e.acked > 0 {
		due = append(due, func() { e.acked--; e.conn.Sent(now, take(&e.inFlight)) })
	}
	if len(e.requests) > 0 {
		due = append(due, func() { e.answer(now, take(&e.requests), r.IntN(4)) })
	}
	if len(due) == 0 {
		return false
	}
	due[r.IntN(len(due))]()
	e.poll()
	return true
}

// answer answers a request; how 0 refuses it.
func (e *end) answer(now time.Time, op *Op, how int) {
	switch {
	case op.Kind == TakePut && how == 0:
		e.conn.RefusePut(now, op, 0)
	case op.Kind == TakePut:
		e.conn.AcceptPut(now, op, wire.Descriptor{RKey: 1, Frags: []wire.Fragment{{Len: op.LNet.PayloadLen, Addr: 4096}}})
	case how == 0:
		e.conn.RefuseGet(now, op)
	default:
		e.conn.ServeGet(now, op, int(op.LNet.SinkLen))
	}
}

// operation returns an operation of each kind in turn.
func operation(i int) *Op {
	const size = 8192
	switch i % 3 {
	case 0:
		return &Op{Kind: SendPut, Size: size, LNet: wire.LNetHeader{Type: wire.Put, PayloadLen: size}}
	case 1:
		return &Op{Kind: SendGet, LNet: wire.LNetHeader{Type: wire.Get, SinkLen: size}, Sink: wire.Descriptor{Frags: []wire.Fragment{{Len: size}}}}
	}
	return &Op{Kind: SendImmediate, LNet: wire.LNetHeader{Type: wire.Put, PayloadLen: 3}, Payload: []byte("abc")}
}

// TestFlowControl fills the queues of one or both ends. Messages, completions and answers come in a
// random order. Every operation must end, and there must be a receive for every message.
func TestFlowControl(t *testing.T) {
	for _, of := range []struct {
		depth   int
		version wire.Version
	}{{1, wire.Version2}, {2, wire.Version2}, {3, wire.Version2}, {8, wire.Version2}, {64, wire.Version2}, {3, wire.Version1}, {8, wire.Version1}} {
		depth := of.depth
		for seed := range uint64(20) {
			a, b := pairOf(t, depth, of.version)
			r := rand.New(rand.NewPCG(seed, uint64(depth)))
			senders := []*end{a, b}[:1+seed%2]
			const each = 300
			for i := range each {
				for _, e := range senders {
					e.conn.Submit(epoch, operation(r.IntN(3)+i))
					e.poll()
				}
			}
			for steps := 0; ; steps++ {
				ends := []*end{a, b}
				r.Shuffle(2, func(i, j int) { ends[i], ends[j] = ends[j], ends[i] })
				if !ends[0].step(epoch, r) && !ends[1].step(epoch, r) {
					break
				}
				if steps > 100*each {
					t.Fatal("no end in sight")
				}
			}
			for _, e := range senders {
				own := 0
				for op, n := range e.finished {
					if n != 1 {
						t.Fatalf("operation %+v finished %d times", op, n)
					}
					if op.Kind <= SendGet {
						own++
					}
				}
				if own != each || e.conn.Err() != nil {
					t.Fatalf("depth %d seed %d: %d of %d operations finished, %v", depth, seed, own, each, e.conn.Err())
				}
			}
		}
	}
}

// TestLostPeer closes one end while operations are under way. Each operation must end exactly once.
func TestLostPeer(t *testing.T) {
	for seed := range uint64(50) {
		a, b := pair(t, 4)
		r := rand.New(rand.NewPCG(seed, 0))
		ops := 30
		for i := range ops {
			a.conn.Submit(epoch, operation(i))
			a.poll()
		}
		for range r.IntN(120) {
			if !a.step(epoch, r) {
				b.step(epoch, r)
			}
		}
		a.conn.Close(ErrClosed)
		late := operation(0)
		a.conn.Submit(epoch, late)
		a.conn.Receive(epoch, []byte("late"))
		a.poll()
		if len(a.finished) < ops+1 || a.closed != 1 || a.finished[late] != 1 {
			t.Fatalf("seed %d: %d operations finished, closed %d times", seed, len(a.finished), a.closed)
		}
		for op, n := range a.finished {
			if n != 1 {
				t.Fatalf("seed %d: operation %+v finished %d times", seed, op, n)
			}
		}
		if a.failed > 0 && !errors.Is(a.conn.aborted(), ErrAborted) {
			t.Error("operations do not end with ErrAborted")
		}
	}
}

// TestTimers checks that a request without an answer ends the connection, and that an idle connection sends a NOOP.
func TestTimers(t *testing.T) {
	a, b := pair(t, 8)
	if next := a.conn.NextTimeout(); next != epoch.Add(100*time.Second) {
		t.Errorf("an idle connection wants a timeout after %v", next.Sub(epoch))
	}
	a.conn.Timeout(epoch.Add(99 * time.Second))
	a.poll()
	if len(b.incoming) != 0 {
		t.Fatal("a NOOP before its time")
	}
	now := epoch.Add(100 * time.Second)
	a.conn.Timeout(now)
	a.poll()
	if m, err := wire.Decode(take(&b.incoming)); err != nil || m.Type != wire.NoOp {
		t.Fatalf("after 100 s: %v, %v", m, err)
	}
	a.conn.Submit(now, operation(1))
	a.poll()
	a.conn.Timeout(now.Add(48 * time.Second))
	if a.conn.Err() != nil {
		t.Fatal("timed out early")
	}
	if next := a.conn.NextTimeout(); next != now.Add(49*time.Second) {
		t.Errorf("a request wants a timeout after %v", next.Sub(now))
	}
	a.conn.Timeout(now.Add(49 * time.Second))
	a.poll()
	if !errors.Is(a.conn.Err(), ErrTimeout) || a.failed != 1 {
		t.Errorf("a request without an answer: %v, %d operations failed", a.conn.Err(), a.failed)
	}
}

// TestNoop checks that a side that only receives gives credits back when it owes half of them.
func TestNoop(t *testing.T) {
	a, b := pair(t, 8)
	for i := range 8 {
		a.conn.Submit(epoch, operation(2))
		a.poll()
		b.conn.Receive(epoch, take(&b.incoming))
		b.poll()
		if want := (i + 1) / 4; len(b.inFlight) != want {
			t.Fatalf("%d NOOPs after %d messages, want %d", len(b.inFlight), i+1, want)
		}
	}
	for range 2 {
		if m, err := wire.Decode(take(&a.incoming)); err != nil || m.Type != wire.NoOp || m.Credits != 4 {
			t.Errorf("%v, %v", m, err)
		}
	}
}

// TestSplit covers the rules for the WRITEs of a transfer.
func TestSplit(t *testing.T) {
	frags := func(lens ...uint32) (d wire.Descriptor) {
		for i, n := range lens {
			d.Frags = append(d.Frags, wire.Fragment{Len: n, Addr: uint64(i+1) << 20})
		}
		return d
	}
	for _, c := range []struct {
		n      int
		d      wire.Descriptor
		most   int
		writes int
		status int32
	}{
		{20000, frags(5000, 10000, 5000), 257, 3, 20000},
		{20000, frags(20000), 1, 1, 20000},
		{100, frags(5000, 10000), 257, 1, 100},
		{20000, frags(5000, 10000, 5000), 2, 0, statusMsgSize},
		{20001, frags(5000, 10000, 5000), 257, 0, statusProto},
		{10, frags(0, 10), 1, 1, 10},
		{0, frags(10), 1, 0, 0},
	} {
		writes, status := split(c.n, c.d, c.most)
		if len(writes) != c.writes || status != c.status {
			t.Errorf("%d bytes into %v: %d writes, status %d; want %d, %d", c.n, c.d, len(writes), status, c.writes, c.status)
		}
	}
}

// TestViolations: messages that break the rules close the connection.
func TestViolations(t *testing.T) {
	base := wire.Message{Version: wire.Version2, Type: wire.NoOp, Src: 1, SrcStamp: 11, Dst: 2, DstStamp: 22}
	with := func(change func(m *wire.Message)) []byte {
		m := base
		change(&m)
		return m.Append(nil)
	}
	for name, msg := range map[string][]byte{
		"stale source":        with(func(m *wire.Message) { m.SrcStamp++ }),
		"stale destination":   with(func(m *wire.Message) { m.DstStamp++ }),
		"other node":          with(func(m *wire.Message) { m.Dst++ }),
		"version 1":           with(func(m *wire.Message) { m.Version = wire.Version1 }),
		"one credit too many": with(func(m *wire.Message) { m.Credits = 1 }),
		"request again":       with(func(m *wire.Message) { m.Type = wire.ConnReq }),
		"answer to nothing":   with(func(m *wire.Message) { m.Type = wire.GetDone }),
		"payload of a GET":    with(func(m *wire.Message) { m.Type, m.LNet = wire.Immediate, wire.LNetHeader{Type: wire.Get, PayloadLen: 1} }),
		"payload too long":    with(func(m *wire.Message) { m.Type, m.LNet = wire.Immediate, wire.LNetHeader{Type: wire.Put, PayloadLen: 1} }),
		"PUT_REQ of an ACK":   with(func(m *wire.Message) { m.Type = wire.PutReq }),
		"GET_REQ of a PUT": with(func(m *wire.Message) {
			m.Type, m.LNet.Type, m.Desc.Frags = wire.GetReq, wire.Put, make([]wire.Fragment, 1)
		}),
		"more than 1 MiB": with(func(m *wire.Message) {
			m.Type, m.LNet = wire.PutReq, wire.LNetHeader{Type: wire.Put, PayloadLen: 1<<20 + 1}
		}),
		"no message": []byte("hello"),
	} {
		_, b := pair(t, 8)
		b.conn.Receive(epoch, msg)
		b.poll()
		if b.closed != 1 || b.conn.Err() == nil || b.received != 0 {
			t.Errorf("%s: closed %d times, %v", name, b.closed, b.conn.Err())
		}
	}
}

// FuzzReceive gives a connection arbitrary messages of its peer. The connection must stay within
// its credits, and each operation must end exactly once.
func FuzzReceive(f *testing.F) {
	m := wire.Message{Version: wire.Version2, Type: wire.PutAck, Src: 1, SrcStamp: 11, Dst: 2, DstStamp: 22, Cookie: 1, SinkCookie: 9,
		Desc: wire.Descriptor{RKey: 7, Frags: []wire.Fragment{{Len: 8192, Addr: 1 << 20}}}}
	f.Add(m.Append(nil), uint8(0))
	m.Type = wire.GetReq
	m.LNet.Type = wire.Get
	f.Add(m.Append(nil), uint8(1))
	f.Fuzz(func(t *testing.T, msg []byte, how uint8) {
		_, b := pair(t, 8)
		for i := range 3 {
			b.conn.Submit(epoch, operation(i))
		}
		for range 3 {
			b.conn.Receive(epoch, msg)
			b.poll()
			b.peer.incoming = nil
			for len(b.requests) > 0 {
				b.answer(epoch, take(&b.requests), int(how%4))
				b.poll()
				b.peer.incoming = nil
			}
		}
		b.conn.Close(ErrClosed)
		b.poll()
		for op, n := range b.finished {
			if n != 1 {
				t.Errorf("operation %+v finished %d times", op, n)
			}
		}
	})
}
