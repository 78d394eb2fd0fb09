package pingpong

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"
)

// done ends the exchange: the client has the server's address. The server
// waits for it, so that it does not start before the client can receive.
const done = "done\x00"

// exchangeClient is the client's half of the exchange on a connection: it
// tells, hears, and confirms.
func exchangeClient(ctx context.Context, c net.Conn, local Addr) (Addr, error) {
	defer interrupt(ctx, c)()
	if _, err := c.Write(local.Append(nil)); err != nil {
		return Addr{}, exchangeError(ctx, "send the local address", err)
	}
	remote, err := readAddr(ctx, c)
	if err != nil {
		return Addr{}, err
	}
	if _, err := io.WriteString(c, done); err != nil {
		return Addr{}, exchangeError(ctx, "confirm the remote address", err)
	}
	return remote, nil
}

// exchangeServer is the server's half. ready is called with the client's
// address before the own one is told: from then on the client may send, so the
// queue pair has to be able to receive.
func exchangeServer(ctx context.Context, c net.Conn, local Addr, ready func(remote Addr) error) (Addr, error) {
	defer interrupt(ctx, c)()
	remote, err := readAddr(ctx, c)
	if err != nil {
		return Addr{}, err
	}
	if err := ready(remote); err != nil {
		return Addr{}, err
	}
	if _, err := c.Write(local.Append(nil)); err != nil {
		return Addr{}, exchangeError(ctx, "send the local address", err)
	}
	var b [len(done)]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return Addr{}, exchangeError(ctx, "wait for the client's confirmation", err)
	}
	return remote, nil
}

func readAddr(ctx context.Context, c net.Conn) (Addr, error) {
	var b [RecordLen]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return Addr{}, exchangeError(ctx, "read the remote address", err)
	}
	return ParseAddr(b[:])
}

func exchangeError(ctx context.Context, op string, err error) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("pingpong: %s: %w", op, err)
}

// interrupt makes reads and writes on c fail when ctx ends, until the returned
// function is called.
func interrupt(ctx context.Context, c net.Conn) (stop func()) {
	cancel := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	return func() { cancel() }
}
