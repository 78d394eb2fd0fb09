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
		cfg  cmatose.Config
		port uint16
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
	ends := addEndFlags(c)
	messages := addMessageFlags(c, &cfg.Connections, &cfg.Count, &cfg.Size)
	f.Uint16VarP(&port, "port", "p", cmatose.DefaultPort, "port of the server")
	dev := addDeviceFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := messages.check(); err != nil {
			return err
		}
		server, host, local, err := ends.choose(c.Context())
		if err != nil {
			return err
		}
		out := c.OutOrStdout()
		cfg.Out = out
		err = dev.run(c, server, host, local, port, tool{
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
