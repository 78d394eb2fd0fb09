package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/goroce/roce"
)

// tool is a program with two ends that meet at an address of the server.
type tool struct {
	// server serves at addr ("host:port"), says so by calling listening, and
	// returns when it is done.
	server func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error
	// client does its work with the server at addr.
	client func(ctx context.Context, d *roce.Device, addr string) error
}

// Addresses of --link mem when none is given.
var (
	memServer = netip.MustParseAddr("10.0.0.1")
	memClient = netip.MustParseAddr("10.0.0.2")
)

// run runs one end of a tool on the NIC that the flags describe, or with --link
// mem both. host is the server's address: on the server empty for any; on the
// client local may name the own address.
func (f *deviceFlags) run(c *cobra.Command, asServer bool, host string, local netip.Addr, port uint16, t tool) error {
	ctx, out, log := c.Context(), c.OutOrStdout(), c.ErrOrStderr()
	if err := f.validate(); err != nil {
		return err
	}
	addr, err := resolve(ctx, host)
	if err != nil {
		return err
	}
	if f.link == linkMem {
		return f.runBoth(ctx, asServer, addr, port, t, out, log)
	}
	if asServer {
		d, err := f.open(addr, netip.Addr{}, log)
		if err != nil {
			return err
		}
		err = t.server(ctx, d.Device, hostPort(addr, port), func(a netip.AddrPort) { announce(out, a) })
		return closing(ctx, d, err)
	}
	if !addr.IsValid() {
		return usagef("a client needs the address of its server")
	}
	d, err := f.open(local, addr, log)
	if err != nil {
		return err
	}
	return closing(ctx, d, t.client(ctx, d.Device, hostPort(addr, port)))
}

// runBoth runs both ends. The flags are about the one that was asked for.
func (f *deviceFlags) runBoth(ctx context.Context, asServer bool, addr netip.Addr, port uint16, t tool, out, log io.Writer) error {
	peer := memClient
	switch {
	case !addr.IsValid() || addr.IsUnspecified() && addr.Is4():
		addr = memServer
	case addr.IsUnspecified():
		addr = netip.MustParseAddr("fd00::1")
		peer = addr.Next()
	case addr != memServer:
		peer = addr.Next()
	}
	var server, client *device
	var err error
	if asServer {
		server, client, err = f.openPair(addr, peer, log)
	} else {
		client, server, err = f.openPair(peer, addr, log)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listening := make(chan netip.AddrPort, 1)
	served := make(chan error, 1)
	go func() {
		err := t.server(ctx, server.Device, hostPort(addr, port), func(a netip.AddrPort) {
			announce(out, a)
			listening <- a
		})
		served <- err
	}()
	select {
	case at := <-listening:
		port = at.Port()
	case err := <-served:
		return errors.Join(err, client.Close(), server.Close())
	}
	if err = t.client(ctx, client.Device, hostPort(addr, port)); err != nil {
		cancel() // the server need not wait for more
		err = fmt.Errorf("client: %w", err)
	}
	if serr := <-served; serr != nil && err == nil {
		err = fmt.Errorf("server: %w", serr)
	}
	return errors.Join(closing(ctx, client, err), server.Close())
}

// closing closes d behind an operation that ended with err.
func closing(ctx context.Context, d *device, err error) error {
	cerr := d.Close()
	switch {
	case err == nil:
		return cerr
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return errors.New("interrupted")
	}
	return err
}

// printStatus ends the output of librdmacm's examples.
func printStatus(w io.Writer, err error) error {
	status := 0
	if err != nil {
		status = -1
	}
	fmt.Fprintf(w, "test complete\nreturn status %d\n", status)
	return err
}

// announce tells whoever waits for it, a script perhaps, that a server can be
// connected to.
func announce(w io.Writer, a netip.AddrPort) { fmt.Fprintf(w, "listening on %v\n", a) }

// resolve finds the address of a host, invalid for "". A zone is dropped: the NIC
// has but one link.
func resolve(ctx context.Context, host string) (netip.Addr, error) {
	if host == "" {
		return netip.Addr{}, nil
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().WithZone(""), nil
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.Addr{}, err
	}
	return addrs[0].Unmap().WithZone(""), nil
}

// hostPort joins an address, none for any, and a port.
func hostPort(a netip.Addr, port uint16) string {
	if !a.IsValid() {
		return fmt.Sprintf(":%d", port)
	}
	return netip.AddrPortFrom(a, port).String()
}
