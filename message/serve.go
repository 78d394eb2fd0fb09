package message

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/errs"
)

// recvFlag marks the IDs of receives; the rest is the slot of the buffer.
const recvFlag = 1 << 63

// serve handles completions until the queue is closed.
func (c *Conn) serve() {
	defer close(c.served)
	defer c.orphan()
	var wcs [32]roce.WC
	for c.cq.Wait(context.Background()) == nil {
		for n := len(wcs); n == len(wcs); { // fewer: the queue is empty
			n = c.cq.Poll(wcs[:])
			for i := range wcs[:n] {
				if wc := &wcs[i]; wc.ID&recvFlag != 0 {
					c.received(wc)
				} else {
					c.sent(wc)
				}
			}
		}
	}
}

// received handles a message. If the message only returns credits, received
// reposts its receive at once.
func (c *Conn) received(wc *roce.WC) {
	slot := int(wc.ID &^ recvFlag)
	if wc.Status != roce.StatusSuccess {
		c.broke(wc.Status)
		return
	}
	if wc.Opcode != roce.WCRecv || wc.Flags&roce.WCWithImm == 0 {
		// A WRITE with immediate takes a receive, too, but puts its data elsewhere.
		c.violation("something that is no message")
		return
	}
	for range wc.Imm & creditMask {
		if !c.addCredit() {
			c.violation("more credits than messages were sent")
			return
		}
	}
	if wc.Imm&creditOnly != 0 {
		c.postRecv(c.qp, slot)
		return
	}
	if !c.inbox.Put(arrival{slot, int(wc.ByteLen)}) {
		c.violation("more messages than it had credits for")
	}
}

func (c *Conn) violation(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(errs.New("transfer", syscall.EPROTO, "the peer sent %s", what))
}

// sent completes a work request, and the unsignaled messages before it.
func (c *Conn) sent(wc *roce.WC) {
	c.mu.Lock()
	// Even a failed work request shows that those before it succeeded: an earlier failure would have generated a
	// completion before this one.
	for c.ended != c.ops[wc.ID].quiet {
		id, _ := c.quiet.Pop()
		c.ended++
		if id != int(wc.ID) {
			c.complete(id, nil)
		}
	}
	o := c.complete(int(wc.ID), wc.Err())
	if o.credits {
		c.returning = false
	}
	c.mu.Unlock()
	if wc.Status != roce.StatusSuccess {
		c.broke(wc.Status)
	} else if o.credits {
		c.returnCredits() // of messages that were received meanwhile
	}
}

// complete frees a work request. The caller has locked the state.
func (c *Conn) complete(id int, err error) (o op) {
	o, c.ops[id] = c.ops[id], op{}
	c.freeOps = append(c.freeOps, id)
	c.finish(o, err)
	return o
}

// finish sends the outcome of a work request to the goroutine that waits for it, or
// frees its slot if none waits. The caller has locked the state.
func (c *Conn) finish(o op, err error) {
	c.lost = c.lost || err != nil && o.from == c.sending
	if o.done != nil {
		o.done <- outcome{o, err}
	} else {
		c.free(o)
	}
	if o.last {
		close(c.settled)
	}
}

// orphan ends the work requests without completions, after the queue was closed. The connection posts no
// further ones.
func (c *Conn) orphan() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(syscall.ECONNRESET) // the device was closed; otherwise Close has already set the reason
	// Device.Close flushes the queue pairs first. Then each unacknowledged work request has a completion, also an
	// unsignaled one. So the peer has acknowledged the unsignaled messages that are left.
	for id, ok := c.quiet.Pop(); ok; id, ok = c.quiet.Pop() {
		c.complete(id, nil)
	}
	for id, o := range c.ops {
		c.ops[id] = op{}
		c.finish(o, roce.ErrFlushed)
	}
}

// broke ends the connection because a work request failed. If it was flushed,
// the reason is that of the connection manager.
func (c *Conn) broke(status roce.Status) {
	err := status.Err()
	switch {
	case errors.Is(err, roce.ErrFlushed) && errors.Is(c.conn.Err(), roce.ErrDisconnected):
		err = io.EOF
	case errors.Is(err, roce.ErrFlushed):
		err = syscall.ECONNRESET
	case errors.Is(err, roce.ErrRetryExceeded), errors.Is(err, roce.ErrRNRRetryExceeded):
		err = fmt.Errorf("%w (%v)", syscall.ETIMEDOUT, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(err)
}

// Disconnect ends the connection in order: it waits until the peer has every message that was
// sent, tells the peer, and waits for its confirmation. Other waiting calls return net.ErrClosed.
// Disconnect returns the context's error if ctx ends first, and the error of [Conn.Err] if the
// connection broke before the peer had every message; the connection has ended in both cases.
// Close frees the connection afterwards.
func (c *Conn) Disconnect(ctx context.Context) error {
	if c.closed.Load() {
		return c.fail("disconnect", errClosed)
	}
	return c.fail("disconnect", c.disconnect(ctx))
}

func (c *Conn) disconnect(ctx context.Context) error {
	err := c.flush(ctx)
	c.mu.Lock()
	c.end(errClosed)
	c.mu.Unlock()
	c.conn.Disconnect(ctx) // on an error the peer is gone
	return err
}

// Close disconnects, for which it waits at most Config.Linger, and frees the connection. When
// Close returns, the peer has no access to exported memory. An error means that the peer may have
// missed messages (os.ErrDeadlineExceeded, or the error of [Conn.Err] if the connection broke),
// or that Close was called before (net.ErrClosed). Close need not be repeated.
func (c *Conn) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.Linger)
	defer cancel()
	return c.close(ctx)
}

// abort ends the connection without waiting for the peer.
func (c *Conn) abort() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c.close(ctx)
}

func (c *Conn) close(ctx context.Context) error {
	if !c.closed.CompareAndSwap(false, true) {
		return c.fail("close", errClosed)
	}
	err := c.disconnect(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = os.ErrDeadlineExceeded
	}
	return c.fail("close", errors.Join(err, c.destroy()))
}

// flush waits until the peer has every sent message, so that every slot is free. Only one
// goroutine at a time takes the slots, because two goroutines with some slots each would wait for
// each other.
func (c *Conn) flush(ctx context.Context) error {
	select {
	case c.flushing <- struct{}{}:
		defer func() { <-c.flushing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	c.drain(true)
	defer c.drain(false)
	for range cap(c.sending) {
		if _, err := take(ctx, c.sending, c.over); errors.Is(err, errOver) {
			break
		} else if err != nil {
			return err
		}
	}
	if err := c.settle(ctx); err != nil {
		return err
	}
	return c.undelivered()
}

// settle does nothing unless the connection broke. Then it waits until it is clear for each message whether the peer has
// acknowledged it. The queue pair flushes unacknowledged messages, but an unsignaled message that was acknowledged has no
// completion. So settle posts one more work request. When that is flushed, too, all messages before it have completed.
func (c *Conn) settle(ctx context.Context) error {
	c.mu.Lock()
	if !c.failed() {
		c.mu.Unlock()
		return nil
	}
	if c.settled == nil {
		c.settled = make(chan struct{})
		// The queue pair is still in RTS if the peer violated the protocol. Both calls fail only if the device is closed:
		// then serve ends.
		c.qp.Modify(&roce.Attr{State: roce.StateErr}, roce.AttrState)
		c.postAnyway(op{last: true}, func(wr *roce.SendWR) { wr.Opcode = roce.Write })
	}
	c.mu.Unlock()
	select {
	case <-c.settled:
	case <-c.served:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// failed reports whether the connection broke. It returns false while the connection lasts, and if either end closed it. Called
// with the state locked.
func (c *Conn) failed() bool { return c.err != nil && c.err != io.EOF && c.err != errClosed }

// drain makes every message signaled, and requests a completion for earlier unsignaled ones. With on unset, messages may
// be unsignaled again.
func (c *Conn) drain(on bool) {
	c.mu.Lock()
	c.draining = on
	some := on && c.sinceSignaled > 0
	c.mu.Unlock()
	if some { // a zero-length WRITE, which needs no key; a failure has ended the connection
		c.post(op{}, func(wr *roce.SendWR) { wr.Opcode = roce.Write })
	}
}

// undelivered returns the reason why the connection broke, if the peer may have missed a message,
// otherwise nil. It also returns nil if the peer closed the connection and thus accepts no more
// messages, and if this side ended it, because the call that did so has reported the loss.
func (c *Conn) undelivered() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	inFlight := slices.ContainsFunc(c.ops, func(o op) bool { return o.from == c.sending })
	if !c.failed() || !c.lost && !inFlight {
		return nil
	}
	return fmt.Errorf("the peer may have missed messages: %w", c.err)
}

// destroy frees the connection, which has ended.
func (c *Conn) destroy() error {
	c.mu.Lock()
	exports := c.exports
	c.exports = nil
	c.mu.Unlock()
	errs := []error{c.conn.Close()}
	for e := range exports {
		errs = append(errs, e.mr.Close())
	}
	c.leaving.Wait()
	return errors.Join(append(errs, c.release(c.served))...)
}
