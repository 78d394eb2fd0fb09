package message

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
)

// Config says how connections are made. The zero value is a good choice.
type Config struct {
	// MaxMessage is the largest message this side receives, in bytes. 0: 64 KiB.
	MaxMessage int

	// Depth is how many messages this side holds that nobody has received yet.
	// Memory for Depth messages is set aside. 0: 32.
	Depth int

	// Transfers is how many pieces of 64 KiB of Write and Read calls may be under
	// way. 0: 16.
	Transfers int
}

const (
	defaultMessage   = 64 << 10
	defaultDepth     = 32
	defaultTransfers = 16
	maxDepth         = 1 << 12
	maxMessage       = 1 << 30
	maxTransfers     = 1 << 10
	pieceLen         = 64 << 10
	ctrlDepth        = 4 // receives beside Depth, for messages that only return credits
)

func (c *Config) complete() Config {
	f := Config{}
	if c != nil {
		f = *c
	}
	for _, v := range [...]struct {
		p          *int
		zero, most int
	}{{&f.MaxMessage, defaultMessage, maxMessage}, {&f.Depth, defaultDepth, maxDepth}, {&f.Transfers, defaultTransfers, maxTransfers}} {
		if *v.p <= 0 {
			*v.p = v.zero
		}
		*v.p = min(*v.p, v.most)
	}
	return f
}

// Conn is a connection between two programs. Its methods may be called from any
// goroutine.
type Conn struct {
	*buffers
	cfg  Config
	peer hello
	conn *roce.Conn
	qp   *roce.QP

	credits  chan struct{} // a token for each message that may be sent
	inbox    chan arrival  // messages that nobody has received
	sending  *slots        // of the send buffer
	pieces   *slots        // of the transfer buffer
	over     chan struct{} // closed when the connection is over
	served   chan struct{} // closed when serve has ended
	closing  sync.Once
	closeErr error

	mu       sync.Mutex
	ops      []op // by work request ID
	freeOps  []int
	returned int // messages received that the peer has not been told of
	first    *arrival
	exports  map[*Export]struct{}
	err      error // why it is over
}

// arrival is a message in the receive buffer.
type arrival struct{ slot, length int }

// op is a work request under way.
type op struct {
	slot     int            // of its buffer
	from     *slots         // whose slot it is; nil: it has none
	start, n int            // which piece of a transfer it is
	done     chan<- outcome // told when it is done; nil: nobody waits, the slot is free
}

// outcome is how a work request ended. Its slot is the receiver's.
type outcome struct {
	op
	err error
}

// LocalAddr returns the address and port of this end.
func (c *Conn) LocalAddr() netip.AddrPort { return c.conn.LocalAddr() }

// RemoteAddr returns the address and port of the other end.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.conn.RemoteAddr() }

// MaxSend returns the largest message the peer takes.
func (c *Conn) MaxSend() int { return c.peer.limit }

// MaxRecv returns the largest message the peer may send.
func (c *Conn) MaxRecv() int { return c.cfg.MaxMessage }

// Done is closed when the connection is over.
func (c *Conn) Done() <-chan struct{} { return c.over }

// Err says why the connection is over: net.ErrClosed when this side closed it,
// io.EOF when the peer did, ECONNRESET, ETIMEDOUT or another error when it broke.
// It is nil before.
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

// Send sends a message. It returns when the message is handed to the queue pair;
// it arrives unless the connection breaks. When the peer holds as many messages as
// it takes, Send waits. A message beyond MaxSend is EMSGSIZE.
func (c *Conn) Send(ctx context.Context, p []byte) error {
	if len(p) > c.peer.limit {
		return c.fail("send", fmt.Errorf("a message of %d bytes, the peer takes %d: %w", len(p), c.peer.limit, syscall.EMSGSIZE))
	}
	select {
	case <-c.credits:
	default:
		select {
		case <-c.credits:
		case <-c.over:
			return c.fail("send", c.Err())
		case <-ctx.Done():
			return c.fail("send", ctx.Err())
		}
	}
	slot, err := c.sending.take(ctx, c.over)
	if err != nil {
		c.credits <- struct{}{}
		return c.fail("send", c.why(err))
	}
	copy(c.sbuf[slot*c.peer.limit:], p)
	return c.fail("send", c.post(op{slot: slot, from: c.sending}, func(wr *roce.SendWR) {
		wr.Opcode, wr.Imm = roce.SendImm, c.takeReturned()
		if len(p) > 0 {
			wr.SG = []roce.SGE{c.smr.SGE(slot*c.peer.limit, len(p))}
		}
	}))
}

// Recv receives the next message into p and returns its length. If p is too short
// it returns EMSGSIZE with the length, and the message stays for the next Recv.
// After the peer has closed and everything is received it returns io.EOF.
func (c *Conn) Recv(ctx context.Context, p []byte) (n int, err error) {
	a, err := c.next(ctx)
	if err != nil {
		return 0, c.fail("receive", err)
	}
	if a.length > len(p) {
		c.mu.Lock()
		c.first = &a
		c.mu.Unlock()
		return a.length, c.fail("receive", fmt.Errorf("a message of %d bytes, room for %d: %w", a.length, len(p), syscall.EMSGSIZE))
	}
	copy(p, c.rbuf[a.slot*c.cfg.MaxMessage:][:a.length])
	c.mu.Lock()
	c.returned++
	tell := c.returned >= (c.cfg.Depth+1)/2
	c.mu.Unlock()
	if err := c.repost(a.slot); err == nil && tell {
		c.post(op{}, func(wr *roce.SendWR) { wr.Opcode, wr.Imm = roce.SendImm, creditOnly|c.takeReturned() })
	}
	return a.length, nil
}

// next takes the oldest message.
func (c *Conn) next(ctx context.Context) (arrival, error) {
	c.mu.Lock()
	if a := c.first; a != nil {
		c.first = nil
		c.mu.Unlock()
		return *a, nil
	}
	c.mu.Unlock()
	select {
	case a := <-c.inbox:
		return a, nil
	default:
	}
	select {
	case a := <-c.inbox:
		return a, nil
	case <-ctx.Done():
		return arrival{}, ctx.Err()
	case <-c.over:
		select {
		case a := <-c.inbox: // what arrived before the end
			return a, nil
		default:
			return arrival{}, c.Err()
		}
	}
}

// takeReturned returns the credits the peer has not been told of. Called while
// posting, with the state locked.
func (c *Conn) takeReturned() uint32 {
	n := c.returned
	c.returned = 0
	return uint32(n)
}

// post posts a work request that fill completes, with the state locked so that
// work requests are posted in the order their IDs say.
func (c *Conn) post(o op, fill func(*roce.SendWR)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		c.free(o)
		return c.err
	}
	var id int
	if k := len(c.freeOps); k > 0 {
		id, c.freeOps = c.freeOps[k-1], c.freeOps[:k-1]
	} else {
		id = len(c.ops)
		c.ops = append(c.ops, op{})
	}
	c.ops[id] = o
	wr := roce.SendWR{ID: uint64(id)}
	fill(&wr)
	if err := c.qp.PostSend(&wr); err != nil {
		c.returned += int(wr.Imm & creditMask)
		c.freeOps = append(c.freeOps, id)
		c.free(o)
		return err
	}
	return nil
}

// free gives back what a work request held.
func (c *Conn) free(o op) {
	if o.from != nil {
		o.from.put(o.slot)
	}
}

// why replaces the sign that the connection is over by the reason.
func (c *Conn) why(err error) error {
	if errors.Is(err, errOver) {
		return c.Err()
	}
	return err
}

// end ends the connection, once. Called with the state locked.
func (c *Conn) end(err error) {
	if c.err == nil {
		c.err = err
		close(c.over)
	}
}

// statusError is what a failed work request means for the connection.
func statusError(status cq.Status) error {
	switch err := status.Err(); {
	case errors.Is(err, cq.Flushed):
		return syscall.ECONNRESET
	case errors.Is(err, cq.RetryExceeded), errors.Is(err, cq.RNRRetryExceeded):
		return fmt.Errorf("%w (%v)", syscall.ETIMEDOUT, err)
	default:
		return err
	}
}

// cause is why a work request failed, if the connection knows better.
func (c *Conn) cause(err error) error {
	if errors.Is(err, cq.Flushed) {
		if why := c.Err(); why != nil {
			return why
		}
		return syscall.ECONNRESET
	}
	return err
}

// hostOrder is the byte order of atomics.
var hostOrder = binary.NativeEndian
