package rsocket

import (
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goroce/roce"
)

// Conn is a stream (SOCK_STREAM rsocket). It is a net.Conn, an io.ReaderFrom, an
// io.WriterTo and, for memory that the peer has mapped, an io.WriterAt. Its
// methods may be called from any goroutine; Close, CloseRead and CloseWrite end
// the waiting calls of their direction.
type Conn struct {
	*endpoint
	conn          *roce.Conn
	local, remote Addr
	linger        time.Duration

	reading, writing            sync.Mutex // one Read, one Write at a time; never held during a call of other code
	readDeadline, writeDeadline *deadline

	keepalive keepalive
	closing   atomic.Bool   // Close was called
	closed    chan struct{} // closed then
}

// Addr is the address of an end of a stream. Its network is "rsocket".
type Addr struct{ netip.AddrPort }

// Network returns "rsocket".
func (Addr) Network() string { return "rsocket" }

// LocalAddr returns the address of this end, an [Addr].
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the address of the other end, an [Addr].
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// QP returns the queue pair underneath, for counters and queries. Posting to it
// breaks the stream.
func (c *Conn) QP() *roce.QP { return c.qp }

// Done returns a channel that is closed when the stream has ended: the peer
// has closed it, or it broke. Data that has arrived can still be read. A
// program that watches mapped memory learns from it that the peer writes no
// more.
func (c *Conn) Done() <-chan struct{} { return c.over }

// fail wraps an error as package net does. It does not wrap io.EOF and EAGAIN.
func (c *Conn) fail(op string, err error) error {
	if err == nil || err == io.EOF || err == syscall.EAGAIN {
		return err
	}
	return &net.OpError{Op: op, Net: "rsocket", Source: c.local, Addr: c.remote, Err: err}
}

// await blocks until ready returns true. It calls ready with the state locked. If await
// succeeds, the state stays locked.
func (c *Conn) await(wake <-chan struct{}, limit *deadline, ready func() bool) error {
	for {
		expired := limit.wait()
		select {
		case <-c.closed:
			return net.ErrClosed
		case <-expired:
			return os.ErrDeadlineExceeded
		default:
		}
		c.mu.Lock()
		if ready() {
			return nil
		}
		c.mu.Unlock()
		select {
		case <-wake:
		case <-expired:
		case <-c.closed:
		}
	}
}

// Read reads data that has arrived, or waits for data (rrecv). After the peer
// has closed its direction and all data is read, it returns io.EOF.
func (c *Conn) Read(p []byte) (n int, err error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	n, err = c.read(p)
	return n, c.fail("read", err)
}

func (c *Conn) read(p []byte) (n int, err error) {
	err = c.await(c.readable, c.readDeadline, func() bool { return len(p) == 0 || c.rx.inbox.bytes > 0 || c.noReads() })
	if err != nil {
		return 0, err
	}
	defer c.mu.Unlock()
	return c.take(p)
}

// take reads data that has arrived. The caller has locked the state; take unlocks it while
// it copies.
func (c *Conn) take(p []byte) (n int, err error) {
	if len(p) > 0 && (c.readShut || c.rx.inbox.bytes == 0) {
		return 0, c.readError()
	}
	for n < len(p) && c.rx.inbox.bytes > 0 {
		run := c.run(len(p) - n)
		c.mu.Unlock()
		k := copy(p[n:], run) // the peer writes only elsewhere until the data is consumed
		c.mu.Lock()
		c.rx.consume(k)
		c.grant()
		n += k
	}
	return n, nil
}

// Write sends p (rsend). It returns when all data is posted to the queue pair,
// not when the peer has it. If it fails, n bytes were sent.
func (c *Conn) Write(p []byte) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	for {
		room, err := c.awaitRoom(len(p) - n)
		if err != nil {
			return n, c.fail("write", err)
		}
		if len(p) == 0 {
			return 0, nil
		}
		if err = c.send(room, p[n:n+room]); err != nil {
			return n, c.fail("write", err)
		}
		if n += room; n == len(p) {
			return n, nil
		}
	}
}

// awaitRoom waits until a message of up to want bytes may be sent and returns
// the number of bytes.
func (c *Conn) awaitRoom(want int) (room int, err error) {
	err = c.await(c.writable, c.writeDeadline, func() bool {
		room = c.tx.room(want)
		return room > 0 || want == 0 || c.noWrites()
	})
	if err != nil {
		return 0, err
	}
	defer c.mu.Unlock()
	return room, c.writeError()
}

// readError returns the reason why no more data can be read. The caller has
// locked the state.
func (c *Conn) readError() error {
	switch {
	case c.readShut, c.ended && c.err == nil, c.peerShut:
		return io.EOF
	case c.err != nil:
		return c.err
	}
	return nil
}

// writeError returns the reason why no data can be written. CloseWrite and Disconnect also
// end the queue pair; so writeError checks the calls of this end first, and then the state of
// the queue pair. The caller has locked the state.
func (c *Conn) writeError() error {
	switch {
	case c.writeShut:
		return syscall.EPIPE
	case c.err != nil:
		return c.err
	case c.ended:
		return syscall.EPIPE
	}
	return nil
}
