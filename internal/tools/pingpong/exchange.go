package pingpong

import (
	"fmt"
	"io"
)

// done ends the exchange: the client has the server's address. The server
// waits for it, so that it does not start before the client can receive.
const done = "done\x00"

// exchangeClient is the client's half of the exchange on a connection: it
// tells, hears as much, and confirms.
func exchangeClient(c io.ReadWriter, local []Addr) ([]Addr, error) {
	if err := writeAddrs(c, local); err != nil {
		return nil, err
	}
	remote, err := readAddrs(c, len(local))
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, done); err != nil {
		return nil, exchangeError("confirm the remote address", err)
	}
	return remote, nil
}

// exchangeServer is the server's half. ready is called with the client's
// addresses before the own ones are told: from then on the client may send, so the
// queue pairs have to be able to receive.
func exchangeServer(c io.ReadWriter, local []Addr, ready func(remote []Addr) error) error {
	remote, err := readAddrs(c, len(local))
	if err != nil {
		return err
	}
	if err := ready(remote); err != nil {
		return err
	}
	if err := writeAddrs(c, local); err != nil {
		return err
	}
	var b [len(done)]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return exchangeError("wait for the client's confirmation", err)
	}
	return nil
}

func writeAddrs(c io.Writer, local []Addr) error {
	var b []byte
	for _, a := range local {
		b = a.Append(b)
	}
	if _, err := c.Write(b); err != nil {
		return exchangeError("send the local address", err)
	}
	return nil
}

func readAddrs(c io.Reader, n int) ([]Addr, error) {
	remote := make([]Addr, n)
	for i := range remote {
		var b [RecordLen]byte
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return nil, exchangeError("read the remote address", err)
		}
		var err error
		if remote[i], err = ParseAddr(b[:]); err != nil {
			return nil, err
		}
	}
	return remote, nil
}

func exchangeError(op string, err error) error {
	return fmt.Errorf("pingpong: %s: %w", op, err)
}
