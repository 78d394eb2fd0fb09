package rsocket

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/goroce/roce"
)

// Conn is a stream (SOCK_STREAM rsocket). It is a net.Conn, and beside that an
// io.ReaderFrom, io.WriterTo and, towards memory the peer has mapped, an
// io.WriterAt. Its methods may be called from any goroutine.
type Conn struct {
	*endpoint
	conn          *roce.Conn
	local, remote Addr
	linger        time.Duration

	reading, writing            sync.Mutex // one Read, one Write at a time
	readDeadline, writeDeadline *deadline

	keepalive keepalive
	closing   sync.Once
	closed    chan struct{} // Close was called
	closeErr  error
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

// Done is closed when the stream is over: the peer has closed it, or it broke.
// What has arrived can still be read. It tells who watches mapped memory that
// nothing more will be written.
func (c *Conn) Done() <-chan struct{} { return c.over }

// fail wraps an error as package net does. io.EOF stays itself.
func (c *Conn) fail(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "rsocket", Source: c.local, Addr: c.remote, Err: err}
}

// await blocks until ready says so. ready is called with the state locked, which
// it stays if await succeeds.
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

// Read reads what has arrived, or waits for it (rrecv). After the peer has
// closed its direction and everything is read it returns io.EOF.
func (c *Conn) Read(p []byte) (n int, err error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	return c.read(p)
}

func (c *Conn) read(p []byte) (n int, err error) {
	err = c.eachRun(len(p), func(run []byte) (int, error) {
		n += copy(p[n:], run)
		return len(run), nil
	})
	return n, c.fail("read", err)
}

// eachRun waits for data and hands up to limit bytes of what there is to take,
// which says how many of them it used. It runs with the reading lock held.
func (c *Conn) eachRun(limit int, take func([]byte) (int, error)) error {
	err := c.await(c.readable, c.readDeadline, func() bool { return limit == 0 || c.rx.inbox.bytes > 0 || c.noReads() })
	if err != nil {
		return err
	}
	if limit > 0 && (c.readShut || c.rx.inbox.bytes == 0) {
		err = c.readError()
	}
	for err == nil && limit > 0 && c.rx.inbox.bytes > 0 {
		at, n := c.rx.next(limit)
		c.mu.Unlock()
		n, err = take(c.rbuf[at : at+n]) // the peer writes elsewhere until it is consumed
		limit -= n
		c.mu.Lock()
		c.rx.consume(n)
		c.grant()
	}
	c.mu.Unlock()
	return err
}

// WriteTo sends everything that is read to w, without a buffer in between,
// until io.EOF.
func (c *Conn) WriteTo(w io.Writer) (total int64, err error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	for {
		var theirs error
		err := c.eachRun(c.rx.buffer, func(run []byte) (int, error) {
			n, err := w.Write(run)
			if err == nil && n < len(run) {
				err = io.ErrShortWrite
			}
			total, theirs = total+int64(n), err
			return n, err
		})
		switch {
		case theirs != nil:
			return total, theirs
		case err == io.EOF:
			return total, nil
		case err != nil:
			return total, c.fail("read", err)
		}
	}
}

// Write sends p (rsend). It returns when everything is handed to the queue pair,
// not when the peer has it. When it fails n bytes were sent.
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

// ReadFrom sends what it reads from r until io.EOF, read straight into the send
// buffer.
func (c *Conn) ReadFrom(r io.Reader) (total int64, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	for {
		room, err := c.awaitRoom(maxMessage)
		if err != nil {
			return total, c.fail("write", err)
		}
		n, theirs := r.Read(c.sbuf[c.tx.at : c.tx.at+room]) // only writers, of which we are the one, move at
		if n > 0 {
			total += int64(n)
			if err = c.send(n, nil); err != nil {
				return total, c.fail("write", err)
			}
		}
		switch {
		case theirs == io.EOF:
			return total, nil
		case theirs != nil:
			return total, theirs
		}
	}
}

// awaitRoom waits until a message of up to want bytes may be sent and returns
// how many of them.
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

// SetDeadline sets both time limits.
func (c *Conn) SetDeadline(t time.Time) error {
	c.readDeadline.set(t)
	c.writeDeadline.set(t)
	return c.openError("set")
}

// SetReadDeadline ends Reads that wait at t with [os.ErrDeadlineExceeded]. The
// zero time is no limit.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.readDeadline.set(t)
	return c.openError("set")
}

// SetWriteDeadline does so for Writes.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.writeDeadline.set(t)
	return c.openError("set")
}

func (c *Conn) openError(op string) error {
	select {
	case <-c.closed:
		return c.fail(op, net.ErrClosed)
	default:
		return nil
	}
}

// CloseWrite tells the peer that no more data comes (rshutdown, SHUT_WR). It
// returns when the peer has all of it, at most after Config.Linger.
func (c *Conn) CloseWrite() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.openError("close"); err != nil {
		return err
	}
	return c.fail("close", c.shut(func() (uint32, bool) {
		if c.writeShut {
			return 0, false
		}
		c.writeShut = true
		if c.readShut {
			return ctrlDisconnect, true
		}
		return ctrlShutdown, true
	}))
}

// CloseRead discards what arrives from now on (rshutdown, SHUT_RD).
func (c *Conn) CloseRead() error {
	if err := c.openError("close"); err != nil {
		return err
	}
	c.mu.Lock()
	already := c.readShut
	c.readShut = true
	c.wake() // whoever reads
	c.mu.Unlock()
	c.reading.Lock()
	defer c.reading.Unlock()
	return c.fail("close", c.shut(func() (uint32, bool) {
		c.discard = true
		c.rx.consume(c.rx.inbox.bytes)
		c.grant()
		return ctrlDisconnect, c.writeShut && !already
	}))
}

// shut changes the state and, if decide says so, tells the peer; then it waits
// until the peer has everything.
func (c *Conn) shut(decide func() (uint32, bool)) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.linger)
	defer cancel()
	return c.drain(ctx, decide)
}

// Close ends the stream (rclose). It waits until the peer has what was written,
// at most Config.Linger. Reads and Writes that wait return net.ErrClosed.
func (c *Conn) Close() error {
	first := false
	c.closing.Do(func() {
		first = true
		c.keepalive.stop()
		close(c.closed)
		c.writing.Lock() // a writer that was at it leaves no half message
		err := c.shut(func() (uint32, bool) {
			told := c.readShut && c.writeShut
			c.readShut, c.writeShut = true, true
			return ctrlDisconnect, !told
		})
		c.writing.Unlock()
		c.reading.Lock() // nor does a reader look at memory that is gone
		defer c.reading.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), c.linger)
		defer cancel()
		c.conn.Disconnect(ctx) // the peer may be gone; then there is nobody to tell
		c.closeErr = errors.Join(c.conn.Close(), c.release())
		if errors.Is(err, context.DeadlineExceeded) {
			c.closeErr = errors.Join(os.ErrDeadlineExceeded, c.closeErr)
		}
	})
	if !first {
		return c.fail("close", net.ErrClosed)
	}
	return c.fail("close", c.closeErr)
}

// readError is why nothing more can be read. Called with the state locked.
func (c *Conn) readError() error {
	switch {
	case c.readShut, c.ended && c.err == nil, c.peerShut:
		return io.EOF
	case c.err != nil:
		return c.err
	}
	return nil
}

// writeError is why nothing can be written. Called with the state locked.
func (c *Conn) writeError() error {
	switch {
	case c.err != nil:
		return c.err
	case c.writeShut, c.ended:
		return syscall.EPIPE
	}
	return nil
}
