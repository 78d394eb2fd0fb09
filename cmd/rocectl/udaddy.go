package main

import (
	"context"
	"net/netip"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/tools/udaddy"
)

func udaddyCommand() *cobra.Command {
	var (
		cfg  udaddy.Config
		port uint16
	)
	c := &cobra.Command{
		Use:   "udaddy [-s ADDR | -b ADDR]",
		Short: "Send datagrams to resolved queue pairs, as librdmacm's udaddy",
		Long: `Ask the connection manager for a number of UD queue pairs of a server; to each
the client sends a number of messages, and the server as many back: librdmacm's
udaddy, either end. With -s it is the client, without the server, on the address
given by -b.

Nothing is repeated but the question: if a message is lost, its receiver waits for
ever, as udaddy does.
` + deviceHelp,
		Example: `  rocectl udaddy -s 10.0.0.2 -c 16 -C 100 -S 1000
  rocectl udaddy -b 10.0.0.1 -c 16 -C 100 -S 1000     # the peer runs: udaddy -s 10.0.0.1 -c 16 …
  rocectl udaddy -c 16 --link mem                     # both ends, no privilege`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	ends := addEndFlags(c)
	messages := addMessageFlags(c, &cfg.Connections, &cfg.Count, &cfg.Size)
	f.Uint8VarP(&cfg.TrafficClass, "tos", "t", 0, "type of service of what the client sends")
	f.Uint16Var(&port, "port", udaddy.DefaultPort, "port of the server (udaddy has no choice)")
	space := addPortSpaceFlag(c)
	dev := addDeviceFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := messages.check(); err != nil {
			return err
		}
		if err := checkPortSpace(*space); err != nil {
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
				return udaddy.Server(ctx, d, addr, cfg, listening)
			},
			client: func(ctx context.Context, d *roce.Device, addr string) error {
				return udaddy.Client(ctx, d, addr, cfg)
			},
		})
		return printStatus(out, err)
	}
	return c
}

// addPortSpaceFlag gives a command librdmacm's choice of port space, of which RoCE
// leaves one.
func addPortSpaceFlag(c *cobra.Command) *string {
	return c.Flags().StringP("port-space", "p", "0x111", "port space: only UDP (0x111) exists on RoCE")
}

func checkPortSpace(s string) error {
	if n, err := strconv.ParseUint(s, 0, 16); err != nil || cm.PortSpace(n) != cm.PortSpaceUDP {
		return usagef("-p %s: only the port space UDP (0x111) exists on RoCE", s)
	}
	return nil
}
