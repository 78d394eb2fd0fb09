package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/goroce/roce"
)

// meeting is a tool whose ends meet by TCP, through the host's ordinary sockets, and
// each find something out.
type meeting[R any] struct {
	server func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) (R, error)
	client func(ctx context.Context, d *roce.Device, addr string) (R, error)
	report func(role string, r R) error
	cm     bool // not by TCP: by the connection manager
}

// run runs one end, the client if there is an argument, or both on a wire in this
// process.
func (m meeting[R]) run(c *cobra.Command, dev *deviceFlags, args []string, port uint16) error {
	report := func(role string, r R, err error) error {
		if err != nil {
			return err
		}
		return m.report(role, r)
	}
	t := tool{
		server: func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error {
			r, err := m.server(ctx, d, addr, listening)
			return report("server", r, err)
		},
		client: func(ctx context.Context, d *roce.Device, addr string) error {
			r, err := m.client(ctx, d, addr)
			return report("client", r, err)
		},
	}
	if dev.link == linkMem && !m.cm {
		t = overLoopback(t)
	}
	host := ""
	if len(args) == 1 {
		host = args[0]
	}
	return dev.run(c, host == "", host, netip.Addr{}, port, t)
}

// overLoopback makes both ends of a tool in this process meet by TCP on the
// loopback: the addresses of their NICs exist in this process only.
func overLoopback(t tool) tool {
	onLoopback := func(addr string) string {
		_, port, _ := net.SplitHostPort(addr)
		return net.JoinHostPort("127.0.0.1", port)
	}
	return tool{
		server: func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error {
			return t.server(ctx, d, onLoopback(addr), listening)
		},
		client: func(ctx context.Context, d *roce.Device, addr string) error {
			return t.client(ctx, d, onLoopback(addr))
		},
	}
}

// mtuFlag is a path MTU on the command line, in bytes.
type mtuFlag struct{ mtu *roce.MTU }

func (f mtuFlag) Set(s string) error {
	for m := roce.MTU256; m <= roce.MTU4096; m++ {
		if strconv.Itoa(m.Bytes()) == s {
			*f.mtu = m
			return nil
		}
	}
	return fmt.Errorf("want 256, 512, 1024, 2048 or 4096")
}

// String is empty for the interface's MTU.
func (f mtuFlag) String() string {
	if f.mtu == nil || *f.mtu == 0 {
		return ""
	}
	return strconv.Itoa(f.mtu.Bytes())
}

// Type is what the flag's argument is called.
func (mtuFlag) Type() string { return "bytes" }
