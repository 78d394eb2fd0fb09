package main

import (
	"context"
	"net/netip"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/fipingpong"
)

func fiPingpongCommand() *cobra.Command {
	var (
		cfg                           = fipingpong.Config{}
		size, source, provider, epTyp string
		listen, connect               uint16
	)
	c := &cobra.Command{
		Use:   "fi-pingpong [HOST]",
		Short: "Send a message to and fro, as libfabric's fi_pingpong",
		Long: `Connect by libfabric's protocol over verbs and send messages to and fro:
libfabric's fi_pingpong -p verbs -e msg, either end. With HOST it is the client. The
ends meet by TCP at HOST.
` + deviceHelp,
		Example: `  rocectl fi-pingpong -I 1000 -S 4096 -c 10.0.0.2
  rocectl fi-pingpong -I 1000 -S 4096 -c            # the peer runs: fi_pingpong -p verbs -e msg -I 1000 -S 4096 -c 10.0.0.1
  rocectl fi-pingpong --link mem                    # both ends, no privilege`,
		Args: cobra.MaximumNArgs(1),
	}
	f := c.Flags()
	f.IntVarP(&cfg.Iterations, "iterations", "I", fipingpong.DefaultIterations, "messages each way of every size")
	f.StringVarP(&size, "size", "S", "", "bytes of a message (default 64 to 1 Mi in six steps)")
	f.BoolVarP(&cfg.Check, "check", "c", false, "check the data")
	f.StringVarP(&source, "source", "s", "", "address of the NIC to use")
	f.Uint16VarP(&listen, "listen-port", "B", fipingpong.DefaultPort, "server: TCP port to meet at")
	f.Uint16VarP(&connect, "port", "P", fipingpong.DefaultPort, "client: TCP port of the server")
	f.StringVarP(&provider, "provider", "p", "verbs", "only verbs")
	f.StringVarP(&epTyp, "endpoint", "e", "msg", "only msg")
	result := addJSONFlag(c)
	dev := addDeviceFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		result.begin(c)
		if provider != "verbs" || epTyp != "msg" {
			return usagef("-p %s -e %s: only -p verbs -e msg", provider, epTyp)
		}
		cfg.Size = -1
		if size != "" {
			n, err := strconv.Atoi(size)
			if err != nil || n < 0 || n > 1<<30 {
				return usagef("-S %s: want bytes of a message, 0 to 2^30", size)
			}
			cfg.Size = n
		}
		if cfg.Iterations < 1 {
			return usagef("-I %d: want at least one", cfg.Iterations)
		}
		local, err := resolve(c.Context(), source)
		if err != nil {
			return err
		}
		server, host, port, role := len(args) == 0, "", listen, "server"
		if !server {
			host, port, role = args[0], connect, "client"
		}
		one, both := cfg, cfg
		one.Out = c.OutOrStdout()
		if result.asJSON {
			one.Result = func(r fipingpong.Result) { result.print(role, "", r) }
		}
		ends := map[bool]fipingpong.Config{server: one, !server: both}
		t := tool{
			server: func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error {
				return fipingpong.Server(ctx, d, addr, ends[true], listening)
			},
			client: func(ctx context.Context, d *roce.Device, addr string) error {
				return fipingpong.Client(ctx, d, addr, ends[false])
			},
		}
		if dev.link == linkMem {
			t = overLoopback(t)
		}
		return dev.run(c, server, host, local, port, t)
	}
	return c
}
