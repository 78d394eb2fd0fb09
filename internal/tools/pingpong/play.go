package pingpong

import (
	"context"
	"fmt"
	"time"

	"github.com/goroce/roce"
)

// A message is made of one byte. With -c the C tool's client puts mark on the first
// of each page, and its server looks for that.
const (
	mark     = 0
	pageSize = 4096
)

// fillMessage writes a message, marked or not.
func fillMessage(b []byte, pattern byte, marked bool) {
	for i := range b {
		b[i] = pattern
		if marked && i%pageSize == 0 {
			b[i] = mark
		}
	}
}

// IDs of work requests. They are bits, so that what is still pending is their
// union. Above them a receive has its place.
const (
	recvID = 1
	sendID = 2
	idBits = 2
)

// finish plays and sees to it that the peer can finish, too.
func (e *end) finish(ctx context.Context, first bool) (Result, error) {
	r, err := e.play(ctx, first)
	if err == nil && kinds[e.cfg.Kind].reliable {
		e.linger(ctx)
	}
	return r, err
}

// play bounces a message on every lane. A side sends again once it has received and
// its own send is complete.
func (e *end) play(ctx context.Context, first bool) (Result, error) {
	start := time.Now()
	byNum := map[roce.QPN]*lane{}
	for _, l := range e.lanes {
		byNum[l.qp.Num()] = l
		l.pending = recvID
		if first {
			if err := e.post(l); err != nil {
				return Result{}, err
			}
		}
	}
	sent, received := 0, 0
	for sent < e.cfg.Iters || received < e.cfg.Iters {
		wc, err := e.cq.Next(ctx)
		if err == nil {
			err = wc.Status.Err()
		}
		if err != nil && first && received >= e.cfg.Iters {
			break // the answers prove that the messages arrived, though an acknowledgement did not
		}
		if err != nil {
			return Result{}, fmt.Errorf("pingpong: after %d messages sent and %d received: %w", sent, received, err)
		}
		id := int(wc.ID)
		switch id & (recvID | sendID) {
		case sendID:
			sent++
		case recvID:
			received++
			at := id >> idBits
			if err := e.checkMessage(at, int(wc.ByteLen)); err != nil {
				return Result{}, err
			}
			// Like the C tool, fill the queue up when it has run low.
			if e.free = append(e.free, at); e.cfg.RxDepth-len(e.free) <= len(e.lanes) {
				if err := e.postRecvs(); err != nil {
					return Result{}, err
				}
			}
		}
		l := byNum[wc.QPN]
		l.pending &^= id
		if sent < e.cfg.Iters && l.pending == 0 {
			if err := e.post(l); err != nil {
				return Result{}, err
			}
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
	for { // what comes is not wanted any more; waiting drives a polled device
		if _, err := e.cq.Next(ctx); err != nil {
			return
		}
	}
}

// post sends the message of a lane.
func (e *end) post(l *lane) error {
	wr := l.to
	wr.ID, wr.Opcode, wr.SG = sendID, roce.Send, []roce.SGE{e.send.SGE(0, e.cfg.Size)}
	l.pending = recvID | sendID
	return l.qp.PostSend(&wr)
}

// checkMessage compares the message that is in a place, if that is wanted, and
// wipes it. The peer may have marked it or not: only it knows its flags.
func (e *end) checkMessage(at, n int) error {
	if !e.cfg.Check {
		return nil
	}
	if n != e.place {
		return fmt.Errorf("%w: %d bytes, want %d", ErrMismatch, n, e.place)
	}
	kind := &kinds[e.cfg.Kind]
	b := e.recv.Bytes()[at*e.place:][kind.head:e.place]
	for i, c := range b {
		if c != kind.pattern && (c != mark || i%pageSize != 0) {
			return fmt.Errorf("%w: byte %d is %#x, want %#x", ErrMismatch, i, c, kind.pattern)
		}
	}
	for i := range b {
		b[i] = ^kind.pattern
	}
	return nil
}
