package rsocket

import (
	"context"
	"errors"
	"os"

	"github.com/goroce/roce/errs"
)

// CloseWrite tells the peer that there is no more data (rshutdown, SHUT_WR). A waiting
// Write fails with EPIPE. CloseWrite returns when the peer has all written data, at most
// after Config.Linger, or when Close is called. If the stream broke before the peer had the
// data, CloseWrite returns the reason.
func (c *Conn) CloseWrite() error {
	if err := c.openError("close"); err != nil {
		return err
	}
	c.mu.Lock()
	tell, value := !c.writeShut, uint32(ctrlShutdown)
	if c.readShut {
		value = ctrlDisconnect
	}
	c.writeShut = true
	c.wake()
	c.mu.Unlock()
	c.passWriters()
	return c.fail("close", c.lingering(tell, value))
}

// CloseRead discards data that arrives from now on (rshutdown, SHUT_RD). A waiting
// Read returns io.EOF.
func (c *Conn) CloseRead() error {
	if err := c.openError("close"); err != nil {
		return err
	}
	c.mu.Lock()
	tell := c.writeShut && !c.readShut
	c.readShut = true
	c.wake()
	c.mu.Unlock()
	c.passReaders()
	c.mu.Lock()
	c.discard = true
	c.rx.consume(c.rx.inbox.bytes)
	c.grant()
	c.mu.Unlock()
	return c.fail("close", c.lingering(tell, ctrlDisconnect))
}

// lingering sends value to the peer, if tell is set, and waits until the peer has all data, at most
// Config.Linger.
func (c *Conn) lingering(tell bool, value uint32) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.linger)
	defer cancel()
	return c.drain(ctx, c.closed, tell, value)
}

// passWriters waits until no goroutine is about to post data. Goroutines that wait for room
// have been told to give up, so this takes at most as long as copying a message.
func (c *Conn) passWriters() {
	c.writing.Lock()
	defer c.writing.Unlock()
}

// passReaders waits until no goroutine copies from the receive buffer.
func (c *Conn) passReaders() {
	c.reading.Lock()
	defer c.reading.Unlock()
}

// Disconnect ends the stream in order: it waits until the peer has all written data and has
// confirmed the end. It ends waiting Reads and Writes. It returns the context's error if ctx ends
// first, and the reason if the stream broke before the peer had everything; the stream has ended
// in both cases. Close frees the stream afterwards.
func (c *Conn) Disconnect(ctx context.Context) error {
	if err := c.openError("disconnect"); err != nil {
		return err
	}
	return c.fail("disconnect", c.disconnect(ctx, c.closed))
}

// disconnect is Disconnect; it ends early when stop is closed.
func (c *Conn) disconnect(ctx context.Context, stop <-chan struct{}) error {
	c.mu.Lock()
	tell := !c.readShut || !c.writeShut
	c.readShut, c.writeShut = true, true
	c.wake()
	c.mu.Unlock()
	c.passWriters()
	err := c.drain(ctx, stop, tell, ctrlDisconnect)
	c.passReaders()
	c.conn.Disconnect(ctx) // on an error the peer may be gone
	return err
}

// Close disconnects, for which it waits at most Config.Linger in total, and frees the stream
// (rclose). Other waiting calls return net.ErrClosed, and so does a second Close. An error means
// that the peer may have missed data: os.ErrDeadlineExceeded, or the reason if the stream broke.
// Close need not be repeated.
func (c *Conn) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.linger)
	defer cancel()
	return c.close(ctx)
}

// abort ends the stream without waiting for the peer.
func (c *Conn) abort() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c.close(ctx)
}

func (c *Conn) close(ctx context.Context) error {
	if !c.closing.CompareAndSwap(false, true) {
		return c.fail("close", errs.ErrClosed)
	}
	c.keepalive.stop()
	close(c.closed)
	late := c.disconnect(ctx, nil)
	if errors.Is(late, context.DeadlineExceeded) {
		late = os.ErrDeadlineExceeded
	}
	err := errors.Join(late, c.conn.Close(), c.release())
	c.readDeadline.stop()
	c.writeDeadline.stop()
	return c.fail("close", err)
}
