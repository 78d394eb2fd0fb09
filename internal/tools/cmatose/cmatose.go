// Package cmatose is ucmatose of librdmacm's examples: a number of connections
// between a client and a server; over each the server SENDs a number of
// messages, then the client SENDs as many back; then the server disconnects.
package cmatose

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/acceptor"
)

// DefaultPort is the port ucmatose uses.
const DefaultPort = 7471

// Config are ucmatose's options, with its defaults for zero values.
type Config struct {
	Connections int       // -c, 1
	Count       int       // -C messages each way per connection, 10; negative: none
	Size        int       // -S bytes of a message, 100
	Out         io.Writer // what ucmatose prints; nil: nowhere
}

func (c *Config) defaults() error {
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	set(&c.Connections, 1)
	set(&c.Count, 10)
	set(&c.Size, 100)
	c.Count = max(c.Count, 0)
	if c.Out == nil {
		c.Out = io.Discard
	}
	if c.Connections < 1 || c.Size < 1 {
		return fmt.Errorf("%d connections, messages of %d bytes: use at least 1", c.Connections, c.Size)
	}
	return nil
}

// connParam is what ucmatose asks for.
var connParam = roce.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 5}

// node is one connection.
type node struct {
	conn   *roce.Conn
	qp     *roce.QP
	sendCQ *roce.CQ
	recvCQ *roce.CQ
	mr     *roce.MR
}

// test is a run: all connections of one side.
type test struct {
	Config
	dev    *roce.Device
	client bool
	nodes  []*node
}

// newNode makes the queues of a connection. Like ucmatose it has room for all
// messages at once.
func (t *test) newNode() (n *node, qc roce.QPConfig, err error) {
	n = new(node)
	for _, c := range []**roce.CQ{&n.sendCQ, &n.recvCQ} {
		if *c, err = t.dev.CreateCQ(max(t.Count, 1)); err != nil {
			return nil, qc, err
		}
	}
	t.nodes = append(t.nodes, n)
	return n, roce.QPConfig{SendCQ: n.sendCQ, RecvCQ: n.recvCQ, Caps: roce.Caps{MaxSendWR: max(t.Count, 1), MaxRecvWR: max(t.Count, 1), MaxSendSGE: 1, MaxRecvSGE: 1}}, nil
}

// setup posts all receives.
func (t *test) setup(n *node) func(*roce.QP) error {
	return func(q *roce.QP) (err error) {
		n.qp = q
		if n.mr, err = q.PD().RegMR(make([]byte, 2*t.Size), roce.LocalWrite); err != nil {
			return err
		}
		for range t.Count {
			if err := q.PostRecv(&roce.RecvWR{SG: []roce.SGE{n.mr.SGE(t.Size, t.Size)}}); err != nil {
				return err
			}
		}
		return nil
	}
}

// send posts all messages of all connections and waits until they are sent.
func (t *test) send(ctx context.Context) error {
	for _, n := range t.nodes {
		for range t.Count {
			err := n.qp.PostSend(&roce.SendWR{Opcode: roce.Send, Flags: roce.Signaled, SG: []roce.SGE{n.mr.SGE(0, t.Size)}})
			if err != nil {
				return err
			}
		}
	}
	return t.wait(ctx, "send", func(n *node) *roce.CQ { return n.sendCQ })
}

// receive waits until all messages are there.
func (t *test) receive(ctx context.Context) error {
	return t.wait(ctx, "receive", func(n *node) *roce.CQ { return n.recvCQ })
}

func (t *test) wait(ctx context.Context, what string, queue func(*node) *roce.CQ) error {
	for i, n := range t.nodes {
		for k := range t.Count {
			wc, err := queue(n).Next(ctx)
			if err != nil {
				return fmt.Errorf("connection %d, %s %d: %w", i, what, k, err)
			}
			if wc.Status == roce.StatusWRFlushErr && t.complete(ctx, n) {
				return nil
			}
			if wc.Status != roce.StatusSuccess {
				return fmt.Errorf("connection %d, %s %d: %w", i, what, k, wc.Err())
			}
		}
	}
	return nil
}

// complete reports whether the server has disconnected: it does when it has all
// messages, even if its last acknowledgements were lost.
func (t *test) complete(ctx context.Context, n *node) bool {
	if !t.client {
		return false
	}
	select {
	case <-n.conn.Done(): // the flush comes just before
		return errors.Is(n.conn.Err(), roce.ErrDisconnected)
	case <-ctx.Done():
		return false
	}
}

// close gives everything back.
func (t *test) close() {
	for _, n := range t.nodes {
		n.close()
	}
}

func (n *node) close() {
	if n.mr != nil {
		n.mr.Close()
	}
	if n.conn != nil {
		n.conn.Close()
	}
	n.sendCQ.Close()
	n.recvCQ.Close()
}

// accept makes a connection of a request. If that fails nothing of it is left.
func (t *test) accept(ctx context.Context, r *roce.ConnRequest) (n *node, err error) {
	n, qc, err := t.newNode()
	if err != nil {
		return nil, err
	}
	if n.conn, err = r.Accept(ctx, roce.AcceptConfig{QPConfig: qc, Setup: t.setup(n), Param: connParam}); err != nil {
		t.nodes = t.nodes[:len(t.nodes)-1]
		n.close()
	}
	return n, err
}

// Client makes the connections, receives, sends, and waits until the server
// has disconnected.
func Client(ctx context.Context, d *roce.Device, addr string, c Config) error {
	if err := c.defaults(); err != nil {
		return err
	}
	t := &test{Config: c, dev: d, client: true}
	defer t.close()
	fmt.Fprintln(c.Out, "cmatose: starting client\ncmatose: connecting")
	for range c.Connections {
		n, qc, err := t.newNode()
		if err != nil {
			return err
		}
		if n.conn, err = d.Dial(ctx, addr, roce.DialConfig{QPConfig: qc, Setup: t.setup(n), Param: connParam}); err != nil {
			return err
		}
	}
	if c.Count > 0 {
		fmt.Fprintln(c.Out, "receiving data transfers")
		if err := t.receive(ctx); err != nil {
			return err
		}
		fmt.Fprintln(c.Out, "sending replies")
		if err := t.send(ctx); err != nil {
			return err
		}
		fmt.Fprintln(c.Out, "data transfers complete")
	}
	for i, n := range t.nodes {
		select {
		case <-n.conn.Done():
		case <-ctx.Done():
			return fmt.Errorf("connection %d: waiting for the server to disconnect: %w", i, ctx.Err())
		}
		if err := n.conn.Err(); !errors.Is(err, roce.ErrDisconnected) {
			return fmt.Errorf("connection %d: %w", i, err)
		}
	}
	return nil
}

// Server accepts the connections, sends, receives and disconnects. What
// connects beyond the number is rejected. listening is called when clients can
// connect.
func Server(ctx context.Context, d *roce.Device, addr string, c Config, listening func(netip.AddrPort)) error {
	if err := c.defaults(); err != nil {
		return err
	}
	t := &test{Config: c, dev: d}
	defer t.close()
	fmt.Fprintln(c.Out, "cmatose: starting server")
	l, err := d.Listen(ctx, addr, roce.ListenConfig{})
	if err != nil {
		return err
	}
	defer l.Close()
	listening(l.Addr())
	for range c.Connections {
		if _, err := acceptor.One(ctx, l, t.accept); err != nil {
			return err
		}
	}
	defer rejectOthers(ctx, l)()
	if c.Count > 0 {
		fmt.Fprintln(c.Out, "initiating data transfers")
		if err := t.send(ctx); err != nil {
			return err
		}
		fmt.Fprintln(c.Out, "receiving data transfers")
		if err := t.receive(ctx); err != nil {
			return err
		}
		fmt.Fprintln(c.Out, "data transfers complete")
	}
	fmt.Fprintln(c.Out, "cmatose: disconnecting")
	// All at once: each waits for its peer's word.
	results := make(chan error, len(t.nodes))
	for _, n := range t.nodes {
		go func() { results <- n.conn.Disconnect(ctx) }()
	}
	for range t.nodes {
		if derr := <-results; derr != nil {
			err = derr
		}
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(c.Out, "disconnected")
	return nil
}

// rejectOthers refuses what else connects, until the function it returns is
// called.
func rejectOthers(ctx context.Context, l *roce.Listener) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			request, err := l.Accept(ctx)
			if err != nil {
				return
			}
			request.Reject(nil)
		}
	}()
	return func() { cancel(); <-done }
}
