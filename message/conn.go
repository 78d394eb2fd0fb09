package message

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/fifo"
	"github.com/goroce/roce/internal/mailbox"
)

// arrival is a message in the receive buffer.
type arrival struct{ slot, length int }

// Conn is a connection between two programs. Its methods may be called from any
// goroutine.
type Conn struct {
	*buffers
	peer hello
	conn *roce.Conn
	qp   *roce.QP

	credits chan struct{}         // a token for each message that may be sent
	inbox   *mailbox.Box[arrival] // messages waiting for Recv
	sending slots                 // of the send buffer
	pieces  slots                 // of the transfer buffer
	over    chan struct{}         // closed when the connection has ended
	served  chan struct{}         // closed when serve has ended
	closed  atomic.Bool           // Close was called

	flushing chan struct{} // has a token while a goroutine waits until the peer has every message

	mu            sync.Mutex
	ops           []op // by work request ID
	freeOps       []int
	quiet         fifo.Queue[int] // IDs of unsignaled messages, oldest first
	posted        uint64          // number of all unsignaled messages so far
	ended         uint64          // number of those that are not in quiet any more
	sinceSignaled int             // number of those in quiet behind the newest signaled work request
	draining      bool            // a goroutine is in flush: every message is signaled
	returned      int             // received messages whose credits are not returned yet
	returning     bool            // a message that only returns credits is in flight
	exports       map[*Export]struct{}
	leaving       sync.WaitGroup // exports in Close
	lost          bool           // a message that was sent failed: the peer may have missed it
	settled       chan struct{}  // closed when the work request of settle has completed; nil: it is not posted
	err           error          // reason for the end
}

// op is a work request in progress.
type op struct {
	slot     int          // of its buffer
	from     slots        // owner of the slot; nil: no slot
	start, n int          // piece of a transfer
	done     chan outcome // receives the outcome, has capacity for it; nil: no call waits, the slot becomes free
	credits  bool         // the message only returns credits
	last     bool         // the work request of settle
	quiet    uint64       // Conn.posted when it was posted: its completion covers the unsignaled messages up to there
}

// outcome is the result of a work request. The receiver of the outcome owns
// its slot.
type outcome struct {
	op
	err error
}

// LocalAddr returns the address and port of this end.
func (c *Conn) LocalAddr() netip.AddrPort { return c.conn.LocalAddr() }

// RemoteAddr returns the address and port of the other end.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.conn.RemoteAddr() }

// MaxSend returns the largest message that this side can send: the smaller one
// of Config.MaxSend and the peer's MaxMessage.
func (c *Conn) MaxSend() int { return min(c.peer.limit, c.cfg.MaxSend) }

// MaxRecv returns the largest message that the peer may send.
func (c *Conn) MaxRecv() int { return c.cfg.MaxMessage }

// Done returns a channel that is closed when the connection ends.
func (c *Conn) Done() <-chan struct{} { return c.over }

// Err returns the reason for the end of the connection: net.ErrClosed if this
// side closed it, io.EOF if the peer did, ECONNRESET, ETIMEDOUT or another error
// if it broke. It returns nil before the end.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *Conn) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	return &net.OpError{Op: op, Net: "message", Addr: net.TCPAddrFromAddrPort(c.RemoteAddr()), Err: err}
}

// Send sends a message. It returns when the message is posted to the queue pair;
// the message arrives unless the connection breaks. Send waits while the peer has
// no room for another message. It fails with EMSGSIZE for a message larger than
// MaxSend.
func (c *Conn) Send(ctx context.Context, p []byte) error {
	switch {
	case len(p) > c.peer.limit:
		return c.fail("send", errs.New("send", syscall.EMSGSIZE, "a message of %d bytes, the peer takes %d", len(p), c.peer.limit))
	case len(p) > c.cfg.MaxSend:
		return c.fail("send", errs.New("send", syscall.EMSGSIZE, "a message of %d bytes, Config.MaxSend is %d", len(p), c.cfg.MaxSend))
	}
	if _, err := take(ctx, c.credits, c.over); err != nil {
		return c.fail("send", c.why(err))
	}
	slot, err := take(ctx, c.sending, c.over)
	if err != nil {
		c.addCredit()
		return c.fail("send", c.why(err))
	}
	copy(c.sbuf[slot*c.cfg.MaxSend:], p)
	err = c.post(op{slot: slot, from: c.sending}, func(wr *roce.SendWR) {
		wr.Opcode, wr.Imm = roce.SendImm, c.takeReturned()
		if c.mayBeQuiet(len(p)) {
			wr.Flags &^= roce.Signaled
		}
		if len(p) > 0 {
			wr.SG = []roce.SGE{c.smr.SGE(slot*c.cfg.MaxSend, len(p))}
		}
	})
	if err != nil {
		c.addCredit()
	}
	return c.fail("send", err)
}

// addCredit records that the peer has room for one more message. It returns false
// if the peer already had room for all its messages, so that the credit is wrong.
func (c *Conn) addCredit() bool {
	select {
	case c.credits <- struct{}{}:
		return true
	default:
		return false
	}
}

// Recv receives the next message into p and returns its length. If p is too short
// it returns EMSGSIZE with the length, and the message stays for the next Recv.
// After the peer has closed and all messages are received, it returns io.EOF.
// Several goroutines may receive: each message goes to one of them.
func (c *Conn) Recv(ctx context.Context, p []byte) (n int, err error) {
	a, err := c.next(ctx, len(p))
	if err != nil {
		return a.length, c.fail("receive", err)
	}
	copy(p, c.rbuf[a.slot*c.cfg.MaxMessage:][:a.length])
	if c.postRecv(c.qp, a.slot) == nil {
		c.mu.Lock()
		c.returned++
		c.mu.Unlock()
		c.returnCredits()
	}
	return a.length, nil
}

// next takes the oldest message, if it has at most room bytes.
func (c *Conn) next(ctx context.Context, room int) (arrival, error) {
	for over := false; ; {
		switch there, a, fits := c.inbox.TakeIf(func(a arrival) bool { return a.length <= room }); {
		case there && !fits:
			return a, errs.New("transfer", syscall.EMSGSIZE, "a message of %d bytes, room for %d", a.length, room)
		case there:
			return a, nil
		case over:
			return arrival{}, c.Err()
		}
		select {
		case <-c.inbox.Ready():
		case <-c.over:
			over = true // messages that arrived before the end come first
		case <-ctx.Done():
			return arrival{}, ctx.Err()
		}
	}
}

// returnCredits returns the credits of received messages to the peer in a separate
// message, if there are many and no such message is in flight. The next Send carries
// fewer credits.
func (c *Conn) returnCredits() {
	c.mu.Lock()
	tell := !c.returning && c.returned >= (c.cfg.Depth+1)/2
	c.returning = c.returning || tell
	c.mu.Unlock()
	if !tell {
		return
	}
	// A failure has ended the connection.
	c.post(op{credits: true}, func(wr *roce.SendWR) { wr.Opcode, wr.Imm = roce.SendImm, creditOnly|c.takeReturned() })
}

// takeReturned takes the credits that are not returned yet. It is called while
// posting, with the state locked.
func (c *Conn) takeReturned() uint32 {
	n := c.returned
	c.returned = 0
	return uint32(n)
}

// post posts a work request that fill completes. It locks the state, so that
// the order of posts is that of the IDs.
func (c *Conn) post(o op, fill func(*roce.SendWR)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		c.free(o)
		return c.err
	}
	return c.postAnyway(o, fill)
}

// postAnyway is post for a connection that may be over. Called with the state locked.
func (c *Conn) postAnyway(o op, fill func(*roce.SendWR)) error {
	var id int
	if k := len(c.freeOps); k > 0 {
		id, c.freeOps = c.freeOps[k-1], c.freeOps[:k-1]
	} else {
		id = len(c.ops)
		c.ops = append(c.ops, op{})
	}
	wr := roce.SendWR{ID: uint64(id), Flags: roce.Signaled}
	fill(&wr)
	if err := c.qp.PostSend(&wr); err != nil {
		c.returned += int(wr.Imm & creditMask)
		c.freeOps = append(c.freeOps, id)
		c.free(o)
		return err
	}
	if wr.Flags&roce.Signaled != 0 {
		c.sinceSignaled = 0
	} else {
		*c.quiet.Push() = id
		c.posted++
		c.sinceSignaled++
	}
	o.quiet = c.posted
	c.ops[id] = o
	return nil
}

// quietMost is the longest message that may be unsignaled.
const quietMost = 4 << 10

// mayBeQuiet reports whether a message of n bytes may be unsignaled: the next signaled work request covers it. Then it
// wakes no goroutine here, and the peer acknowledges it together with later ones. Such messages hold at most a quarter
// of the slots, so a Send that waits for a slot waits for a signaled message. The caller has locked the state.
func (c *Conn) mayBeQuiet(n int) bool {
	return n <= quietMost && c.sinceSignaled < c.cfg.sends()/4 && !c.draining
}

// free frees the resources of a work request.
func (c *Conn) free(o op) {
	if o.from != nil {
		o.from <- o.slot
	}
}

// why replaces the internal error for an ended connection by the reason for
// the end.
func (c *Conn) why(err error) error {
	if errors.Is(err, errOver) {
		return c.Err()
	}
	return err
}

// end ends the connection, once. The caller has locked the state.
func (c *Conn) end(err error) {
	if c.err == nil {
		c.err = err
		close(c.over)
	}
}

// cause returns the reason for the failure of a work request: that of the
// connection, if it has one, otherwise err.
func (c *Conn) cause(err error) error {
	if errors.Is(err, roce.ErrFlushed) {
		if why := c.Err(); why != nil {
			return why
		}
		return syscall.ECONNRESET
	}
	return err
}
