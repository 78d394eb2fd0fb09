package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/goroce/roce/internal/tools/fipingpong"
	"github.com/goroce/roce/internal/tools/usage"
)

func fiPingpongCommand() *cobra.Command {
	var (
		cfg                           = fipingpong.Config{}
		size, source, provider, epTyp string
		listen, connect               uint16
	)
	c := &cobra.Command{
		Use:   "fi-pingpong [HOST]",
		Short: "Send a message back and forth, as libfabric's fi_pingpong does",
		Long: `Connect by libfabric's protocol over verbs and send messages back and forth. This is
either end of libfabric's fi_pingpong -p verbs -e msg. With HOST it is the client. The
client first connects to HOST by TCP.
` + deviceHelp,
		Example: `  rocectl fi-pingpong -I 1000 -S 4096 -c 10.0.0.2
  rocectl fi-pingpong -I 1000 -S 4096 -c            # the peer runs: fi_pingpong -p verbs -e msg -I 1000 -S 4096 -c 10.0.0.1
  rocectl fi-pingpong --link mem                    # both ends, no privilege`,
		Args: arguments(0, 1),
	}
	f := c.Flags()
	f.IntVarP(&cfg.Iterations, "iterations", "I", fipingpong.DefaultIterations, "messages of each size in each direction")
	f.StringVarP(&size, "size", "S", "", "bytes of a message (default 64 to 1 Mi in six steps)")
	f.BoolVarP(&cfg.Check, "check", "c", false, "check the data")
	f.StringVarP(&source, "source", "s", "", "address of the NIC to use")
	f.Uint16VarP(&listen, "listen-port", "B", fipingpong.DefaultPort, "server: TCP port to listen on")
	f.Uint16VarP(&connect, "port", "P", fipingpong.DefaultPort, "client: TCP port of the server")
	f.StringVarP(&provider, "provider", "p", "verbs", "only verbs")
	f.StringVarP(&epTyp, "endpoint", "e", "msg", "only msg")
	result := addJSONFlag(c)
	dev := addDeviceFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		result.begin(c)
		if provider != "verbs" || epTyp != "msg" {
			return usage.Errorf("-p %s -e %s: only -p verbs -e msg", provider, epTyp)
		}
		cfg.Size = fipingpong.AllSizes
		if size != "" {
			n, err := strconv.Atoi(size)
			if err != nil || n < 0 || n > 1<<30 {
				return usage.Errorf("-S %s: want bytes of a message, 0 to 2^30", size)
			}
			cfg.Size = n
		}
		var err error
		if cfg.Local, err = resolve(c.Context(), source); err != nil {
			return err
		}
		server, client := cfg, cfg
		end, asked, role := argument(args, connect), &client, "client"
		end.local = source
		if end.server {
			end.port, asked, role = listen, &server, "server"
		}
		asked.Out = c.OutOrStdout()
		if result.asJSON {
			asked.Result = func(r fipingpong.Result) { result.print(role, "", r) }
		}
		t := toolOf(fipingpong.Server, server, fipingpong.Client, client)
		t.validate, t.overTCP = func() error { return usage.AtLeast("-I", cfg.Iterations, 1) }, true
		return dev.run(c, end, t)
	}
	return c
}
