package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/goroce/roce/internal/tools/pingpong"
)

func pingpongCommand() *cobra.Command {
	return group("pingpong", "Send a message back and forth between two queue pairs, as ibv_*_pingpong do",
		"Send a message back and forth between two queue pairs that are connected without the\nconnection manager. These are the ibv_*_pingpong programs of rdma-core.",
		pingpongOf(pingpong.RC, "rc", "over a reliable connection", ""),
		pingpongOf(pingpong.UC, "uc", "over an unreliable connection",
			"\nNo message is retransmitted: if one is lost, both ends wait for ever, as the programs\nof rdma-core do.\n"),
		pingpongOf(pingpong.UD, "ud", "in datagrams",
			"\nA message must fit in one packet. No message is retransmitted: if one is lost, both\nends wait for ever, as the programs of rdma-core do.\n"),
		pingpongOf(pingpong.SRQ, "srq", "over many connections with a shared receive queue", ""))
}

// pingpongOf returns the command for one of rdma-core's programs. note is added to its help.
func pingpongOf(kind pingpong.Kind, name, how, note string) *cobra.Command {
	cfg := kind.Defaults()
	var port uint16
	c := &cobra.Command{
		Use:   name + " [HOST]",
		Short: fmt.Sprintf("Send a message back and forth %s, as %v_pingpong does", how, kind),
		Long: fmt.Sprintf(`Send a message back and forth %s. This is either end
of rdma-core's %v_pingpong. Without HOST it is the server. The two ends
exchange their queue pairs over TCP, through the host's ordinary sockets, and then use
RDMA. Give both ends the same -s and -n.
`, how, kind) + note + deviceHelp,
		Example: fmt.Sprintf(`  rocectl pingpong %s --link mem               # both ends, no privilege
  rocectl pingpong %[1]s --dev eth0               # a server; the peer runs: %[2]v_pingpong -g 1 ADDR
  rocectl pingpong %[1]s -n 100 -s 1000 -c 10.0.0.2`, name, kind),
		Args: arguments(0, 1),
	}
	f := c.Flags()
	f.Uint16VarP(&port, "port", "p", pingpong.DefaultPort, "TCP port of the exchange")
	f.IntVarP(&cfg.Size, "size", "s", cfg.Size, "bytes of the message")
	if kind != pingpong.UD {
		f.FuncP("mtu", "m", "path MTU in `bytes` (default 1024)", parseOneOf(&cfg.MTU, mtuName, mtus...))
	}
	f.IntVarP(&cfg.RxDepth, "rx-depth", "r", cfg.RxDepth, "number of posted receives")
	iters := "exchanges"
	if kind == pingpong.SRQ {
		f.IntVarP(&cfg.QPs, "num-qp", "q", cfg.QPs, "queue pairs")
		iters += ", of all queue pairs together"
	}
	f.IntVarP(&cfg.Iters, "iters", "n", cfg.Iters, iters)
	f.StringVarP(&cfg.GID, "gid-idx", "g", cfg.GID, "`index` of the own address, or the address (-1: one of the peer's IP version)")
	f.BoolVarP(&cfg.Check, "chk", "c", false, "compare the received messages")
	f.IntP("sl", "l", 0, "service level (has no meaning on RoCE)")
	f.BoolP("events", "e", false, "sleep until a completion comes (as it does without --poll)")
	res := addJSONFlag(c)
	dev := addDeviceFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		res.begin(c)
		cfg.Out = c.OutOrStdout()
		t := toolWithResult(pingpong.Server, cfg, pingpong.Client, cfg,
			func(role string, r pingpong.Result) error { return res.print(role, r.String(), r) })
		t.validate, t.overTCP = cfg.Validate, true
		return dev.run(c, argument(args, port), t)
	}
	return c
}
