package message

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
)

// recvFlag marks the IDs of receives; the rest is the slot of the buffer.
const recvFlag = 1 << 63

// repost gives a slot of the receive buffer back to the queue pair.
func (c *Conn) repost(slot int) error { return c.postRecv(c.qp, slot) }

// serve handles completions until the queue is closed.
func (c *Conn) serve() {
	defer close(c.served)
	var wcs [32]roce.WC
	for {
		n := c.cq.Poll(wcs[:])
		if n == 0 {
			if c.cq.Wait(context.Background()) != nil {
				return
			}
			continue
		}
		for i := range wcs[:n] {
			if wc := &wcs[i]; wc.ID&recvFlag != 0 {
				c.received(wc)
			} else {
				c.sent(wc)
			}
		}
	}
}

// received takes a message. The receive of one that only returns credits goes
// back at once.
func (c *Conn) received(wc *roce.WC) {
	slot := int(wc.ID &^ recvFlag)
	if wc.Status != cq.Success {
		c.broke(wc.Status)
		return
	}
	for range wc.Imm & creditMask {
		select {
		case c.credits <- struct{}{}:
		default:
			c.violation("more credits than messages were sent")
			return
		}
	}
	if wc.Imm&creditOnly != 0 {
		c.repost(slot)
		return
	}
	select {
	case c.inbox <- arrival{slot, int(wc.ByteLen)}:
	default:
		c.violation("more messages than it had credits for")
	}
}

func (c *Conn) violation(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(fmt.Errorf("the peer sent %s: %w", what, syscall.EPROTO))
}

// sent ends a work request.
func (c *Conn) sent(wc *roce.WC) {
	c.mu.Lock()
	o := c.ops[wc.ID]
	c.ops[wc.ID] = op{}
	c.freeOps = append(c.freeOps, int(wc.ID))
	c.mu.Unlock()
	if o.done != nil {
		o.done <- outcome{o, wc.Err()} // there is room
	} else {
		c.free(o)
	}
	if wc.Status != cq.Success {
		c.broke(wc.Status)
	}
}

// broke ends the connection because a work request failed. Flushed ones say only
// that it is over: the connection manager knows why.
func (c *Conn) broke(status cq.Status) {
	err := statusError(status)
	if status == cq.WRFlushErr && errors.Is(c.conn.Err(), roce.ErrDisconnected) {
		err = io.EOF
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(err)
}

// Close ends the connection: it waits until the peer has every message that was
// sent, or ctx ends, and tells it. Calls that wait return net.ErrClosed. Exported
// memory is the caller's alone when Close returns.
func (c *Conn) Close(ctx context.Context) error {
	first := false
	c.closing.Do(func() {
		first = true
		c.closeErr = c.close(ctx)
	})
	if !first {
		return c.fail("close", errClosed)
	}
	return c.fail("close", c.closeErr)
}

func (c *Conn) close(ctx context.Context) error {
	var late error
	for range c.sending.len() { // every slot free: everything is with the peer
		if _, err := c.sending.take(ctx, c.over); err != nil {
			if !errors.Is(err, errOver) {
				late = err
			}
			break
		}
	}
	c.mu.Lock()
	c.end(errClosed)
	exports := c.exports
	c.exports = nil
	c.mu.Unlock()
	c.conn.Disconnect(ctx) // a peer that is gone need not be told
	errs := []error{late, c.conn.Close()}
	for e := range exports {
		errs = append(errs, e.mr.Close())
	}
	return errors.Join(append(errs, c.release(c.served))...)
}
