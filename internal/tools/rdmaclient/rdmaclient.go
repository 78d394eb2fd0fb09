// Package rdmaclient is the pair rdma_client and rdma_server of librdmacm's examples: the
// client SENDs 16 bytes, the server SENDs 16 bytes back, and both disconnect.
package rdmaclient

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/acceptor"
	"github.com/goroce/roce/internal/tools/messages"
)

// DefaultPort is the port of the examples.
const DefaultPort = 7471

// options are one message of 16 bytes each way.
var options = &messages.Options{Connections: 1, Count: 1, Size: 16}

// lingerLimit is a few times the acknowledgement timeout of a client.
const lingerLimit = 5 * time.Second

// Client connects to a server ("host:port"), sends, receives and disconnects.
func Client(ctx context.Context, d *roce.Device, addr string) error {
	e, err := messages.Dial(ctx, d, addr, options, roce.ConnParam{})
	if err != nil {
		return err
	}
	return finish(ctx, e, post(e), e.Received, sent(e))
}

// Server serves one client. It calls listening when a client can connect. addr is
// "host:port", and host may be empty.
func Server(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error {
	l, err := d.Listen(ctx, addr, roce.ListenConfig{})
	if err != nil {
		return err
	}
	defer l.Close()
	listening(l.Addr())
	e, err := acceptor.One(ctx, l, messages.Accept(d, options, roce.ConnParam{}))
	if err != nil {
		return err
	}
	// The acknowledgement of the client's message may have been lost. The server repeats it
	// until the client, which then has all it wants, disconnects.
	return finish(ctx, e, e.Received, post(e), sent(e), func(ctx context.Context) error {
		select {
		case <-e.Conn.Done():
		case <-time.After(lingerLimit):
		case <-ctx.Done():
		}
		return nil
	})
}

func post(e *messages.RC) func(context.Context) error {
	return func(context.Context) error { return e.Post() }
}

// sent waits for the acknowledgement, after this end has received the peer's message. The
// peer disconnects when it has ours, so the exchange is complete, too, if the connection ends
// before the acknowledgement arrives.
func sent(e *messages.RC) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := e.Sent(ctx); !errors.Is(err, roce.ErrFlushed) {
			return err
		}
		return nil
	}
}

// finish runs the steps, disconnects and closes everything.
func finish(ctx context.Context, e *messages.RC, steps ...func(context.Context) error) (err error) {
	defer func() {
		if cerr := e.Close(); err == nil {
			err = cerr
		}
	}()
	for _, step := range append(steps, e.Conn.Disconnect) {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}
