package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/cmprobe"
	"github.com/goroce/roce/internal/tools/usage"
)

func cmRejectCommand() *cobra.Command {
	var (
		end     = endpoint{server: true}
		count   int
		private string
	)
	c := &cobra.Command{
		Use:   "reject [-s ADDR] -p PORT",
		Short: "Reject every connection",
		Long: `Listen on a port of the RDMA connection manager and reject every connection, with
the reason of an application that does not want it (28). Requests for UD queue pairs
are rejected, too, with status 2. This tests clients. It ends after -C rejections, or
when it is interrupted.
` + deviceHelp,
		Example: `  rocectl cm reject -p 7471
  rocectl cm reject -s 10.0.0.1 -p 7174 -C 1 --private "go away"`,
		Args: arguments(0, 0),
	}
	c.Flags().StringVarP(&end.host, "server", "s", "", "address to listen on (default: any)")
	c.Flags().Uint16VarP(&end.port, "port", "p", 0, "port to listen on (default: any)")
	c.Flags().IntVarP(&count, "count", "C", 0, "number of connections to reject (0: until interrupted)")
	c.Flags().StringVar(&private, "private", "", "private data for the peer's application, at most 148 bytes (UD: the first 136)")
	dev := addDeviceFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		out := c.OutOrStdout()
		return dev.run(c, end, tool{
			validate: func() error { return usage.AtLeast("-C", count, 0) },
			server: func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error {
				return cmprobe.Reject(ctx, d, addr, []byte(private), count, listening, func(peer netip.AddrPort) {
					fmt.Fprintf(out, "rejected %v\n", peer)
				})
			},
			client: func(ctx context.Context, d *roce.Device, addr string) error {
				_, err := d.Dial(ctx, addr, roce.DialConfig{})
				if _, rejected := errors.AsType[*roce.RejectError](err); !rejected {
					return fmt.Errorf("was not rejected: %w", err)
				}
				return nil
			},
		})
	}
	return c
}
