package main

import (
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/goroce/roce/internal/machine"
	"github.com/goroce/roce/internal/tools/cmtime"
)

func cmtimeCommand() *cobra.Command {
	cfg := cmtime.Default()
	var timeout int
	c := &cobra.Command{
		Use:   "cmtime [-s ADDR | -b ADDR]",
		Short: "Time the steps of many connections, as librdmacm's cmtime",
		Long: `Make a number of connections, each step for all at once, end them, and print how
long the steps took: librdmacm's cmtime, either end. With -s it is the client;
without, it is the server on the address given by -b, until it is interrupted or
-c connections have ended.
` + deviceHelp,
		Example: `  rocectl cmtime -s 10.0.0.2 -c 1000
  rocectl cmtime -b 10.0.0.1            # the peer runs: cmtime -s 10.0.0.1
  rocectl cmtime -c 1000 --link mem     # both ends, no privilege`,
		Args: arguments(0, 0),
	}
	ends := addEndFlags(c, cmtime.DefaultPort, "p")
	f := c.Flags()
	f.IntVarP(&cfg.Connections, "connections", "c", cfg.Connections, "connections; a server with this flag ends after so many")
	f.IntVarP(&cfg.Retries, "retries", "r", cfg.Retries, "retries of addresses and routes, and of the transport")
	f.IntVarP(&timeout, "timeout", "t", int(cfg.Timeout/time.Millisecond), "milliseconds to find an address or a route")
	dev := addDeviceFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg.Timeout = time.Duration(timeout) * time.Millisecond
		cfg.Out = c.OutOrStdout()
		if ends.server != "" {
			local, err := resolve(c.Context(), ends.bind)
			if err != nil {
				return err
			}
			cfg.Bind = netip.AddrPortFrom(local, 0)
		}
		server := cfg
		if !f.Changed("connections") && dev.Link != machine.LinkMem {
			server.Connections = cmtime.Forever
		}
		t := toolOf(cmtime.Server, server, cmtime.Client, cfg)
		t.validate = cfg.Validate
		return dev.run(c, ends.endpoint(), t)
	}
	return c
}
