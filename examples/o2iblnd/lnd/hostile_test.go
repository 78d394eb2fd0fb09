package lnd

import (
	"errors"
	"testing"

	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// isViolation checks that a connection is over because its peer has broken the protocol.
func isViolation(t *testing.T, name string, c *Conn) {
	t.Helper()
	var v *Violation
	if !errors.As(c.Err(), &v) {
		t.Errorf("%s: the connection ended with %v, want a violation", name, c.Err())
	}
}

// TestGuessedCookie has a peer answer a request that it has not received: cookies are counters, so the peer can guess
// them. The request still waits for a credit, and the answer must not be accepted.
func TestGuessedCookie(t *testing.T) {
	for name, c := range map[string]struct {
		kind int
		msg  wire.Message
	}{
		"PUT_ACK":  {0, wire.Message{Type: wire.PutAck, Desc: wire.Descriptor{Frags: []wire.Fragment{{Len: 8192}}}}},
		"PUT_NAK":  {0, wire.Message{Type: wire.PutNak}},
		"GET_DONE": {1, wire.Message{Type: wire.GetDone}},
	} {
		a, _ := pair(t, 1)
		a.conn.Submit(epoch, operation(2)) // spends the credit
		op := operation(c.kind)
		a.conn.Submit(epoch, op)
		m := c.msg
		m.Version, m.Cookie = wire.Version2, op.id
		m.Src, m.SrcStamp, m.Dst, m.DstStamp = idB.Local, idB.LocalStamp, idA.Local, idA.LocalStamp
		a.conn.Receive(epoch, m.Append(nil))
		isViolation(t, name, a.conn)
		if a.conn.reserved > a.conn.depth {
			t.Errorf("%s: %d reservations at depth %d", name, a.conn.reserved, a.conn.depth)
		}
	}
}

// TestImpossibleStatus checks that an answer ends the connection and the operation if its status is larger than the
// sink.
func TestImpossibleStatus(t *testing.T) {
	for name, c := range map[string]struct {
		kind int
		typ  wire.Type
	}{"PUT_NAK": {0, wire.PutNak}, "GET_DONE": {1, wire.GetDone}} {
		a, _ := pair(t, 8)
		op := operation(c.kind)
		a.conn.Submit(epoch, op)
		for o := a.conn.Poll(); o != nil; o = a.conn.Poll() {
			if x, ok := o.(*Transmit); ok {
				a.conn.Sent(epoch, x.ID)
			}
		}
		m := wire.Message{Version: wire.Version2, Type: c.typ, Cookie: op.id, Status: 1 << 30, Src: idB.Local, SrcStamp: idB.LocalStamp, Dst: idA.Local, DstStamp: idA.LocalStamp}
		a.conn.Receive(epoch, m.Append(nil))
		isViolation(t, name, a.conn)
		finished := 0
		for o := a.conn.Poll(); o != nil; o = a.conn.Poll() {
			if f, ok := o.(*Finished); ok && f.Op == op && f.Err != nil {
				finished++
			}
		}
		if finished != 1 {
			t.Errorf("%s: the operation was reported as failed %d times, want once", name, finished)
		}
	}
}

// TestHugeSink checks that a sink larger than the data of a PUT is refused with EPROTO and without a WRITE, even if the
// sum of the fragments overflows 32 bits.
func TestHugeSink(t *testing.T) {
	for _, lens := range [][]uint32{{1<<32 - 1}, {1 << 31}, {1 << 31, 1 << 31}, {1<<32 - 1, 2}} {
		c := NewConn(epoch, Config{}, idA, params(8))
		op := &Op{Kind: SendPut, LNet: wire.LNetHeader{Type: wire.Put, PayloadLen: 100}, Size: 100}
		c.Submit(epoch, op)
		m := wire.Message{Version: wire.Version2, Type: wire.PutAck, Cookie: op.id, Src: idA.Peer, SrcStamp: idA.PeerStamp, Dst: idA.Local, DstStamp: idA.LocalStamp}
		for _, n := range lens {
			m.Desc.Frags = append(m.Desc.Frags, wire.Fragment{Len: n})
		}
		c.Receive(epoch, m.Append(nil))
		var last *Transmit
		for o := c.Poll(); o != nil; o = c.Poll() {
			if tr, ok := o.(*Transmit); ok {
				last = tr
			}
		}
		if c.Err() != nil || last == nil || len(last.Writes) > 0 {
			t.Fatalf("%v: %v, %+v", lens, c.Err(), last)
		}
		if done, err := wire.Decode(last.Message); err != nil || done.Type != wire.PutDone || done.Status != statusProto {
			t.Errorf("%v: %v, %v", lens, done, err)
		}
		if w, status := split(100, m.Desc, 8); len(w) == 0 || w[0].Len != 100 || status != 100 { // a GET may have a larger sink
			t.Errorf("%v: a GET of 100 bytes: %+v, %d", lens, w, status)
		}
	}
}

// TestOverspent checks that a peer that sends without a credit is disconnected. So the number of credits that this side
// owes always fits the field of a message.
func TestOverspent(t *testing.T) {
	const depth = 8
	_, b := pair(t, depth)
	m := wire.Message{Version: wire.Version2, Type: wire.Immediate, Src: idA.Local, SrcStamp: idA.LocalStamp, Dst: idB.Local, DstStamp: idB.LocalStamp,
		LNet: wire.LNetHeader{Type: wire.Put}}
	for range 2 * depth { // two NOOPs, which never complete, give depth credits back
		b.conn.Receive(epoch, m.Append(nil))
		b.poll()
	}
	if b.conn.Err() != nil || b.received != 2*depth {
		t.Fatalf("%d messages within the credits were taken, %v", b.received, b.conn.Err())
	}
	b.conn.Receive(epoch, m.Append(nil))
	isViolation(t, "one more", b.conn)
}

// TestSendWork checks that transfers into many fragments wait for room in the send queue.
func TestSendWork(t *testing.T) {
	const frags = wire.MaxFragments
	cfg := Config{PeerCredits: 64, SendWork: 3 * maxWork}
	c := NewConn(epoch, cfg, idA, params(64))
	d := wire.Descriptor{Frags: make([]wire.Fragment, frags)}
	for i := range d.Frags {
		d.Frags[i].Len = 16
	}
	m := wire.Message{Version: wire.Version2, Type: wire.GetReq, Src: idB.Local, SrcStamp: idB.LocalStamp, Dst: idA.Local, DstStamp: idA.LocalStamp,
		LNet: wire.LNetHeader{Type: wire.Get, SinkLen: frags * 16}, Desc: d}
	const requests = 20
	for i := range requests {
		m.Cookie = wire.Cookie(i)
		c.Receive(epoch, m.Append(nil))
	}
	posted, sent := 0, 0
	var inFlight []*Transmit
	for {
		switch o := c.Poll().(type) {
		case *Arrival:
			c.ServeGet(epoch, o.Op, frags*16)
		case *Transmit:
			inFlight = append(inFlight, o)
			if posted += len(o.Writes) + extraWork; posted > cfg.SendWork {
				t.Fatalf("%d work requests, the send queue holds %d", posted, cfg.SendWork)
			}
		case nil:
			if len(inFlight) == 0 {
				if sent < requests || c.Err() != nil {
					t.Errorf("%d of %d transfers were sent, %v", sent, requests, c.Err())
				}
				return
			}
			last := take(&inFlight)
			if last.Op != nil {
				sent++
			}
			posted -= len(last.Writes) + extraWork
			c.Sent(epoch, last.ID)
		}
	}
}

// TestStrangers checks that refused requests and disconnected peers leave no state behind: any node
// can claim any NID.
func TestStrangers(t *testing.T) {
	ni := NewNI(Config{}, 1, 11)
	request := func(src wire.NID, depth int, full bool) Answer {
		m := wire.Message{Version: wire.Version2, Type: wire.ConnReq, Src: src, SrcStamp: 5, Dst: 1, Conn: params(depth)}
		return ni.Request(m.Append(nil), 1023, full)
	}
	for i := range 100 {
		if a := request(wire.NID(1000+i), 9, false); !a.Reject {
			t.Fatal("a queue that is too deep was accepted")
		}
		a := request(wire.NID(1000+i), 8, true)
		if r, err := wire.DecodeReject(a.Private); !a.Reject || err != nil || r.Why != wire.NoResources {
			t.Fatalf("a full node answered %v, %v", r, err)
		}
	}
	if len(ni.peers) != 0 {
		t.Errorf("%d peers are kept of refused requests", len(ni.peers))
	}
	a := request(7, 8, false)
	if ni.Forget(a.Peer) {
		t.Error("a peer was forgotten whose request is being accepted")
	}
	ni.Settled(a.Peer)
	if ni.Alone(a.Peer); !ni.Forget(a.Peer) || len(ni.peers) != 0 {
		t.Errorf("%d peers are kept of connections that are over", len(ni.peers))
	}
}
