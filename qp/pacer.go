package qp

import (
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mono"
)

// pacer is a token bucket whose unit is time. At the current rate, everything that was sent would have left by the
// time paid. A burst may be ahead of that by one Batch; then the queue pair sends nothing until paid. One unused
// Batch is saved, so that a timer that fires late costs nothing.
type pacer struct {
	paid      mono.Time
	holdUntil mono.Time // nothing leaves before; Never: nothing is held

	sink frame.Sink // of the Emit in progress
	now  mono.Time
	size int // of the packet that was begun last, on the wire
}

// frameOverhead is what Ethernet adds to a frame: preamble, frame check
// sequence and the gap behind it.
const frameOverhead = 8 + 4 + 12

// onWire is the size of a packet of n bytes, BTH to ICRC, on the wire.
func onWire(p *frame.Path, n int) int {
	return p.HeaderLen(frame.LayoutEthernet) + n + frameOverhead
}

// meter returns a sink around the sink of an Emit that notes the size of each packet for congestion control.
func (c *congestion) meter(now mono.Time, sink frame.Sink) frame.Sink {
	c.sink, c.now = sink, now
	c.advance(now)
	return c
}

// Begin implements [frame.Sink].
func (c *congestion) Begin(p *frame.Path, n int) ([]byte, bth.CRC, bool) {
	c.size = onWire(p, n)
	return c.sink.Begin(p, n)
}

// BeginInPlace implements [frame.InPlaceSink], if the sink does.
func (c *congestion) BeginInPlace(p *frame.Path, n int, payload []byte, tail int) (head, trailer []byte, crc bth.CRC, ok bool) {
	s, ok := c.sink.(frame.InPlaceSink)
	if !ok {
		return nil, nil, 0, false
	}
	c.size = onWire(p, n+len(payload)+tail)
	return s.BeginInPlace(p, n, payload, tail)
}

// Commit implements [frame.Sink].
func (c *congestion) Commit() { c.sink.Commit() }

// cost is how long n bytes take at the current rate.
func (c *congestion) cost(n int) time.Duration {
	return time.Duration(uint64(n) * 8 * uint64(time.Second) / uint64(c.rate))
}

// hold reports whether the next packet has to wait, and notes until when.
func (c *congestion) hold() bool {
	switch {
	case !c.limited:
		c.holdUntil = mono.Never
		return false
	case c.holdUntil != mono.Never && c.now < c.holdUntil:
		return true
	}
	c.holdUntil = mono.Never
	c.paid = max(c.paid, c.now.Add(-c.Batch))
	if c.paid > c.now.Add(c.Batch) {
		c.holdUntil = c.paid
		return true
	}
	return false
}

// spend pays for the packet just built.
func (c *congestion) spend() {
	if c.limited {
		c.paid = c.paid.Add(c.cost(c.size))
		c.count(c.size)
	}
}

// pauses reports whether a packet of n bytes is the last one before a pause. Such a packet should request an
// acknowledgement: at a low rate, the ACK timer may expire before the next packet with AckReq leaves.
func (c *congestion) pauses(p *frame.Path, n int) bool {
	return c.limited && c.paid.Add(c.cost(onWire(p, n))) > c.now.Add(c.Batch)
}

// expire ends the wait.
func (c *congestion) expire(now mono.Time) {
	if now >= c.holdUntil {
		c.holdUntil = mono.Never
	}
}
