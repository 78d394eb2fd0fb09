package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/goroce/roce/internal/tools/rping"
	"github.com/goroce/roce/internal/tools/usage"
)

func rpingCommand() *cobra.Command {
	var (
		cfg    rping.Config
		client bool
		end    = endpoint{flag: "-a ADDR"}
	)
	c := &cobra.Command{
		Use:   "rping {-s|-c} [-a ADDR]",
		Short: "Ping by RDMA READ and WRITE, as librdmacm's rping does",
		Long: `Ping by RDMA READ and WRITE. This is either end of librdmacm's rping, with its flags
and its protocol. The server serves one client and exits when the client disconnects.
` + deviceHelp,
		Example: `  rocectl rping -c -C 3 -v --link mem          # both ends, no privilege
  rocectl rping -s -a 10.0.0.1 -v              # a server; the peer runs: rping -c -a 10.0.0.1 -v
  rocectl rping -c -a 10.0.0.2 -C 10 -V --loss 2%`,
		Args: arguments(0, 0),
	}
	f := c.Flags()
	f.BoolVarP(&end.server, "server", "s", false, "be the server")
	f.BoolVarP(&client, "client", "c", false, "be the client")
	f.StringVarP(&end.host, "addr", "a", "", "address of the server")
	f.Uint16VarP(&end.port, "port", "p", rping.DefaultPort, "port of the server")
	f.StringVarP(&end.local, "source", "I", "", "client: own address, which selects the interface")
	f.IntVarP(&cfg.Count, "count", "C", 0, "number of pings (0: until interrupted)")
	f.IntVarP(&cfg.Size, "size", "S", rping.DefaultSize, "bytes of data")
	f.BoolVarP(&cfg.Verbose, "verbose", "v", false, "print the data")
	f.BoolVarP(&cfg.Check, "validate", "V", false, "check the data that comes back")
	res := addJSONFlag(c)
	dev := addDeviceFlags(c)
	f.BoolVarP(&dev.Trace, "debug", "d", false, "same as --trace")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if end.server == client {
			return usage.Errorf("give either -s, the server, or -c, the client")
		}
		res.begin(c)
		cfg.Out = c.OutOrStdout()
		t := toolWithResult(rping.Server, cfg, rping.Client, cfg, func(role string, r rping.Result) error { return res.print(role, "", r) })
		t.validate = func() error { return cmp.Or(usage.Range("-S", cfg.Size, rping.MinSize, rping.MaxSize), cfg.Validate()) }
		return dev.run(c, end, t)
	}
	return c
}
