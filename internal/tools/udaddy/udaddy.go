// Package udaddy is udaddy of librdmacm's examples: a client asks the connection
// manager for a number of UD queue pairs of a server; to each it SENDs a number of
// messages, and the server SENDs as many back.
package udaddy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/datagram"
)

// DefaultPort is the port udaddy uses, always.
const DefaultPort = 7174

// Config are udaddy's options, with its defaults for zero values.
type Config struct {
	Connections  int       // -c, 1
	Count        int       // -C messages each way per connection, 10; negative: none
	Size         int       // -S bytes of a message, 100
	TrafficClass uint8     // -t, of what the client sends
	Out          io.Writer // what udaddy prints; nil: nowhere
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

// node is one connection, though UD has none: a queue pair and its peer.
type node struct {
	*datagram.End
	peer *roce.UDPeer
}

// test is a run: all connections of one side.
type test struct {
	Config
	dev   *roce.Device
	nodes []*node
}

func (t *test) newNode() (*node, error) {
	e, err := datagram.New(t.dev, datagram.Config{Count: t.Count, Size: t.Size}, true)
	if err != nil {
		return nil, err
	}
	n := &node{End: e}
	t.nodes = append(t.nodes, n)
	return n, nil
}

func (t *test) close() {
	for _, n := range t.nodes {
		n.Close()
	}
}

// each does something with every connection, one after the other.
func (t *test) each(what string, f func(*node) error) error {
	for i, n := range t.nodes {
		if err := f(n); err != nil {
			return fmt.Errorf("connection %d: %s: %w", i, what, err)
		}
	}
	return nil
}

// Client resolves the server's queue pairs, sends and receives. A message that is
// lost is waited for until ctx ends, as udaddy does.
func Client(ctx context.Context, d *roce.Device, addr string, c Config) error {
	if err := c.defaults(); err != nil {
		return err
	}
	t := &test{Config: c, dev: d}
	defer t.close()
	fmt.Fprintln(c.Out, "udaddy: starting client\nudaddy: connecting")
	for range c.Connections {
		if _, err := t.newNode(); err != nil {
			return err
		}
	}
	if err := t.resolve(ctx, addr); err != nil {
		return err
	}
	if c.Count == 0 {
		return nil
	}
	fmt.Fprintln(c.Out, "initiating data transfers")
	if err := t.each("send", func(n *node) error { return n.Send(n.peer, 0) }); err != nil {
		return err
	}
	fmt.Fprintln(c.Out, "receiving data transfers")
	if err := t.each("receive", func(n *node) error { return n.Wait(ctx, nil) }); err != nil {
		return err
	}
	fmt.Fprintln(c.Out, "data transfers complete")
	return nil
}

// resolve asks for all queue pairs at once: each may take a while.
func (t *test) resolve(ctx context.Context, addr string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		index int
		err   error
	}
	answers := make(chan answer, len(t.nodes))
	for i, n := range t.nodes {
		go func() {
			peer, err := t.dev.ResolveUD(ctx, addr, roce.ResolveConfig{QKey: roce.DefaultUDPQKey, TrafficClass: t.TrafficClass})
			n.peer = peer
			answers <- answer{i, err}
		}()
	}
	var first error
	for range t.nodes {
		if a := <-answers; a.err != nil && first == nil {
			first = fmt.Errorf("connection %d: %w", a.index, a.err)
			cancel()
		}
	}
	return first
}

// Server accepts the connections, receives and sends. What else connects is
// refused. listening is called when clients can connect.
func Server(ctx context.Context, d *roce.Device, addr string, c Config, listening func(netip.AddrPort)) error {
	if err := c.defaults(); err != nil {
		return err
	}
	t := &test{Config: c, dev: d}
	defer t.close()
	fmt.Fprintln(c.Out, "udaddy: starting server")
	l, err := d.ListenUD(ctx, addr, roce.ListenConfig{})
	if err != nil {
		return err
	}
	defer l.Close()
	listening(l.Addr())
	g := &gate{test: t, known: map[netip.AddrPort]*node{}}
	for len(t.nodes) < c.Connections {
		if err := g.admit(ctx, l); err != nil {
			return err
		}
	}
	if c.Count == 0 {
		return nil
	}
	defer g.guard(ctx, l)()
	fmt.Fprintln(c.Out, "receiving data transfers")
	err = t.each("receive", func(n *node) error {
		return n.Wait(ctx, func(wc *roce.WC) error { return t.answerTo(ctx, n, wc) })
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(c.Out, "sending replies")
	if err := t.each("send", func(n *node) error { return n.Send(n.peer, roce.Signaled) }); err != nil {
		return err
	}
	if err := t.each("send", func(n *node) error { return n.Wait(ctx, nil) }); err != nil {
		return err
	}
	fmt.Fprintln(c.Out, "data transfers complete")
	return nil
}

// answerTo finds out from the first message where the answers go.
func (t *test) answerTo(ctx context.Context, n *node, wc *roce.WC) error {
	ah, err := t.dev.CreateAHFromWC(ctx, wc, n.GRH(wc))
	n.peer = &roce.UDPeer{AH: ah, QPN: roce.QPN(wc.Imm), QKey: roce.DefaultUDPQKey}
	return err
}

// gate lets connections in. A client whose answer was lost asks again from the same
// address, and gets the same answer; udaddy would take that for another connection.
type gate struct {
	*test
	known map[netip.AddrPort]*node
}

func (g *gate) admit(ctx context.Context, l *roce.UDListener) error {
	r, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	n := g.known[r.RemoteAddr()]
	switch {
	case n != nil:
	case len(g.nodes) == g.Connections:
		fmt.Fprintln(g.Out, "udaddy: failing connection request")
		return stillThere(r.Reject(nil))
	default:
		if n, err = g.newNode(); err != nil {
			r.Reject(nil)
			return err
		}
		g.known[r.RemoteAddr()] = n
	}
	return stillThere(r.Accept(n.QP, nil))
}

// stillThere is the error of an answer, nil if the question was over: whoever asked will
// ask again.
func stillThere(err error) error {
	if errors.Is(err, syscall.ECONNABORTED) {
		return nil
	}
	return err
}

// guard goes on answering until the function it returns is called.
func (g *gate) guard(ctx context.Context, l *roce.UDListener) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for g.admit(ctx, l) == nil {
		}
	}()
	return func() { cancel(); <-done }
}
