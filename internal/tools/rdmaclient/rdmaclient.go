// Package rdmaclient is the pair rdma_client and rdma_server of librdmacm's
// examples: the client SENDs 16 bytes, the server SENDs 16 bytes back, both
// disconnect.
package rdmaclient

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/acceptor"
)

// DefaultPort is the port of the examples.
const DefaultPort = 7471

const messageLen = 16

// lingerLimit is some of the timeouts of a client.
const lingerLimit = 5 * time.Second

// end is one end of the conversation.
type end struct {
	qp *roce.QP
	mr *roce.MR
}

// setup registers a buffer and posts the receive before anybody can send.
func (e *end) setup(q *roce.QP) (err error) {
	e.qp = q
	if e.mr, err = q.PD().RegMR(make([]byte, 2*messageLen), roce.LocalWrite); err != nil {
		return err
	}
	return q.PostRecv(&roce.RecvWR{SG: []roce.SGE{e.mr.SGE(messageLen, messageLen)}})
}

// wait takes completions until one is of the wanted kind.
func (e *end) wait(ctx context.Context, c *roce.CQ, want roce.WCOpcode) error {
	for {
		wc, err := c.Next(ctx)
		if err != nil {
			return err
		}
		if wc.Status != roce.StatusSuccess {
			return fmt.Errorf("waiting for %v: %w", want, wc.Err())
		}
		if wc.Opcode == want {
			return nil
		}
	}
}

// post sends the message; sent waits until it is acknowledged.
func (e *end) post(context.Context) error {
	return e.qp.PostSend(&roce.SendWR{Opcode: roce.Send, Flags: roce.Signaled, SG: []roce.SGE{e.mr.SGE(0, messageLen)}})
}

func (e *end) recv(ctx context.Context) error { return e.wait(ctx, e.qp.RecvCQ(), roce.WCRecv) }

// sent is the last step. By then this side has the peer's message, and the peer
// leaves when it has ours: if it leaves before its acknowledgement arrives, the
// exchange is complete all the same.
func (e *end) sent(ctx context.Context) error {
	if err := e.wait(ctx, e.qp.SendCQ(), roce.WCSend); !errors.Is(err, roce.ErrFlushed) {
		return err
	}
	return nil
}

// Client connects to a server, sends, receives and disconnects.
func Client(ctx context.Context, d *roce.Device, addr string) error {
	e := new(end)
	conn, err := d.Dial(ctx, addr, roce.DialConfig{Setup: e.setup})
	if err != nil {
		return err
	}
	return e.finish(ctx, conn, e.post, e.recv, e.sent)
}

// Server serves one client. listening is called when it can connect.
func Server(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error {
	l, err := d.Listen(ctx, addr, roce.ListenConfig{})
	if err != nil {
		return err
	}
	defer l.Close()
	listening(l.Addr())
	var e *end
	conn, err := acceptor.One(ctx, l, func(ctx context.Context, r *roce.ConnRequest) (*roce.Conn, error) {
		e = new(end)
		conn, err := r.Accept(ctx, roce.AcceptConfig{Setup: e.setup})
		if err != nil && e.mr != nil {
			e.mr.Close()
		}
		return conn, err
	})
	if err != nil {
		return err
	}
	// The acknowledgement of the client's message may have been lost: stay to repeat
	// it until the client, which has all it wants then, disconnects.
	stay := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, lingerLimit)
		defer cancel()
		select {
		case <-conn.Done():
		case <-ctx.Done():
		}
		return nil
	}
	return e.finish(ctx, conn, e.recv, e.post, e.sent, stay)
}

// finish runs the steps, disconnects and gives everything back.
func (e *end) finish(ctx context.Context, conn *roce.Conn, steps ...func(context.Context) error) (err error) {
	defer func() {
		e.mr.Close()
		if cerr := conn.Close(); err == nil {
			err = cerr
		}
	}()
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return conn.Disconnect(ctx)
}
