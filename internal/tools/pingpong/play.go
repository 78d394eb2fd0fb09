package pingpong

import (
	"context"
	"fmt"
	"time"

	"github.com/goroce/roce"
)

// A message is made of pattern. With -c the C tool's client puts mark on the first
// byte of each page, and its server looks for that.
const (
	pattern  = 0x7b
	mark     = 0
	pageSize = 4096
)

// fillMessage writes a message, marked or not.
func fillMessage(b []byte, marked bool) {
	for i := range b {
		b[i] = pattern
		if marked && i%pageSize == 0 {
			b[i] = mark
		}
	}
}

// IDs of work requests. They are bits, so that what is still pending is their
// union.
const (
	recvID = 1
	sendID = 2
)

// finish plays and sees to it that the peer can finish, too.
func (e *end) finish(ctx context.Context, first bool) (Result, error) {
	r, err := e.play(ctx, first)
	if err == nil && kinds[e.cfg.Kind].reliable {
		e.linger(ctx)
	}
	return r, err
}

// play bounces the message. A side sends again once it has received and its own
// send is complete.
func (e *end) play(ctx context.Context, first bool) (Result, error) {
	start := time.Now()
	sent, received, posted := 0, 0, e.cfg.RxDepth
	pending := recvID
	if first {
		if err := e.post(); err != nil {
			return Result{}, err
		}
		pending |= sendID
	}
	for sent < e.cfg.Iters || received < e.cfg.Iters {
		wc, err := e.cq.Next(ctx)
		if err == nil {
			err = wc.Status.Err()
		}
		if err != nil && first && received == e.cfg.Iters && sent == e.cfg.Iters-1 {
			break // the last answer proves that the last message arrived, though its acknowledgement did not
		}
		if err != nil {
			return Result{}, fmt.Errorf("pingpong: after %d messages sent and %d received: %w", sent, received, err)
		}
		switch wc.ID {
		case sendID:
			sent++
		case recvID:
			received++
			if err := e.checkMessage(int(wc.ByteLen)); err != nil {
				return Result{}, err
			}
			// Like the C tool, fill the queue up when it has run low.
			if posted--; posted <= 1 {
				if err := e.postRecvs(e.cfg.RxDepth - posted); err != nil {
					return Result{}, err
				}
				posted = e.cfg.RxDepth
			}
		}
		pending &^= int(wc.ID)
		if sent < e.cfg.Iters && pending == 0 {
			if err := e.post(); err != nil {
				return Result{}, err
			}
			pending = recvID | sendID
		}
	}
	return Result{Iters: e.cfg.Iters, Bytes: 2 * int64(e.cfg.Size) * int64(e.cfg.Iters), Time: time.Since(start)}, nil
}

// lingering is how long a side stays behind when packets were lost: longer than
// the acknowledgement timeout of a slow rxe.
const lingering = 2 * time.Second

// linger stays to answer the peer's repetitions. The C tool leaves when it has
// all it wants; if its last acknowledgement is lost the other side fails.
func (e *end) linger(ctx context.Context) {
	if c := e.dev.Counters(); c.RetransPkts+c.DuplicateRequest+c.OutOfSeqRequest == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lingering)
	defer cancel()
	e.cq.Wait(ctx) // nothing will come; waiting drives a polled device
}

func (e *end) post() error {
	wr := e.to
	wr.ID, wr.Opcode, wr.SG = sendID, roce.Send, []roce.SGE{e.send.SGE(0, e.cfg.Size)}
	return e.qp.PostSend(&wr)
}

// checkMessage compares the message that is in the buffer, if that is wanted,
// and wipes it. The peer may have marked it or not: only it knows its flags.
func (e *end) checkMessage(n int) error {
	if !e.cfg.Check {
		return nil
	}
	b := e.recv.Bytes()
	if n != len(b) {
		return fmt.Errorf("%w: %d bytes, want %d", ErrMismatch, n, len(b))
	}
	b = b[kinds[e.cfg.Kind].head:]
	for i, c := range b {
		if c != pattern && (c != mark || i%pageSize != 0) {
			return fmt.Errorf("%w: byte %d is %#x, want %#x", ErrMismatch, i, c, pattern)
		}
	}
	for i := range b {
		b[i] = ^byte(pattern)
	}
	return nil
}
