package main

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/rping"
)

func rpingCommand() *cobra.Command {
	var (
		cfg            rping.Config
		server, client bool
		host, source   string
		port           uint16
	)
	c := &cobra.Command{
		Use:   "rping {-s|-c} [-a ADDR]",
		Short: "Ping by RDMA READ and WRITE, as librdmacm's rping",
		Long: `Ping by RDMA READ and WRITE: librdmacm's rping, either end, with its flags and
its protocol. The server answers one client and exits when it disconnects.
` + deviceHelp,
		Example: `  rocectl rping -c -C 3 -v --link mem          # both ends, no privilege
  rocectl rping -s -a 10.0.0.1 -v              # a server; the peer runs: rping -c -a 10.0.0.1 -v
  rocectl rping -c -a 10.0.0.2 -C 10 -V --loss 2%`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.BoolVarP(&server, "server", "s", false, "be the server")
	f.BoolVarP(&client, "client", "c", false, "be the client")
	f.StringVarP(&host, "addr", "a", "", "address of the server")
	f.Uint16VarP(&port, "port", "p", rping.DefaultPort, "port of the server")
	f.StringVarP(&source, "source", "I", "", "client: own address, which finds the interface")
	f.IntVarP(&cfg.Count, "count", "C", 0, "pings (0: until interrupted)")
	f.IntVarP(&cfg.Size, "size", "S", rping.DefaultSize, "bytes of data")
	f.BoolVarP(&cfg.Verbose, "verbose", "v", false, "print the data")
	f.BoolVarP(&cfg.Validate, "validate", "V", false, "compare the data that comes back")
	res := addJSONFlag(c)
	dev := addDeviceFlags(c)
	f.BoolVarP(&dev.trace, "debug", "d", false, "same as --trace")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if server == client {
			return usagef("either -s, the server, or -c, the client")
		}
		if cfg.Count < 0 {
			return usagef("-C %d: a count cannot be negative", cfg.Count)
		}
		local, err := resolve(c.Context(), source)
		if err != nil {
			return err
		}
		res.begin(c)
		cfg.Out = c.OutOrStdout()
		return dev.run(c, server, host, local, port, tool{
			server: func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error {
				r, err := rpingServer(ctx, d, addr, cfg, listening)
				if err != nil {
					return err
				}
				return res.print("server", "", r)
			},
			client: func(ctx context.Context, d *roce.Device, addr string) error {
				r, err := rping.Client(ctx, d, addr, cfg)
				if err != nil {
					return err
				}
				return res.print("client", "", r)
			},
		})
	}
	return c
}

// rpingServer wants a client that was told a number of pings to make them all.
func rpingServer(ctx context.Context, d *roce.Device, addr string, cfg rping.Config, listening func(netip.AddrPort)) (rping.Result, error) {
	r, err := rping.Server(ctx, d, addr, cfg, listening)
	if err == nil && r.Pings < cfg.Count {
		err = fmt.Errorf("the client disconnected after %d pings of %d", r.Pings, cfg.Count)
	}
	return r, err
}
