package main

import (
	"context"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/cmatose"
)

func ucmatoseCommand() *cobra.Command {
	var (
		cfg        cmatose.Config
		host, bind string
		port       uint16
	)
	c := &cobra.Command{
		Use:   "ucmatose [-s ADDR | -b ADDR]",
		Short: "Send messages over many connections, as librdmacm's ucmatose",
		Long: `Connect a number of times; over each connection the server sends a number of
messages, then the client as many: librdmacm's ucmatose, either end. With -s it
is the client, without the server, on the address given by -b.
` + deviceHelp,
		Example: `  rocectl ucmatose -s 10.0.0.2 -c 16 -C 100 -S 4000
  rocectl ucmatose -b 10.0.0.1 -c 16 -C 100 -S 4000   # the peer runs: ucmatose -s 10.0.0.1 -c 16 …
  rocectl ucmatose -c 16 --link mem                   # both ends, no privilege`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.StringVarP(&host, "server", "s", "", "be the client of the server at this address")
	f.StringVarP(&bind, "bind", "b", "", "be the server at this address; client: own address")
	f.IntVarP(&cfg.Connections, "connections", "c", 1, "connections")
	f.IntVarP(&cfg.Count, "count", "C", 10, "messages each way on each connection")
	f.IntVarP(&cfg.Size, "size", "S", 100, "bytes of a message")
	f.Uint16VarP(&port, "port", "p", cmatose.DefaultPort, "port of the server")
	dev := addDeviceFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if cfg.Connections < 1 || cfg.Count < 0 || cfg.Size < 0 {
			return usagef("-c %d -C %d -S %d: want at least one connection, and no negative numbers", cfg.Connections, cfg.Count, cfg.Size)
		}
		if cfg.Count == 0 || cfg.Size == 0 { // ucmatose takes both to mean: connect only
			cfg.Count, cfg.Size = -1, 1
		}
		var local netip.Addr
		server := host == ""
		if server {
			host = bind
		} else {
			var err error
			if local, err = resolve(c.Context(), bind); err != nil {
				return err
			}
		}
		out := c.OutOrStdout()
		cfg.Out = out
		err := dev.run(c, server, host, local, port, tool{
			server: func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error {
				return cmatose.Server(ctx, d, addr, cfg, listening)
			},
			client: func(ctx context.Context, d *roce.Device, addr string) error {
				return cmatose.Client(ctx, d, addr, cfg)
			},
		})
		return printStatus(out, err)
	}
	return c
}
