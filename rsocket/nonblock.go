package rsocket

import (
	"net"
	"syscall"
)

// watcher is what [Conn.Watch] was given.
type watcher struct{ readable, writable func() }

// Watch says what is called when [Conn.Ready] may have begun to report that a stream is readable, or that it
// is writable. Both are also called when the stream ends. They must not wait and must not call methods of the
// stream.
func (c *Conn) Watch(readable, writable func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watch = watcher{readable, writable}
}

// Ready reports whether TryRead and TryWrite would do something, or fail, at once, and whether the
// stream is over and all data is read. A small TryWrite may succeed although it reports false.
func (c *Conn) Ready() (read, write, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rx.inbox.bytes > 0 || c.noReads(), c.tx.room(lowWater) > 0 || c.noWrites(), c.ended && c.rx.inbox.bytes == 0
}

// Err returns why the stream broke, nil if it has not.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// TryRead is Read that does not wait for the peer (MSG_DONTWAIT): EAGAIN. It does wait while another
// goroutine is in Read.
func (c *Conn) TryRead(p []byte) (n int, err error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	n, err = c.tryRead(p, c.take)
	return n, c.fail("read", err)
}

// Peek is TryRead that leaves the data there (MSG_PEEK).
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

// look copies what has arrived, and leaves it there. Called with the state locked.
func (c *Conn) look(p []byte) (n int, err error) {
	if len(p) > 0 && (c.readShut || c.rx.inbox.bytes == 0) {
		return 0, c.readError()
	}
	p = p[:min(len(p), c.rx.inbox.bytes)]
	n = copy(p, c.early[len(c.early)-c.rx.early:])
	n += copy(p[n:], c.rbuf[c.rx.at:])
	return n + copy(p[n:], c.rbuf), nil
}

// TryWrite is Write that does not wait for the peer (MSG_DONTWAIT): it sends what there is room
// for, which may be less than p. EAGAIN when there is none. It does wait while another goroutine is in
// Write.
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

// TryWriteAt is WriteAt that does not wait for the peer. As TryWrite it may write less than p.
func (c *Conn) TryWriteAt(p []byte, off int64) (n int, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	n, err = c.writeAt(p, off, c.tryRoom)
	return tried(n, c.fail("write", err))
}

// tried returns the outcome of a call that has done a part of its work: the rest is for the next call.
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
