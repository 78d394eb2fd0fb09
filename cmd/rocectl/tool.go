package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/machine"
	"github.com/goroce/roce/internal/tools/usage"
)

// tool is a program with two ends. The client connects to an address of the server.
type tool struct {
	// validate checks the options before anything is opened; nil: there is nothing to check.
	validate func() error
	// server serves at addr ("host:port"), calls listening when clients can connect, and
	// returns when it is done.
	server func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error
	// client does its work with the server at addr.
	client func(ctx context.Context, d *roce.Device, addr string) error
	// overTCP: the ends connect by TCP, not by the connection manager.
	overTCP bool
}

// toolOf returns the tool whose server has the options s and whose client has c.
func toolOf[C any](server func(context.Context, *roce.Device, string, C, func(netip.AddrPort)) error, s C,
	client func(context.Context, *roce.Device, string, C) error, c C) tool {
	return tool{
		server: func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error {
			return server(ctx, d, addr, s, listening)
		},
		client: func(ctx context.Context, d *roce.Device, addr string) error { return client(ctx, d, addr, c) },
	}
}

// toolWithResult is [toolOf] for ends that return a result. It calls report with the result and the role of the end.
func toolWithResult[C, R any](server func(context.Context, *roce.Device, string, C, func(netip.AddrPort)) (R, error), s C,
	client func(context.Context, *roce.Device, string, C) (R, error), c C, report func(role string, r R) error) tool {
	done := func(role string, r R, err error) error {
		if err != nil {
			return err
		}
		return report(role, r)
	}
	return tool{
		server: func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error {
			r, err := server(ctx, d, addr, s, listening)
			return done("server", r, err)
		},
		client: func(ctx context.Context, d *roce.Device, addr string) error {
			r, err := client(ctx, d, addr, c)
			return done("client", r, err)
		},
	}
}

// Addresses of --link mem when none is given.
var (
	memServer = netip.MustParseAddr("10.0.0.1")
	memClient = netip.MustParseAddr("10.0.0.2")
)

// endpoint says which end of a tool to run, and where the server is.
type endpoint struct {
	server bool
	host   string // the server's address or name; "" on a server means any address
	flag   string // the flag that gives the host, for the error of a client without it
	local  string // client: own address or name; "": the source address of the route to the host
	port   uint16 // of the server
}

// argument returns the endpoint of a command without a flag for its role: with an argument it is the client of this host, without
// one it is the server.
func argument(args []string, port uint16) endpoint {
	return endpoint{server: len(args) == 0, host: strings.Join(args, ""), port: port}
}

// run runs one end of a tool on the NIC that the flags describe. With --link mem it runs both.
func (f *deviceFlags) run(c *cobra.Command, e endpoint, t tool) error {
	err := f.Validate()
	if t.validate != nil {
		err = errors.Join(err, t.validate())
	}
	if err != nil {
		return err
	}
	ctx, out := c.Context(), c.OutOrStdout()
	host, err := resolve(ctx, e.host)
	if err != nil {
		return err
	}
	local, err := resolve(ctx, e.local)
	if err != nil {
		return err
	}
	if f.Link == machine.LinkMem {
		return f.runBoth(ctx, e, host, t, out, c.ErrOrStderr())
	}
	return f.runEnd(ctx, e, host, local, t, out, c.ErrOrStderr())
}

// runEnd runs one end of a tool.
func (f *deviceFlags) runEnd(ctx context.Context, e endpoint, host, local netip.Addr, t tool, out, log io.Writer) error {
	if !e.server && !host.IsValid() {
		return usage.Errorf("a client needs the address of its server: give %s", e.flag)
	}
	near, far := host, netip.Addr{}
	if !e.server {
		near, far = local, host
	}
	d, err := f.Open(near, far, log)
	if err != nil {
		return err
	}
	if e.server {
		err = t.server(ctx, d.Device, hostPort(host, e.port), func(a netip.AddrPort) { announce(out, a) })
	} else {
		quit := reportSilence(log, d.Device, host, silenceStep)
		err = t.client(ctx, d.Device, hostPort(host, e.port))
		quit()
	}
	return closing(ctx, d, advise(err))
}

// silenceStep is how often [reportSilence] prints a line.
const silenceStep = 10 * time.Second

// reportSilence prints a line at every step of time as long as no packet has arrived from the
// peer: a connection attempt ends after more than a minute only. The caller calls quit at the end.
func reportSilence(log io.Writer, d *roce.Device, peer netip.Addr, step time.Duration) (quit func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(step)
		defer tick.Stop()
		for waited := step; ; waited += step {
			select {
			case <-tick.C:
			case <-done:
				return
			}
			if d.Counters().Link.RxPackets > 0 {
				return
			}
			fmt.Fprintf(log, "no packet from %v for %v; the attempt ends after about 70s\n", peer, waited)
		}
	})
	return func() {
		close(done)
		running.Wait()
	}
}

// runBoth runs both ends on a simulated wire in this process. The flags apply to the end that the
// command line asks for.
func (f *deviceFlags) runBoth(ctx context.Context, e endpoint, addr netip.Addr, t tool, out, log io.Writer) error {
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
	near, far := peer, addr
	if e.server {
		near, far = addr, peer
	}
	client, server, err := f.OpenPair(near, far, log)
	if err != nil {
		return err
	}
	if e.server {
		client, server = server, client
	}
	if t.overTCP { // the addresses of the NICs exist in this process only
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	listening, served := make(chan netip.AddrPort, 1), make(chan error, 1)
	go func() {
		served <- t.server(ctx, server.Device, hostPort(addr, e.port), func(a netip.AddrPort) {
			announce(out, a)
			listening <- a
		})
	}()
	var at netip.AddrPort
	select {
	case at = <-listening:
	case err := <-served:
		return errors.Join(advise(err), client.Close(), server.Close())
	}
	if err = t.client(ctx, client.Device, hostPort(addr, at.Port())); err != nil {
		cancel() // the client has failed, so the server must not wait for it
		err = fmt.Errorf("client: %w", err)
	}
	if serr := <-served; serr != nil && err == nil {
		err = fmt.Errorf("server: %w", serr)
	}
	return errors.Join(closing(ctx, client, err), server.Close())
}

// advise adds to an error what the user can do next. Errors without such advice stay as they are.
func advise(err error) error {
	if reject, rejected := errors.AsType[*roce.RejectError](err); rejected && reject.Reason == cm.RejectConsumer {
		return fmt.Errorf("%w: the server does not want this connection: give both ends the same command and options", err)
	}
	for _, a := range []struct {
		errno syscall.Errno
		next  string
	}{
		{syscall.ECONNREFUSED, "start the server there first, with the same port"},
		{syscall.ETIMEDOUT, "start the server there first; firewalls must allow UDP port 4791"},
		{syscall.EHOSTUNREACH, "check the address, and that the host answers on this network (ping)"},
		{syscall.ENETUNREACH, "check the address, and the routes of this host (ip route)"},
		{syscall.EADDRINUSE, "another server has the port; give both ends another one"},
		{syscall.EADDRNOTAVAIL, "a server needs an address of this host (ip addr)"},
	} {
		if errors.Is(err, a.errno) {
			return fmt.Errorf("%w: %s", err, a.next)
		}
	}
	return err
}

// closing closes d after an operation that ended with err.
func closing(ctx context.Context, d *machine.Device, err error) error {
	cerr := d.Close()
	switch {
	case err == nil:
		return cerr
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return errors.New("interrupted")
	}
	return err
}

// announce prints that clients can connect. Programs that start a server wait for this line.
func announce(w io.Writer, a netip.AddrPort) { fmt.Fprintf(w, "listening on %v\n", a) }

// resolve returns the address of a host. For "" it returns the zero address. It drops a zone, because the NIC has only one link.
func resolve(ctx context.Context, host string) (netip.Addr, error) {
	if host == "" {
		return netip.Addr{}, nil
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().WithZone(""), nil
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(addrs) == 0 {
		return netip.Addr{}, fmt.Errorf("host %q: %w: check the name, or give an IP address", host, err)
	}
	return addrs[0].Unmap().WithZone(""), nil
}

// hostPort joins an address and a port. The zero address means any address.
func hostPort(a netip.Addr, port uint16) string {
	if !a.IsValid() {
		return fmt.Sprintf(":%d", port)
	}
	return netip.AddrPortFrom(a, port).String()
}

// arguments returns a function that checks the number of arguments of a command.
func arguments(low, high int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < low {
			return usage.Errorf("an argument is missing: want %s", c.UseLine())
		}
		if len(args) > high {
			return usage.Errorf("%q is an argument too many: want %s", args[high], c.UseLine())
		}
		return nil
	}
}
