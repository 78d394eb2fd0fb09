package pingpong

import (
	"fmt"
	"io"
)

// done ends the exchange: the client has the server's address. The server
// waits for it, so that it does not start before the client can receive.
const done = "done\x00"

// exchangeClient is the client's half of the exchange on a connection: it
// tells, hears, and confirms.
func exchangeClient(c io.ReadWriter, local Addr) (Addr, error) {
	if _, err := c.Write(local.Append(nil)); err != nil {
		return Addr{}, exchangeError("send the local address", err)
	}
	remote, err := readAddr(c)
	if err != nil {
		return Addr{}, err
	}
	if _, err := io.WriteString(c, done); err != nil {
		return Addr{}, exchangeError("confirm the remote address", err)
	}
	return remote, nil
}

// exchangeServer is the server's half. ready is called with the client's
// address before the own one is told: from then on the client may send, so the
// queue pair has to be able to receive.
func exchangeServer(c io.ReadWriter, local Addr, ready func(remote Addr) error) (Addr, error) {
	remote, err := readAddr(c)
	if err != nil {
		return Addr{}, err
	}
	if err := ready(remote); err != nil {
		return Addr{}, err
	}
	if _, err := c.Write(local.Append(nil)); err != nil {
		return Addr{}, exchangeError("send the local address", err)
	}
	var b [len(done)]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return Addr{}, exchangeError("wait for the client's confirmation", err)
	}
	return remote, nil
}

func readAddr(c io.ReadWriter) (Addr, error) {
	var b [RecordLen]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return Addr{}, exchangeError("read the remote address", err)
	}
	return ParseAddr(b[:])
}

func exchangeError(op string, err error) error {
	return fmt.Errorf("pingpong: %s: %w", op, err)
}
