package main

import (
	"context"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/mckey"
)

func mckeyCommand() *cobra.Command {
	var (
		cfg                   mckey.Config
		group, unmapped, bind string
		sender                bool
	)
	c := &cobra.Command{
		Use:   "mckey {-m|-M} GROUP [-s] [-b ADDR]",
		Short: "Send to a multicast group, as librdmacm's mckey",
		Long: `Receive datagrams to a multicast group, or with -s send them: librdmacm's mckey,
either end. The kernel joins the group as long as rocectl runs. Start the receivers
first; the sender waits 3 seconds before it sends, for switches to learn of the
group.

Nothing is repeated: if a message is lost, its receiver waits for ever, as mckey
does. rxe knows IPv4 groups only.
` + deviceHelp,
		Example: `  rocectl mckey -m 239.1.2.3 --link mem               # both ends, no privilege
  rocectl mckey -m 239.1.2.3 -b 10.0.0.1 -C 100       # the peer runs: mckey -s -m 239.1.2.3 -b 10.0.0.2 -C 100
  rocectl mckey -s -m ff0e::7 --dev eth0`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.StringVarP(&group, "group", "m", "", "address of the group")
	f.StringVarP(&unmapped, "mgid", "M", "", "the same as a GID; needs -b")
	f.BoolVarP(&sender, "sender", "s", false, "send")
	f.StringVarP(&bind, "bind", "b", "", "own address, which finds the interface")
	f.IntVarP(&cfg.Connections, "connections", "c", 1, "queue pairs")
	f.IntVarP(&cfg.Count, "count", "C", 10, "messages of each queue pair")
	f.IntVarP(&cfg.Size, "size", "S", 100, "bytes of a message")
	f.BoolVarP(&cfg.SendOnly, "send-only", "o", false, "sender: do not join the group")
	f.BoolVarP(&cfg.NoLoopback, "no-loopback", "l", false, "do not get what is sent from here (rxe cannot do that)")
	f.DurationVar(&cfg.Pause, "pause", mckey.Pause, "sender: wait this long before sending")
	space := addPortSpaceFlag(c)
	dev := addDeviceFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if cfg.Connections < 1 || cfg.Count < 0 || cfg.Size < 0 {
			return usagef("-c %d -C %d -S %d: want at least one queue pair, and no negative numbers", cfg.Connections, cfg.Count, cfg.Size)
		}
		if err := checkPortSpace(*space); err != nil {
			return err
		}
		name := group + unmapped
		if (group == "") == (unmapped == "") {
			return usagef("which group? Give either -m or -M")
		}
		if unmapped != "" && bind == "" {
			return usagef("-M needs the own address, -b")
		}
		var err error
		if cfg.Group, err = bth.ParseGID(name); err != nil || !cfg.Group.IsMulticast() {
			return usagef("%s is no multicast group", name)
		}
		if cfg.Bind, err = resolve(c.Context(), bind); err != nil {
			return err
		}
		if cfg.Count == 0 || cfg.Size == 0 { // mckey takes both to mean: join only
			cfg.Count, cfg.Size = -1, 1
		}
		if cfg.Pause == 0 {
			cfg.Pause = -1
		}
		out := c.OutOrStdout()
		cfg.Out = out
		host := bind
		switch {
		case dev.link == linkMem: // any address will do, of the right version
			host, cfg.Bind = "", netip.Addr{}
			if !cfg.Group.Is4() {
				host = "::"
			}
		case sender:
			host = name
		}
		err = dev.run(c, !sender, host, cfg.Bind, 0, tool{
			server: func(ctx context.Context, d *roce.Device, _ string, listening func(netip.AddrPort)) error {
				return mckey.Receiver(ctx, d, cfg, func() { listening(netip.AddrPortFrom(cfg.Group.Addr(), 0)) })
			},
			client: func(ctx context.Context, d *roce.Device, _ string) error {
				return mckey.Sender(ctx, d, cfg)
			},
		})
		return printStatus(out, err)
	}
	return c
}
