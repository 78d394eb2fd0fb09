package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/goroce/roce/internal/tools/rstream"
	"github.com/goroce/roce/internal/tools/usage"
)

func rstreamCommand() *cobra.Command {
	return streamCommand(rstream.Config{}, "rstream", "Time transfers over a stream, as librdmacm's rstream does",
		`Send data back and forth over an rsocket. This is either end of librdmacm's rstream.`)
}

func riostreamCommand() *cobra.Command {
	return streamCommand(rstream.Config{IO: true}, "riostream", "Time writes to mapped memory, as librdmacm's riostream does",
		`Write to memory that the peer has mapped (riomap), back and forth, without the buffers
of the stream. This is either end of librdmacm's riostream.`)
}

// streamCommand makes one of the two commands.
func streamCommand(cfg rstream.Config, name, short, long string) *cobra.Command {
	var (
		end          endpoint
		server, bind string
		size, option string
		keepalive    int
	)
	c := &cobra.Command{
		Use:   name + " [-s ADDR | -b ADDR]",
		Short: short,
		Long: long + `
Without -I, -C or -S N it measures latency over one connection and bandwidth over another,
for several sizes. With -s it is the client. Without -s it is the server on the address
given by -b. Give both ends the same flags.
` + deviceHelp,
		Example: fmt.Sprintf(`  rocectl %[1]s -s 10.0.0.2 -S 65536 -C 1000 -T v
  rocectl %[1]s -b 10.0.0.1 -S 65536 -C 1000 -T v   # the peer runs: %[1]s -s 10.0.0.1 …
  rocectl %[1]s --link mem -S 4096                  # both ends, no privilege`, name),
		Args: arguments(0, 0),
	}
	f := c.Flags()
	f.StringVarP(&server, "server", "s", "", "be the client of the server at this address")
	f.StringVarP(&bind, "bind", "b", "", "be the server at this address; client: own address")
	f.Uint16VarP(&end.port, "port", "p", rstream.DefaultPort, "port of the server")
	f.IntVarP(&cfg.Buffer, "buffer", "B", 0, "bytes of each buffer (default 512 KiB)")
	f.IntVarP(&cfg.Iterations, "iterations", "I", rstream.DefaultIterations, "rounds")
	f.IntVarP(&cfg.Count, "transfers", "C", rstream.DefaultCount, "transfers in each direction per round")
	f.StringVarP(&size, "size", "S", strconv.Itoa(rstream.DefaultSize), "bytes of a transfer, or \"all\" for all sizes")
	f.IntVarP(&keepalive, "keepalive", "k", 0, "seconds between probes")
	f.StringVarP(&option, "test", "T", "", "v or verify: check the data; the other options of "+name+" have no effect here")
	result := addJSONFlag(c)
	dev := addDeviceFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		result.begin(c)
		if err := streamOptions(c, &cfg, size, option, keepalive); err != nil {
			return err
		}
		serving, dialing := cfg, cfg
		asked, role := &dialing, "client"
		if end.host, end.local = server, bind; server == "" {
			end.server, end.host = true, bind
			asked, role = &serving, "server"
		}
		asked.Out = c.OutOrStdout()
		if result.asJSON {
			asked.Result = func(r rstream.Result) { result.print(role, "", r) }
		}
		return dev.run(c, end, toolOf(rstream.Server, serving, rstream.Client, dialing))
	}
	return c
}

// streamOptions reads the flags of both commands.
func streamOptions(c *cobra.Command, cfg *rstream.Config, size, option string, keepalive int) error {
	f := c.Flags()
	cfg.Custom = f.Changed("iterations") || f.Changed("transfers")
	if strings.EqualFold(size, "all") {
		cfg.All = true
		cfg.Size = rstream.DefaultSize
	} else {
		n, err := strconv.Atoi(size)
		if err != nil || n < 1 || n > 1<<30 {
			return usage.Errorf("-S %s: want bytes of a transfer, 1 to 2^30, or all", size)
		}
		cfg.Size = n
		cfg.Custom = cfg.Custom || f.Changed("size")
	}
	if cfg.Iterations < 1 || cfg.Count < 1 || cfg.Buffer < 0 || keepalive < 0 {
		return usage.Errorf("-I %d -C %d -B %d -k %d: want at least one transfer, and no negative numbers", cfg.Iterations, cfg.Count, cfg.Buffer, keepalive)
	}
	cfg.Keepalive = time.Duration(keepalive) * time.Second
	switch option {
	case "v", "verify":
		cfg.Verify = true
	case "", "a", "async", "b", "blocking", "n", "nonblocking", "r", "resolve":
	default:
		return usage.Errorf("-T %s: not a known option; v checks the data", option)
	}
	return nil
}
