package pingpong

import (
	"context"
	"fmt"
	"time"

	"github.com/goroce/roce"
)

// A message repeats one byte. With -c the client of the C program writes mark at the start of
// each page, and its server checks that.
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

// IDs of work requests. They are bits, so that their union says what is pending. The bits
// above them are the place of a receive.
const (
	recvID = 1
	sendID = 2
	idBits = 2
)

// play sends a message back and forth on every queue pair. A side sends again once it has received a message
// and its own send is complete. first says that this side sends first.
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
			return Result{}, fmt.Errorf("pingpong: after %d messages sent and %d received: %w%s", sent, received, err, hint(wc.Status))
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
			// Like the C program, post receives up to RxDepth again when few are left.
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

// lingering is how long a side lingers when packets were lost: longer than the
// acknowledgement timeout of a slow rxe.
const lingering = 2 * time.Second

// linger answers the peer's retransmissions for a while if packets were lost. The C program
// does not: if its last acknowledgement is lost, the other side fails.
func (e *end) linger(ctx context.Context) {
	if c := e.Dev.Counters(); c.RetransPkts+c.DuplicateRequest+c.OutOfSeqRequest == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lingering)
	defer cancel()
	for { // waiting drives a polled device
		if _, err := e.cq.Next(ctx); err != nil {
			return
		}
	}
}

// hint returns advice on a status; "": there is none.
func hint(s roce.Status) string {
	switch s {
	case roce.StatusLocLenErr, roce.StatusRemInvReqErr:
		return ": give both ends the same -s"
	case roce.StatusRetryExcErr:
		return ": the peer has ended or does not answer; give both ends the same -n"
	}
	return ""
}

// post sends the message of a queue pair.
func (e *end) post(l *lane) error {
	wr := l.to
	wr.ID, wr.Opcode, wr.SG = sendID, roce.Send, []roce.SGE{e.send.SGE(0, e.cfg.Size)}
	l.pending = recvID | sendID
	return l.qp.PostSend(&wr)
}

// checkMessage compares the message in a place if Config.Check is set, and then overwrites it. It accepts messages with and without
// marks, because that depends on the flags of the peer.
func (e *end) checkMessage(at, n int) error {
	if !e.cfg.Check {
		return nil
	}
	if n != e.place {
		return fmt.Errorf("%w: %d bytes, want %d: give both ends the same -s", ErrMismatch, n, e.place)
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
