package pingpong

import (
	"fmt"
	"io"

	"github.com/goroce/roce/internal/tools/oob"
)

// done is the end of the exchange. The client sends it when it has the server's addresses, and the server waits
// for it.
const done = "done\x00"

// exchange swaps the addresses of both ends; the client sends first. It calls ready with the addresses
// of the peer. At the server it does so before it sends the local addresses: after that the client may send messages, so the queue
// pairs must be connected.
func exchange(c io.ReadWriter, client bool, local []Addr, ready func(remote []Addr) error) error {
	remote := make([]Addr, len(local))
	send := func() error {
		var b []byte
		for _, a := range local {
			b = a.Append(b)
		}
		_, err := c.Write(b)
		return exchangeError("send the local address", err)
	}
	receive := func() error {
		for i := range remote {
			var b [RecordLen]byte
			_, err := io.ReadFull(c, b[:])
			if err != nil {
				return exchangeError("read the remote address", err)
			}
			if remote[i], err = ParseAddr(b[:]); err != nil {
				return err
			}
		}
		if client {
			_, err := io.WriteString(c, done)
			return exchangeError("confirm the remote address", err)
		}
		return ready(remote)
	}
	if err := oob.InOrder(client, send, receive); err != nil {
		return err
	}
	if client {
		return ready(remote)
	}
	_, err := io.ReadFull(c, make([]byte, len(done)))
	return exchangeError("wait for the client's confirmation", err)
}

// exchangeError names the step that failed. It returns nil if err is nil.
func exchangeError(step string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pingpong: %s: %w", step, oob.HungUp(err))
}
