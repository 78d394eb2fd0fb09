// Package cmatose is ucmatose of librdmacm's examples: a number of connections between a
// client and a server. Over each the server SENDs a number of messages, then the client SENDs
// as many back. Then the server disconnects.
package cmatose

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/acceptor"
	"github.com/goroce/roce/internal/tools/messages"
)

// DefaultPort is the port that ucmatose uses.
const DefaultPort = 7471

// connParam is what ucmatose asks for (rdma_connect).
var connParam = roce.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 5, RNRRetryCount: -1}

// run is one side of a test: all its connections.
type run struct {
	messages.Options
	ends []*messages.RC
}

func (r *run) close() {
	for _, e := range r.ends {
		e.Close()
	}
}

// send posts all messages of all connections, then waits until the peer has acknowledged
// them. If ended is not nil, send calls it for a connection that ended before, else it fails.
func (r *run) send(ctx context.Context, ended func(*messages.RC) error) error {
	if err := messages.Each(r.ends, "send", (*messages.RC).Post); err != nil {
		return err
	}
	return messages.Each(r.ends, "send", func(e *messages.RC) error {
		err := e.Sent(ctx)
		if ended != nil && errors.Is(err, roce.ErrFlushed) {
			return ended(e)
		}
		return err
	})
}

// receive waits for all messages of all connections.
func (r *run) receive(ctx context.Context) error {
	return messages.Each(r.ends, "receive", func(e *messages.RC) error { return e.Received(ctx) })
}

// disconnected waits until the server has disconnected.
func disconnected(ctx context.Context, e *messages.RC) error {
	select {
	case <-e.Conn.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := e.Conn.Err(); !errors.Is(err, roce.ErrDisconnected) {
		return err
	}
	return nil
}

// Client makes the connections, receives, sends, and waits until the server has disconnected.
// addr is "host:port".
func Client(ctx context.Context, d *roce.Device, addr string, o messages.Options) error {
	if err := o.Prepare(); err != nil {
		return err
	}
	r := &run{Options: o}
	defer r.close()
	fmt.Fprintln(o.Out, "cmatose: starting client\ncmatose: connecting")
	for range o.Connections {
		e, err := messages.Dial(ctx, d, addr, &r.Options, connParam)
		if err != nil {
			return err
		}
		r.ends = append(r.ends, e)
	}
	wait := func(e *messages.RC) error { return disconnected(ctx, e) }
	if o.Count > 0 {
		if err := messages.Run(o.Out, messages.Step{Title: "receiving data transfers", Do: func() error { return r.receive(ctx) }},
			// The server disconnects when it has all messages, even if the last acknowledgements were lost.
			messages.Step{Title: "sending replies", Do: func() error { return r.send(ctx, wait) }},
			messages.Step{Title: "data transfers complete"}); err != nil {
			return err
		}
	}
	return messages.Each(r.ends, "wait for the server to disconnect", wait)
}

// Server accepts the connections, sends, receives and disconnects. It rejects connections
// beyond their number. It calls listening when clients can connect. addr is "host:port", and
// host may be empty.
func Server(ctx context.Context, d *roce.Device, addr string, o messages.Options, listening func(netip.AddrPort)) error {
	if err := o.Prepare(); err != nil {
		return err
	}
	r := &run{Options: o}
	defer r.close()
	fmt.Fprintln(o.Out, "cmatose: starting server")
	l, err := d.Listen(ctx, addr, roce.ListenConfig{})
	if err != nil {
		return err
	}
	defer l.Close()
	listening(l.Addr())
	for range o.Connections {
		e, err := acceptor.One(ctx, l, messages.Accept(d, &r.Options, connParam))
		if err != nil {
			return err
		}
		r.ends = append(r.ends, e)
	}
	defer messages.Repeat(ctx, func(ctx context.Context) error {
		request, err := l.Accept(ctx)
		if err == nil {
			request.Reject(nil)
		}
		return err
	})()
	if o.Count > 0 {
		if err := messages.Run(o.Out, messages.Step{Title: "initiating data transfers", Do: func() error { return r.send(ctx, nil) }},
			messages.Step{Title: "receiving data transfers", Do: func() error { return r.receive(ctx) }},
			messages.Step{Title: "data transfers complete"}); err != nil {
			return err
		}
	}
	fmt.Fprintln(o.Out, "cmatose: disconnecting")
	// All connections at once, because each waits for the answer of its peer.
	results := make(chan error)
	for _, e := range r.ends {
		go func() { results <- e.Conn.Disconnect(ctx) }()
	}
	for range r.ends {
		err = errors.Join(err, <-results)
	}
	if err == nil {
		fmt.Fprintln(o.Out, "disconnected")
	}
	return err
}
