package messages

import (
	"context"
	"errors"
	"fmt"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/objects"
)

// RC is one end of a reliable connection. Its queues have room for all messages at once.
type RC struct {
	Conn *roce.Conn

	set          *objects.Set
	sends, recvs *roce.CQ
	mr           *roce.MR // the message that is sent, then room for one that is received
	opts         *Options
}

// newRC makes the objects of an end that is not connected yet.
func newRC(d *roce.Device, o *Options) (*RC, error) {
	s, n := objects.New(d), max(o.Count, 1)
	e := &RC{set: s, sends: s.CQ(n), recvs: s.CQ(n), mr: s.MR(2*o.Size, roce.LocalWrite), opts: o}
	if err := s.Err(); err != nil {
		s.Close()
		return nil, err
	}
	return e, nil
}

// Dial connects to the server at addr ("host:port").
func Dial(ctx context.Context, d *roce.Device, addr string, o *Options, param roce.ConnParam) (*RC, error) {
	e, err := newRC(d, o)
	if err == nil {
		e.Conn, err = e.set.Conn(d.Dial(ctx, addr, roce.DialConfig{PD: e.set.PD, QPConfig: e.config(), Setup: e.postRecvs, Param: param}))
	}
	return e, err
}

// Accept returns a handshake for [acceptor.One], which accepts a request.
func Accept(d *roce.Device, o *Options, param roce.ConnParam) func(context.Context, *roce.ConnRequest) (*RC, error) {
	return func(ctx context.Context, r *roce.ConnRequest) (*RC, error) {
		e, err := newRC(d, o)
		if err != nil {
			return nil, errors.Join(err, r.Reject(nil))
		}
		e.Conn, err = e.set.Conn(r.Accept(ctx, roce.AcceptConfig{PD: e.set.PD, QPConfig: e.config(), Setup: e.postRecvs, Param: param}))
		return e, err
	}
}

func (e *RC) config() roce.QPConfig {
	n := max(e.opts.Count, 1)
	return roce.QPConfig{SendCQ: e.sends, RecvCQ: e.recvs, Caps: roce.Caps{MaxSendWR: n, MaxRecvWR: n, MaxSendSGE: 1, MaxRecvSGE: 1}}
}

// postRecvs posts all receives before the peer can send.
func (e *RC) postRecvs(q *roce.QP) error {
	for range e.opts.Count {
		if err := q.PostRecv(&roce.RecvWR{SG: []roce.SGE{e.mr.SGE(e.opts.Size, e.opts.Size)}}); err != nil {
			return err
		}
	}
	return nil
}

// Post posts all messages.
func (e *RC) Post() error {
	for range e.opts.Count {
		err := e.Conn.QP().PostSend(&roce.SendWR{Opcode: roce.Send, Flags: roce.Signaled, SG: []roce.SGE{e.mr.SGE(0, e.opts.Size)}})
		if err != nil {
			return err
		}
	}
	return nil
}

// Sent waits until the peer has acknowledged all messages. The error is [roce.ErrFlushed]
// if the connection ended before.
func (e *RC) Sent(ctx context.Context) error { return e.wait(ctx, e.sends) }

// Received waits for all messages of the peer.
func (e *RC) Received(ctx context.Context) error { return e.wait(ctx, e.recvs) }

func (e *RC) wait(ctx context.Context, q *roce.CQ) error {
	for k := range e.opts.Count {
		wc, err := q.Next(ctx)
		if err == nil {
			err = wc.Err()
		}
		switch {
		case err == nil:
		case errors.Is(err, roce.ErrFlushed) && q == e.recvs:
			return fmt.Errorf("message %d of %d: %w: the peer ended the connection: give both ends the same -c, -C and -S", k, e.opts.Count, err)
		case wc.Status == roce.StatusLocLenErr || wc.Status == roce.StatusRemInvReqErr:
			return fmt.Errorf("message %d of %d bytes: %w: give both ends the same -S", k, e.opts.Size, err)
		default:
			return fmt.Errorf("message %d: %w", k, err)
		}
	}
	return nil
}

// Close ends the connection without a handshake and closes all objects.
func (e *RC) Close() error { return e.set.Close() }
