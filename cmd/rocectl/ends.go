package main

import (
	"context"
	"net/netip"

	"github.com/spf13/cobra"
)

// ends are the flags by which librdmacm's programs choose their end.
type ends struct{ host, bind string }

func addEndFlags(c *cobra.Command) *ends {
	e := &ends{}
	f := c.Flags()
	f.StringVarP(&e.host, "server", "s", "", "be the client of the server at this address")
	f.StringVarP(&e.bind, "bind", "b", "", "be the server at this address; client: own address")
	return e
}

// choose returns the end, the server's address, and of a client its own if given.
func (e *ends) choose(ctx context.Context) (server bool, host string, local netip.Addr, err error) {
	if e.host == "" {
		return true, e.bind, local, nil
	}
	local, err = resolve(ctx, e.bind)
	return false, e.host, local, err
}

// messages are the flags for how much udaddy and ucmatose transfer.
type messages struct{ connections, count, size *int }

func addMessageFlags(c *cobra.Command, connections, count, size *int) messages {
	f := c.Flags()
	f.IntVarP(connections, "connections", "c", 1, "connections")
	f.IntVarP(count, "count", "C", 10, "messages each way on each connection")
	f.IntVarP(size, "size", "S", 100, "bytes of a message")
	return messages{connections, count, size}
}

// check refuses what makes no sense. No messages, or empty ones, are taken to mean
// to connect only, as these programs do.
func (m messages) check() error {
	if *m.connections < 1 || *m.count < 0 || *m.size < 0 {
		return usagef("-c %d -C %d -S %d: want at least one connection, and no negative numbers", *m.connections, *m.count, *m.size)
	}
	if *m.count == 0 || *m.size == 0 {
		*m.count, *m.size = -1, 1
	}
	return nil
}
