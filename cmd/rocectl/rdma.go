package main

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/rdmaclient"
)

func rdmaClientCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "rdma-client -s ADDR",
		Short: "Exchange one message with a server, as librdmacm's rdma_client",
		Long: `Send 16 bytes to a server and receive 16 bytes: rdma_client of librdmacm's
examples. The server is rdma_server or rocectl rdma-server.
` + deviceHelp,
		Example: `  rocectl rdma-client -s 10.0.0.2
  rocectl rdma-client --link mem               # both ends, no privilege`,
	}
	return rdmaCommand(c, false)
}

func rdmaServerCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "rdma-server [-s ADDR]",
		Short: "Exchange one message with a client, as librdmacm's rdma_server",
		Long: `Receive 16 bytes from one client, send 16 bytes back and exit: rdma_server of
librdmacm's examples. The client is rdma_client or rocectl rdma-client.
` + deviceHelp,
		Example: `  rocectl rdma-server                          # the peer runs: rdma_client -s ADDR
  rocectl rdma-server -s 10.0.0.1 --capture rdma.pcapng`,
	}
	return rdmaCommand(c, true)
}

// rdmaCommand adds the common parts of the two commands.
func rdmaCommand(c *cobra.Command, server bool) *cobra.Command {
	end := endpoint{server: server, flag: "-s ADDR"}
	c.Args = arguments(0, 0)
	c.Flags().StringVarP(&end.host, "server", "s", "", "address of the server")
	c.Flags().Uint16VarP(&end.port, "port", "p", rdmaclient.DefaultPort, "port of the server")
	dev := addDeviceFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		// around prints the first and the last line of the C programs.
		around := func(name string, work func() error) error {
			fmt.Fprintf(c.OutOrStdout(), "%s: start\n", name)
			err := work()
			fmt.Fprintf(c.OutOrStdout(), "%s: end %d\n", name, exitStatus(err))
			return err
		}
		return dev.run(c, end, tool{
			server: func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error {
				return around("rdma_server", func() error { return rdmaclient.Server(ctx, d, addr, listening) })
			},
			client: func(ctx context.Context, d *roce.Device, addr string) error {
				return around("rdma_client", func() error { return rdmaclient.Client(ctx, d, addr) })
			},
		})
	}
	return c
}
