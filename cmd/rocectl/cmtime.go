package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/cmtime"
)

func cmtimeCommand() *cobra.Command {
	var (
		cfg              cmtime.Config
		port             uint16
		retries, timeout int
	)
	c := &cobra.Command{
		Use:   "cmtime [-s ADDR | -b ADDR]",
		Short: "Time the steps of many connections, as librdmacm's cmtime",
		Long: `Make a number of connections, each step for all at once, end them, and print how
long the steps took: librdmacm's cmtime, either end. With -s it is the client;
without the server, on the address given by -b, for ever or for -c connections.
` + deviceHelp,
		Example: `  rocectl cmtime -s 10.0.0.2 -c 1000
  rocectl cmtime -b 10.0.0.1            # the peer runs: cmtime -s 10.0.0.1
  rocectl cmtime -c 1000 --link mem     # both ends, no privilege`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	ends := addEndFlags(c)
	f.IntVarP(&cfg.Connections, "connections", "c", 100, "connections; a server ends after so many if told")
	f.Uint16VarP(&port, "port", "p", cmtime.DefaultPort, "port of the server")
	f.IntVarP(&retries, "retries", "r", 2, "retries of addresses and routes, and of the transport")
	f.IntVarP(&timeout, "timeout", "t", 2000, "milliseconds to find an address or a route")
	dev := addDeviceFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if cfg.Connections < 1 || retries < 0 || timeout < 1 {
			return usagef("-c %d -r %d -t %d: want at least one connection, and no negative numbers", cfg.Connections, retries, timeout)
		}
		if cfg.Retries = retries; retries == 0 {
			cfg.Retries = -1
		}
		cfg.Timeout = time.Duration(timeout) * time.Millisecond
		server, host, local, err := ends.choose(c.Context())
		if err != nil {
			return err
		}
		if local.IsValid() {
			cfg.Bind = netip.AddrPortFrom(local, 0)
		}
		cfg.Out = c.OutOrStdout()
		return dev.run(c, server, host, local, port, tool{
			server: func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error {
				sc := cfg
				if !c.Flags().Changed("connections") && dev.link != linkMem {
					sc.Connections = 0
				}
				if err := cmtime.Server(ctx, d, addr, sc, listening); err != nil {
					return fmt.Errorf("cmtime: %w", err)
				}
				return nil
			},
			client: func(ctx context.Context, d *roce.Device, addr string) error { return cmtime.Client(ctx, d, addr, cfg) },
		})
	}
	return c
}
