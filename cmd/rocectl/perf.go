package main

import (
	"context"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/perftest"
)

func perfCommand() *cobra.Command {
	var subs []*cobra.Command
	for _, t := range perftest.Tests {
		subs = append(subs, perfTestCommand(t))
	}
	return group("perf", "Measure operations, as perftest's ib_* programs",
		"Measure operations between two queue pairs that are connected without the\nconnection manager: linux-rdma/perftest's programs, with their flags.",
		subs...)
}

func perfTestCommand(t perftest.Test) *cobra.Command {
	cfg := t.Config()
	var port uint16
	var mtu int
	c := &cobra.Command{
		Use:   t.Name + " [HOST]",
		Short: "Run perftest's ib_" + t.Name + ", either end",
		Long: `Run perftest's ib_` + t.Name + `, either end. Without HOST it is the server. The two
ends exchange their queue pairs over TCP, through the host's ordinary sockets, and
then use RDMA; give both the same flags. The client works, the server serves and
prints what was measured. What the operations did is checked as far as one end can.
` + deviceHelp,
		Example: `  rocectl perf ` + t.Name + ` --link mem               # both ends, no privilege
  rocectl perf ` + t.Name + ` --dev eth0               # a server; the peer runs: ib_` + t.Name + ` -x 1 ADDR
  rocectl perf ` + t.Name + ` -n 5000 10.0.0.2`,
		Args: cobra.MaximumNArgs(1),
	}
	f := c.Flags()
	if t.Atomics() {
		f.VarP(&cfg.Atomic, "atomic_type", "A", "operation: CMP_AND_SWAP or FETCH_AND_ADD")
	}
	f.Uint16VarP(&port, "port", "p", perftest.DefaultPort, "TCP port of the exchange")
	f.IntVarP(&cfg.Size, "size", "s", cfg.Size, "bytes of a message")
	f.IntVarP(&cfg.Iters, "iters", "n", cfg.Iters, "messages")
	f.IntVarP(&cfg.TxDepth, "tx-depth", "t", cfg.TxDepth, "messages under way")
	if t.TwoSided() {
		f.IntVarP(&cfg.RxDepth, "rx-depth", "r", cfg.RxDepth, "receives kept posted")
	}
	if t.Reads() {
		f.IntVarP(&cfg.OutReads, "outs", "o", cfg.OutReads, "READs and atomics under way, and answered at a time")
	}
	f.IntVarP(&mtu, "mtu", "m", 0, "path MTU (default: the interface's)")
	f.IntVarP(&cfg.GIDIndex, "gid-index", "x", cfg.GIDIndex, "index of the own address (-1: one that suits the peer)")
	f.Uint8VarP(&cfg.Timeout, "qp-timeout", "u", cfg.Timeout, "ACK timeout, 4.096 µs times 2 to the power of this")
	f.BoolVarP(&cfg.NoPeak, "noPeak", "N", false, "look for no peak")
	f.IntP("ib-port", "i", 1, "port of the device (it has one)")
	f.BoolP("CPU-freq", "F", false, "do not warn of a varying clock (it never does)")
	f.IntP("sl", "S", 0, "service level (has no meaning on RoCE)")
	res := addJSONFlag(c)
	dev := addDeviceFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if mtu != 0 {
			var ok bool
			if cfg.MTU, ok = mtuOf(mtu); !ok {
				return usagef("-m %d: want 256, 512, 1024, 2048 or 4096", mtu)
			}
		}
		host := ""
		if len(args) == 1 {
			host = args[0]
		}
		res.begin(c)
		cfg.Out = c.OutOrStdout()
		report := func(role string, r perftest.Report, err error) error {
			if err != nil {
				return err
			}
			return res.print(role, r.String(), r)
		}
		t := tool{
			server: func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error {
				r, err := perftest.Server(ctx, d, addr, cfg, listening)
				return report("server", r, err)
			},
			client: func(ctx context.Context, d *roce.Device, addr string) error {
				r, err := perftest.Client(ctx, d, addr, cfg)
				return report("client", r, err)
			},
		}
		if dev.link == linkMem {
			t = overLoopback(t)
		}
		return dev.run(c, host == "", host, netip.Addr{}, port, t)
	}
	return c
}
