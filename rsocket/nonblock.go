package rsocket

import (
	"net"
	"syscall"
)

// watcher has the functions of [Conn.Watch].
type watcher struct{ readable, writable func() }

// Watch sets two functions. The stream calls readable when it may have become readable, and writable when it
// may have become writable, as [Conn.Ready] reports; it calls both when it ends. They must not wait and must
// not call methods of the stream.
func (c *Conn) Watch(readable, writable func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watch = watcher{readable, writable}
}

// Ready reports whether TryRead and TryWrite would transfer data, or fail, at once, and whether
// the stream has ended and all data is read. A small TryWrite may succeed even if write is false.
func (c *Conn) Ready() (read, write, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rx.inbox.bytes > 0 || c.noReads(), c.tx.room(lowWater) > 0 || c.noWrites(), c.ended && c.rx.inbox.bytes == 0
}

// Err returns the reason why the stream broke, or nil.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// TryRead is Read without waiting for the peer (MSG_DONTWAIT): it fails with EAGAIN instead. It does
// wait while another goroutine is in Read.
func (c *Conn) TryRead(p []byte) (n int, err error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	n, err = c.tryRead(p, c.take)
	return n, c.fail("read", err)
}

// Peek is TryRead that does not consume the data (MSG_PEEK).
func (c *Conn) Peek(p []byte) (n int, err error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	n, err = c.tryRead(p, c.look)
	return n, c.fail("read", err)
}

func (c *Conn) tryRead(p []byte, read func([]byte) (int, error)) (int, error) {
	if c.closing.Load() {
		return 0, net.ErrClosed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(p) > 0 && c.rx.inbox.bytes == 0 && !c.noReads() {
		return 0, syscall.EAGAIN
	}
	return read(p)
}

// look copies data that has arrived without consuming it. The caller has locked
// the state.
func (c *Conn) look(p []byte) (n int, err error) {
	if len(p) > 0 && (c.readShut || c.rx.inbox.bytes == 0) {
		return 0, c.readError()
	}
	p = p[:min(len(p), c.rx.inbox.bytes)]
	n = copy(p, c.early[len(c.early)-c.rx.early:])
	n += copy(p[n:], c.rbuf[c.rx.at:])
	return n + copy(p[n:], c.rbuf), nil
}

// TryWrite is Write without waiting for the peer (MSG_DONTWAIT): it sends as much of p as there is
// room for, and fails with EAGAIN if there is none. It does wait while another goroutine is in Write.
func (c *Conn) TryWrite(p []byte) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	for first := true; first || n < len(p); first = false {
		room, err := c.tryRoom(len(p) - n)
		if err == nil && len(p) > 0 {
			err = c.send(room, p[n:n+room])
		}
		if err != nil {
			return tried(n, c.fail("write", err))
		}
		n += room
	}
	return n, nil
}

// TryWriteAt is WriteAt without waiting for the peer. Like TryWrite it may write less than p.
func (c *Conn) TryWriteAt(p []byte, off int64) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	n, err = c.writeAt(p, off, c.tryRoom)
	return tried(n, c.fail("write", err))
}

// tried returns the result of a nonblocking call. If the call has done a part of its work, it returns
// no error: the next call continues.
func tried(n int, err error) (int, error) {
	if n > 0 {
		err = nil
	}
	return n, err
}

// tryRoom is awaitRoom that does not wait.
func (c *Conn) tryRoom(want int) (room int, err error) {
	if c.closing.Load() {
		return 0, net.ErrClosed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if room = c.tx.room(want); room == 0 && want > 0 && !c.noWrites() {
		return 0, syscall.EAGAIN
	}
	return room, c.writeError()
}
