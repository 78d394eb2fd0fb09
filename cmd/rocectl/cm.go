package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/goroce/roce/internal/machine"
	"github.com/goroce/roce/internal/tools/cmprobe"
	"github.com/goroce/roce/internal/tools/usage"
)

func cmCommand() *cobra.Command {
	return group("cm", "Talk to connection managers",
		"Talk to the RDMA connection managers of peers.", cmProbeCommand(), cmRejectCommand())
}

// errNotAccepted sets the exit code to 1 without an error line, because the output has the reason.
var errNotAccepted = errors.New("not accepted")

func cmProbeCommand() *cobra.Command {
	var (
		wait    time.Duration
		private string
		asJSON  bool
	)
	c := &cobra.Command{
		Use:   "probe HOST:PORT",
		Short: "Ask whether a listener accepts connections",
		Long: `Connect to a listener of the RDMA connection manager and disconnect at once. Print
whether the peer accepted, rejected (and why), or did not answer. Exits with 0
only if the peer accepted.

Common reasons of a rejection: 8, no program listens on the port; 28, the application
rejected the connection, or the peer's kernel found no route to this host.
` + deviceHelp,
		Example: `  rocectl cm probe 10.0.0.2:7174
  rocectl cm probe --json --dev eth0 [fd00::2]:7471`,
		Args: arguments(1, 1),
	}
	c.Flags().DurationVarP(&wait, "wait", "w", 15*time.Second, "give up after this time")
	c.Flags().StringVar(&private, "private", "", "private data for the application, at most 56 bytes")
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	dev := addDeviceFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := dev.Validate(); err != nil {
			return err
		}
		host, service, err := net.SplitHostPort(args[0])
		if err != nil {
			return usage.Errorf("%s: want HOST:PORT, like 10.0.0.2:7174", args[0])
		}
		port, err := strconv.ParseUint(service, 10, 16)
		if err != nil {
			return usage.Errorf("%s: %q is not a port: want 0 to 65535", args[0], service)
		}
		ctx := c.Context()
		addr, err := resolve(ctx, host)
		if err != nil {
			return err
		}
		if dev.Link == machine.LinkMem {
			return usage.Errorf("--link mem: no program listens in this process; choose another --link")
		}
		d, err := dev.Open(netip.Addr{}, addr, c.ErrOrStderr())
		if err != nil {
			return err
		}
		r, err := cmprobe.Probe(ctx, d.Device, hostPort(addr, uint16(port)), []byte(private), wait)
		if err = closing(ctx, d, err); err != nil {
			return err
		}
		if asJSON {
			err = json.NewEncoder(c.OutOrStdout()).Encode(r)
		} else {
			_, err = fmt.Fprintln(c.OutOrStdout(), r)
		}
		if err == nil && r.Verdict != cmprobe.Accepted {
			err = errNotAccepted
		}
		return err
	}
	return c
}
