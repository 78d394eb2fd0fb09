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
		cfg        udaddy.Config
		host, bind string
		port       uint16
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
	f.StringVarP(&host, "server", "s", "", "be the client of the server at this address")
	f.StringVarP(&bind, "bind", "b", "", "be the server at this address; client: own address")
	f.IntVarP(&cfg.Connections, "connections", "c", 1, "connections")
	f.IntVarP(&cfg.Count, "count", "C", 10, "messages each way on each connection")
	f.IntVarP(&cfg.Size, "size", "S", 100, "bytes of a message")
	f.Uint8VarP(&cfg.TrafficClass, "tos", "t", 0, "type of service of what the client sends")
	f.Uint16Var(&port, "port", udaddy.DefaultPort, "port of the server (udaddy has no choice)")
	space := addPortSpaceFlag(c)
	dev := addDeviceFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if cfg.Connections < 1 || cfg.Count < 0 || cfg.Size < 0 {
			return usagef("-c %d -C %d -S %d: want at least one connection, and no negative numbers", cfg.Connections, cfg.Count, cfg.Size)
		}
		if err := checkPortSpace(*space); err != nil {
			return err
		}
		if cfg.Count == 0 || cfg.Size == 0 { // udaddy takes both to mean: connect only
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
