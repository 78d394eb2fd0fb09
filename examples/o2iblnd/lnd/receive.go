package lnd

import (
	"time"

	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// Receive handles a SEND of the peer. A message that violates the protocol closes the connection.
func (c *Conn) Receive(now time.Time, b []byte) {
	if c.err != nil {
		return
	}
	m, err := wire.Decode(b)
	if err == nil {
		err = c.handle(now, m)
	}
	if err != nil {
		c.Close(err)
		return
	}
	c.pump(now)
}

func (c *Conn) handle(now time.Time, m *wire.Message) error {
	if got := (Identity{m.Dst, m.DstStamp, m.Src, m.SrcStamp, m.Version}); got != c.id {
		return violation(m.Type, "is of another connection: %v stamp %x > %v stamp %x, version %#x", m.Src, uint64(m.SrcStamp), m.Dst, uint64(m.DstStamp), uint16(m.Version))
	}
	if c.credits+int(m.Credits) > c.depth {
		return violation(m.Type, "returns %d credits to %d, the queue depth is %d", m.Credits, c.credits, c.depth)
	}
	c.credits += int(m.Credits)
	if m.Type.NeedsCredit() || m.Type == wire.NoOp && m.Version == wire.Version1 {
		if c.granted--; c.granted < 0 {
			return violation(m.Type, "is sent without a credit, the queue depth is %d", c.depth)
		}
	}
	switch m.Type {
	case wire.NoOp:
		if m.Version == wire.Version1 {
			c.owed++
		}
		return nil
	case wire.Immediate:
		if err := checkLNet(m, len(m.Payload)); err != nil {
			return err
		}
		c.owed++
		c.emit(&Arrival{LNet: m.LNet, Payload: m.Payload[:m.LNet.PayloadLen]})
		return nil
	case wire.PutReq:
		if t := m.LNet.Type; t != wire.Put && t != wire.Reply {
			return violation(m.Type, "has an LNet header of type %v", t)
		}
		return c.arrive(m, TakePut)
	case wire.GetReq:
		if m.LNet.Type != wire.Get {
			return violation(m.Type, "has an LNet header of type %v", m.LNet.Type)
		}
		return c.arrive(m, ServeGet)
	case wire.PutAck, wire.PutNak, wire.GetDone, wire.PutDone:
		return c.resume(now, m)
	}
	return violation(m.Type, "on an established connection")
}

// checkLNet checks the lengths of an LNet header.
func checkLNet(m *wire.Message, most int) error {
	h := &m.LNet
	switch {
	case (h.Type == wire.Ack || h.Type == wire.Get) && h.PayloadLen != 0:
		return violation(m.Type, "LNet %v with %d bytes of payload", h.Type, h.PayloadLen)
	case int64(h.PayloadLen) > int64(most):
		return violation(m.Type, "LNet %v with %d bytes of payload, at most %d", h.Type, h.PayloadLen, most)
	}
	return nil
}

// arrive hands a request of the peer to the layer above.
func (c *Conn) arrive(m *wire.Message, k Kind) error {
	if err := checkLNet(m, wire.MaxPayload); err != nil {
		return err
	}
	op := &Op{Kind: k, LNet: m.LNet, Sink: m.Desc, peer: m.Cookie}
	c.unanswered[op] = struct{}{}
	c.emit(&Arrival{LNet: m.LNet, Op: op})
	return nil
}

// resumes has the kind of operation that each type of answer continues.
var resumes = map[wire.Type]Kind{wire.PutAck: SendPut, wire.PutNak: SendPut, wire.GetDone: SendGet, wire.PutDone: TakePut}

// resume continues the operation that an answer of the peer names.
func (c *Conn) resume(now time.Time, m *wire.Message) error {
	op, ok := c.ops[m.Cookie]
	if !ok || op.Kind != resumes[m.Type] || !op.sent { // the peer may guess the cookie of a request that still waits
		return violation(m.Type, "answers no operation: cookie %x", uint64(m.Cookie))
	}
	if m.Type != wire.PutAck && int(m.Status) > op.limit() { // the end of the connection ends the operation
		return violation(m.Type, "says that %d bytes were written, there is room for %d", m.Status, op.limit())
	}
	delete(c.ops, m.Cookie)
	op.waiting = false
	if m.Type == wire.PutDone {
		c.owed++
	} else {
		c.reserved++
	}
	if m.Type == wire.PutAck {
		c.writePut(now, op, m)
		return nil
	}
	if op.done, op.n = true, int(m.Status); m.Status < 0 {
		op.n, op.err = 0, &StatusError{m.Status}
	}
	c.complete(op)
	return nil
}

// limit is the largest number of bytes that an answer may report in its status.
func (o *Op) limit() int {
	if o.Kind == SendPut { // PUT_NAK
		return 0
	}
	return o.Sink.Size()
}

// writePut writes the data of a PUT to the peer's sink, up to the size of the sink. A sink larger than the data is an error.
func (c *Conn) writePut(now time.Time, op *Op, m *wire.Message) {
	op.Sink, op.peer = m.Desc, m.SinkCookie
	n := m.Desc.Size()
	if n <= op.Size {
		c.finishWrites(now, op, wire.PutDone, n)
		return
	}
	op.err = &StatusError{statusProto}
	c.queue(now, &sendJob{op: op, last: true, msg: wire.Message{Type: wire.PutDone, Cookie: op.peer, Status: statusProto}})
}
