package lnd

import (
	"cmp"
	"fmt"
	"time"

	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// Identity names the two ends of a connection in the header of every message.
type Identity struct {
	Local      wire.NID
	LocalStamp wire.Stamp
	Peer       wire.NID
	PeerStamp  wire.Stamp
	Version    wire.Version // 0 stands for Version2
}

// Conn is an established connection.
type Conn struct {
	cfg       Config
	id        Identity
	depth     int
	frags     int
	highWater int

	credits  int // messages that may be sent before the peer gives credits back
	reserved int // PUT_REQs and GET_REQs that may be sent before the peer answers one
	owed     int // credits that the next message gives back
	granted  int // messages that the peer may send before this side gives credits back

	inFlight, noops int // SENDs without a completion, and how many of them are NOOPs
	work            int // work requests in the send queue
	nextID          uint64
	uncompleted     map[uint64]*sendJob // the SENDs without a completion

	answers    []*sendJob // need no credit
	requests   []*sendJob // wait for a credit
	unreserved []*sendJob // wait for a reservation, then for a credit

	ops        map[wire.Cookie]*Op // operations that wait for a message of the peer
	unanswered map[*Op]struct{}    // operations of the peer that the layer above has not answered
	nextCookie wire.Cookie
	lastSend   time.Time

	out []Output
	err error
}

// sendJob is a message that waits to be sent.
type sendJob struct {
	msg    wire.Message
	writes []Write
	op     *Op
	last   bool // the operation is over when the message is sent
}

// NewConn returns the state machine of a connection. params are the parameters that the two sides have agreed on.
func NewConn(now time.Time, cfg Config, id Identity, params wire.ConnParams) *Conn {
	cfg = cfg.WithDefaults()
	id.Version = cmp.Or(id.Version, wire.Version2)
	depth := int(params.QueueDepth)
	highWater := max(depth*cfg.HighWater/cfg.PeerCredits, 1)
	if id.Version == wire.Version1 {
		highWater = max(depth-1, 1)
	}
	return &Conn{cfg: cfg, id: id, depth: depth, frags: int(params.MaxFrags), highWater: highWater,
		credits: depth, reserved: depth, granted: depth, lastSend: now,
		uncompleted: map[uint64]*sendJob{}, ops: map[wire.Cookie]*Op{}, unanswered: map[*Op]struct{}{}}
}

// Err returns the reason why the connection is over, nil before its end.
func (c *Conn) Err() error { return c.err }

// Depth returns the queue depth.
func (c *Conn) Depth() int { return c.depth }

// Poll returns the next output, nil if there is none.
func (c *Conn) Poll() Output {
	if len(c.out) == 0 {
		return nil
	}
	o := c.out[0]
	c.out = c.out[1:]
	return o
}

func (c *Conn) emit(o Output) { c.out = append(c.out, o) }

// Submit begins an operation. On a connection that is over, the operation ends at once.
func (c *Conn) Submit(now time.Time, op *Op) {
	if c.err != nil {
		c.end(op, 0, c.aborted())
		return
	}
	m := wire.Message{LNet: op.LNet}
	switch op.Kind {
	case SendImmediate:
		m.Type, m.Payload = wire.Immediate, op.Payload
	case SendPut:
		m.Type, m.Cookie = wire.PutReq, c.expect(op)
	case SendGet:
		m.Type, m.Cookie, m.Desc = wire.GetReq, c.expect(op), op.Sink
	default:
		c.end(op, 0, fmt.Errorf("lnd: operation of kind %d cannot be submitted", op.Kind))
		return
	}
	if m.Len() > wire.MaxMessage {
		delete(c.ops, op.id)
		c.end(op, 0, fmt.Errorf("lnd: %v of %d bytes, at most %d", m.Type, m.Len(), wire.MaxMessage))
		return
	}
	c.queue(now, &sendJob{msg: m, op: op, last: op.Kind == SendImmediate})
}

// expect gives an operation a cookie. The peer sends it in the message that continues the operation.
func (c *Conn) expect(op *Op) wire.Cookie {
	c.nextCookie++
	op.id, op.waiting = c.nextCookie, true
	c.ops[op.id] = op
	return op.id
}

// AcceptPut answers a PUT_REQ. The peer then writes into sink.
func (c *Conn) AcceptPut(now time.Time, op *Op, sink wire.Descriptor) {
	if !c.answer(op, TakePut) {
		return
	}
	c.expect(op)
	op.Sink = sink
	c.queue(now, &sendJob{op: op, msg: wire.Message{Type: wire.PutAck, Cookie: op.peer, SinkCookie: op.id, Desc: sink}})
}

// RefusePut answers a PUT_REQ without a sink, so the peer writes nothing. Status 0 means that this side drops the
// data, a negative errno that it has failed.
func (c *Conn) RefusePut(now time.Time, op *Op, status int32) {
	if !c.answer(op, TakePut) {
		return
	}
	c.queue(now, &sendJob{op: op, last: true, msg: wire.Message{Type: wire.PutNak, Cookie: op.peer, Status: status}})
	c.owe(now)
}

// ServeGet answers a GET_REQ with the first n bytes of the operation's memory.
func (c *Conn) ServeGet(now time.Time, op *Op, n int) {
	if !c.answer(op, ServeGet) {
		return
	}
	c.finishWrites(now, op, wire.GetDone, n)
	c.owe(now)
}

// RefuseGet answers a GET_REQ for which there is no data.
func (c *Conn) RefuseGet(now time.Time, op *Op) {
	if !c.answer(op, ServeGet) {
		return
	}
	op.err = &StatusError{statusNoData}
	c.queue(now, &sendJob{op: op, last: true, msg: wire.Message{Type: wire.GetDone, Cookie: op.peer, Status: statusNoData}})
	c.owe(now)
}

// answer removes an operation from the unanswered ones. It returns false if the operation is not one of them,
// for instance because the connection is over.
func (c *Conn) answer(op *Op, k Kind) bool {
	if _, ok := c.unanswered[op]; !ok || op.Kind != k {
		return false
	}
	delete(c.unanswered, op)
	return true
}

// finishWrites queues the WRITEs of an operation and the DONE that follows them.
func (c *Conn) finishWrites(now time.Time, op *Op, t wire.Type, n int) {
	writes, status := split(n, op.Sink, c.frags)
	if op.n = n; status < 0 {
		op.n, op.err = 0, &StatusError{status}
	}
	c.queue(now, &sendJob{op: op, last: true, writes: writes, msg: wire.Message{Type: t, Cookie: op.peer, Status: status}})
}

// queue appends a message of an operation to one of the three queues, and sends what can be sent.
func (c *Conn) queue(now time.Time, j *sendJob) {
	j.op.deadline = now.Add(c.cfg.Timeout)
	j.op.sending++
	switch {
	case !j.msg.Type.NeedsCredit():
		c.answers = append(c.answers, j)
	case j.op.needsReservation():
		c.unreserved = append(c.unreserved, j)
	default:
		c.requests = append(c.requests, j)
	}
	c.pump(now)
}

// pump sends as many messages as credits, reservations and the limit of sends in flight allow, answers first.
func (c *Conn) pump(now time.Time) {
	if c.err != nil {
		return
	}
	for c.reserved > 0 && len(c.unreserved) > 0 {
		c.reserved--
		c.requests = append(c.requests, take(&c.unreserved))
	}
	if c.wantsNoop(now) && c.noops < maxNoops {
		if c.id.Version == wire.Version1 {
			c.credits--
		}
		c.answers = append(c.answers, &sendJob{msg: wire.Message{Type: wire.NoOp}})
	}
	for c.inFlight < c.cfg.ConcurrentSends {
		switch {
		case len(c.answers) > 0:
			if !c.fits(c.answers[0]) {
				return
			}
			c.transmit(now, take(&c.answers))
		case len(c.requests) > 0 && c.credits > c.keep() && c.fits(c.requests[0]):
			c.credits--
			c.transmit(now, take(&c.requests))
		default:
			return
		}
	}
}

// extraWork is how many work requests a message needs in addition to its WRITEs: the SEND and the
// registration of its memory.
const extraWork = 2

func (j *sendJob) work() int { return len(j.writes) + extraWork }

// fits reports whether the send queue has room for a message and its WRITEs. An empty queue has room for any message.
func (c *Conn) fits(j *sendJob) bool {
	return c.inFlight == 0 || c.work+j.work() <= c.cfg.SendWork
}

// maxNoops is how many NOOPs may be in flight: the peer reserves as many receives for them.
const maxNoops = 2

// wantsNoop reports whether a NOOP is needed, as a keepalive or to give credits back: no other message can be sent now.
func (c *Conn) wantsNoop(now time.Time) bool {
	keepalive := c.cfg.Keepalive > 0 && !now.Before(c.lastSend.Add(c.cfg.Keepalive))
	if c.owed < c.highWater && !keepalive || len(c.answers) > 0 {
		return false
	}
	if c.id.Version == wire.Version1 && (c.credits == 0 || c.credits == 1 && c.owed == 0) {
		return false // the last credit is for a NOOP that gives credits back
	}
	return len(c.requests) == 0 || c.credits == c.keep()
}

// depthV1 is the queue depth of version 1.
const depthV1 = 8

// keep is how many credits are reserved for NOOPs. In version 1 a NOOP needs a credit, too. If requests spent all
// credits on both sides, no side could return any.
func (c *Conn) keep() int {
	if c.id.Version == wire.Version1 {
		return 1
	}
	return 0
}

func take[T any](queue *[]T) T {
	first := (*queue)[0]
	*queue = (*queue)[1:]
	return first
}

// transmit encodes a message, which gives back the credits that are owed, and emits it.
func (c *Conn) transmit(now time.Time, j *sendJob) {
	m := &j.msg
	m.Version = c.id.Version
	m.Src, m.SrcStamp, m.Dst, m.DstStamp = c.id.Local, c.id.LocalStamp, c.id.Peer, c.id.PeerStamp
	m.Credits, c.owed = uint8(c.owed), 0
	c.granted += int(m.Credits)
	b := m.Append(make([]byte, 0, m.Len()))
	if c.cfg.Checksum != wire.NoChecksum {
		wire.SetChecksum(b, c.cfg.Checksum)
	}
	c.lastSend = now
	c.inFlight++
	c.work += j.work()
	if j.op != nil {
		j.op.sent = true
	}
	if m.Type == wire.NoOp {
		c.noops++
	}
	c.nextID++
	c.uncompleted[c.nextID] = j
	c.emit(&Transmit{ID: c.nextID, Message: b, Writes: j.writes, Op: j.op})
}

// Sent handles the successful completion of the SEND of a Transmit. After a failed completion, call Close.
func (c *Conn) Sent(now time.Time, id uint64) {
	j, ok := c.uncompleted[id]
	if !ok || c.err != nil {
		return
	}
	delete(c.uncompleted, id)
	c.inFlight--
	c.work -= j.work()
	if j.msg.Type == wire.NoOp {
		c.noops--
	}
	if op := j.op; op != nil {
		op.sending--
		op.done = op.done || j.last
		c.complete(op)
	}
	c.pump(now)
}

// complete ends an operation if it is over and none of its SENDs is in flight.
func (c *Conn) complete(op *Op) {
	if op.done && op.sending == 0 && !op.waiting {
		c.end(op, op.n, op.err)
	}
}

func (c *Conn) end(op *Op, n int, err error) { c.emit(&Finished{Op: op, N: n, Err: err}) }

// owe adds a credit to give back, after a message of the peer is handled and its receive is posted again.
func (c *Conn) owe(now time.Time) {
	c.owed++
	c.pump(now)
}

// NextTimeout returns when to call Timeout. It returns the zero time if the connection is over.
func (c *Conn) NextTimeout() time.Time {
	if c.err != nil {
		return time.Time{}
	}
	next := c.lastSend.Add(c.cfg.Keepalive)
	if c.cfg.Keepalive < 0 {
		next = c.lastSend.Add(365 * 24 * time.Hour)
	}
	for op := range c.pending {
		if op.deadline.Before(next) {
			next = op.deadline
		}
	}
	return next
}

// pending yields the operations that are queued, being sent, or unanswered by the peer. It may yield an operation twice.
func (c *Conn) pending(yield func(*Op) bool) {
	for _, op := range c.ops {
		if !yield(op) {
			return
		}
	}
	for _, queue := range [][]*sendJob{c.answers, c.requests, c.unreserved} {
		for _, j := range queue {
			if j.op != nil && !yield(j.op) {
				return
			}
		}
	}
	for _, j := range c.uncompleted {
		if j.op != nil && !yield(j.op) {
			return
		}
	}
}

// Timeout ends the connection if an operation has waited too long, and sends a NOOP if the connection is idle.
func (c *Conn) Timeout(now time.Time) {
	if c.err != nil {
		return
	}
	for op := range c.pending {
		if !now.Before(op.deadline) {
			c.Close(ErrTimeout)
			return
		}
	}
	c.pump(now)
}

func (c *Conn) aborted() error { return fmt.Errorf("%w: %w", ErrAborted, c.err) }

// Close ends the connection and all its operations.
func (c *Conn) Close(why error) {
	if c.err != nil {
		return
	}
	c.err = why
	c.emit(&Closed{Err: why})
	ended := map[*Op]bool{}
	abort := func(op *Op) bool {
		if !ended[op] {
			ended[op] = true
			c.end(op, 0, c.aborted())
		}
		return true
	}
	c.pending(abort)
	for op := range c.unanswered {
		abort(op)
	}
	clear(c.ops)
	clear(c.unanswered)
	clear(c.uncompleted)
	c.answers, c.requests, c.unreserved = nil, nil, nil
}
