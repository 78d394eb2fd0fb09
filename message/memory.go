package message

import (
	"context"
	"encoding/binary"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/errs"
)

// Export is memory that the peer may use.
type Export struct {
	conn  *Conn
	mr    *roce.MR
	token Token
}

// Export gives the peer access to buf, until the export or the connection is
// closed.
func (c *Conn) Export(buf []byte, access Access) (*Export, error) {
	if access == 0 || access&^(ReadWrite|Atomic) != 0 {
		return nil, c.fail("export", errs.New("export", syscall.EINVAL, "access %#x", uint8(access)))
	}
	// With the state locked, because after Close no new region may keep the domain open.
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exports == nil {
		return nil, c.fail("export", errClosed)
	}
	mr, err := c.pd.RegMR(buf, access.rights())
	if err != nil {
		return nil, c.fail("export", err)
	}
	e := &Export{c, mr, Token{mr.Addr(), uint64(len(buf)), mr.RKey(), access}}
	c.exports[e] = struct{}{}
	return e, nil
}

// Token returns the token of the memory, for the peer.
func (e *Export) Token() Token { return e.token }

// Close ends the export: when it returns, the peer cannot access the memory any more.
// If the peer tries, the connection breaks. It fails with net.ErrClosed if the export
// or its connection is already closed.
func (e *Export) Close() error {
	c := e.conn
	c.mu.Lock()
	_, open := c.exports[e]
	delete(c.exports, e)
	if open {
		c.leaving.Add(1)
	}
	c.mu.Unlock()
	if !open {
		return c.fail("close export", errClosed)
	}
	defer c.leaving.Done()
	return c.fail("close export", e.mr.Close())
}

// Write writes p to the peer's memory at off and returns when the data is there.
// If the token does not allow it, Write fails with EACCES or EFAULT, and the
// connection stays.
func (c *Conn) Write(ctx context.Context, t Token, off int, p []byte) error {
	return c.fail("write", c.transfer(ctx, t, Write, off, p))
}

// Read reads the peer's memory at off into p.
func (c *Conn) Read(ctx context.Context, t Token, off int, p []byte) error {
	return c.fail("read", c.transfer(ctx, t, Read, off, p))
}

// transfer transfers p in pieces, several of them in flight.
func (c *Conn) transfer(ctx context.Context, t Token, how Access, off int, p []byte) error {
	if err := t.check(how, off, len(p)); err != nil {
		return err
	}
	if err := c.prepareTransfers(); err != nil {
		return err
	}
	done := make(chan outcome, c.cfg.Transfers)
	x := transfer{c: c, done: done}
	for start := 0; start < len(p); {
		if x.pending == c.cfg.Transfers {
			if err := x.collect(ctx, how, p); err != nil {
				return err
			}
		}
		slot, err := x.slot(ctx, how, p)
		if err != nil {
			return err
		}
		n := min(pieceLen, len(p)-start)
		o := op{slot: slot, from: c.pieces, start: start, n: n, done: done}
		if how == Write {
			copy(c.xbuf[slot*pieceLen:], p[start:start+n])
		}
		err = c.post(o, func(wr *roce.SendWR) {
			wr.Opcode = roce.Read
			if how == Write {
				wr.Opcode = roce.Write
			}
			wr.SG = []roce.SGE{c.xmr.SGE(slot*pieceLen, n)}
			wr.RemoteAddr, wr.RKey = t.addr+uint64(off+start), t.key
		})
		if err != nil {
			x.abandon()
			return c.why(err)
		}
		x.pending++
		start += n
	}
	for x.pending > 0 {
		if err := x.collect(ctx, how, p); err != nil {
			return err
		}
	}
	return nil
}

// prepareTransfers makes the buffer of transfers, unless it exists: most connections make no transfers. It fails if
// Close was called: a new region would keep the domain open.
func (c *Conn) prepareTransfers() (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return c.err
	case c.exports == nil:
		return errClosed
	case c.xmr == nil:
		c.xbuf = make([]byte, c.cfg.Transfers*pieceLen)
		c.xmr, err = c.pd.RegMR(c.xbuf, roce.LocalWrite)
	}
	return err
}

// transfer has the pieces in flight of one call.
type transfer struct {
	c       *Conn
	done    chan outcome
	pending int
}

// slot finds a buffer for the next piece. If none is free, it waits for an
// earlier piece of the call.
func (x *transfer) slot(ctx context.Context, how Access, p []byte) (int, error) {
	for {
		select {
		case s := <-x.c.pieces:
			return s, nil
		default:
		}
		if x.pending == 0 {
			s, err := take(ctx, x.c.pieces, x.c.over)
			return s, x.c.why(err)
		}
		if err := x.collect(ctx, how, p); err != nil {
			return 0, err
		}
	}
}

// collect waits until a piece is complete.
func (x *transfer) collect(ctx context.Context, how Access, p []byte) error {
	select {
	case o := <-x.done:
		x.pending--
		if o.err == nil && how == Read {
			copy(p[o.start:o.start+o.n], x.c.xbuf[o.slot*pieceLen:])
		}
		x.c.free(o.op)
		if o.err != nil {
			x.abandon()
			return x.c.cause(o.err)
		}
		return nil
	case <-ctx.Done():
		x.abandon()
		return ctx.Err()
	}
}

// abandon stops waiting for the pieces in flight: their buffers become free when
// they complete.
func (x *transfer) abandon() {
	c := x.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.ops {
		if o := &c.ops[id]; o.done == x.done {
			o.done = nil
		}
	}
	for {
		select {
		case o := <-x.done:
			c.free(o.op)
		default:
			return
		}
	}
}

// CompareSwap stores swap in the 8-byte word at off of the peer's memory if the
// word is old, and returns its previous value. The word is in the byte order of
// the peer's host. The operation is atomic with every other atomic on the word,
// including sync/atomic in the peer's program.
func (c *Conn) CompareSwap(ctx context.Context, t Token, off int, old, swap uint64) (was uint64, err error) {
	was, err = c.atomic(ctx, t, off, func(wr *roce.SendWR) { wr.Opcode, wr.CompareAdd, wr.Swap = roce.CompareSwap, old, swap })
	return was, c.fail("compare and swap", err)
}

// FetchAdd adds delta to the 8-byte word at off of the peer's memory and returns
// its previous value. See [Conn.CompareSwap].
func (c *Conn) FetchAdd(ctx context.Context, t Token, off int, delta uint64) (was uint64, err error) {
	was, err = c.atomic(ctx, t, off, func(wr *roce.SendWR) { wr.Opcode, wr.CompareAdd = roce.FetchAdd, delta })
	return was, c.fail("fetch and add", err)
}

func (c *Conn) atomic(ctx context.Context, t Token, off int, fill func(*roce.SendWR)) (was uint64, err error) {
	if err := t.check(Atomic, off, 8); err != nil {
		return 0, err
	}
	if err := c.prepareTransfers(); err != nil {
		return 0, err
	}
	slot, err := take(ctx, c.pieces, c.over)
	if err != nil {
		return 0, c.why(err)
	}
	done := make(chan outcome, 1)
	x := transfer{c: c, done: done}
	err = c.post(op{slot: slot, from: c.pieces, n: 8, done: done}, func(wr *roce.SendWR) {
		fill(wr)
		wr.SG = []roce.SGE{c.xmr.SGE(slot*pieceLen, 8)}
		wr.RemoteAddr, wr.RKey = t.addr+uint64(off), t.key
	})
	if err != nil {
		return 0, c.why(err)
	}
	x.pending = 1
	var word [8]byte
	if err := x.collect(ctx, Read, word[:]); err != nil {
		return 0, err
	}
	return binary.NativeEndian.Uint64(word[:]), nil
}
