package main

import (
	"context"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/machine"
	"github.com/goroce/roce/internal/tools/mckey"
	"github.com/goroce/roce/internal/tools/usage"
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
first; the sender waits 3 seconds before it sends, so that switches learn of the
group. Give all ends the same -c, -C and -S.

Nothing is repeated: if a message is lost, its receiver waits for ever, as mckey
does. rxe has IPv4 groups only.
` + deviceHelp,
		Example: `  rocectl mckey -m 239.1.2.3 --link mem               # both ends, no privilege
  rocectl mckey -m 239.1.2.3 -b 10.0.0.1 -C 100       # the peer runs: mckey -s -m 239.1.2.3 -b 10.0.0.2 -C 100
  rocectl mckey -s -m ff0e::7 --dev eth0`,
		Args: arguments(0, 0),
	}
	f := c.Flags()
	f.StringVarP(&group, "group", "m", "", "address of the group")
	f.StringVarP(&unmapped, "mgid", "M", "", "the same as a GID; needs -b")
	f.BoolVarP(&sender, "sender", "s", false, "send")
	f.StringVarP(&bind, "bind", "b", "", "own address, which finds the interface")
	o := addMessageFlags(c)
	f.BoolVarP(&cfg.SendOnly, "send-only", "o", false, "sender: do not join the group")
	f.BoolVarP(&cfg.NoLoopback, "no-loopback", "l", false, "do not receive what this host sends (rxe cannot do that)")
	f.DurationVar(&cfg.Pause, "pause", mckey.Pause, "sender: wait this long before sending")
	space := addPortSpaceFlag(c)
	dev := addDeviceFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := checkPortSpace(*space); err != nil {
			return err
		}
		if (group == "") == (unmapped == "") {
			return usage.Errorf("which group? Give either -m or -M")
		}
		if unmapped != "" && bind == "" {
			return usage.Errorf("-M needs the own address, -b")
		}
		name := group + unmapped
		var err error
		if cfg.Group, err = bth.ParseGID(name); err != nil || !cfg.Group.IsMulticast() {
			return usage.Errorf("%s is no multicast group: want an address like 239.1.2.3 or ff0e::7", name)
		}
		if cfg.Bind, err = resolve(c.Context(), bind); err != nil {
			return err
		}
		cfg.Options, cfg.Out = *o, c.OutOrStdout()
		end := endpoint{server: !sender, host: bind, local: bind}
		switch {
		case dev.Link == machine.LinkMem: // any address will do, of the right version
			end.host, cfg.Bind = "", netip.Addr{}
			if !cfg.Group.Is4() {
				end.host = "::"
			}
		case sender:
			end.host = name
		}
		return dev.run(c, end, tool{
			validate: cfg.Validate, status: true,
			server: func(ctx context.Context, d *roce.Device, _ string, listening func(netip.AddrPort)) error {
				return mckey.Receiver(ctx, d, cfg, func() { listening(netip.AddrPortFrom(cfg.Group.Addr(), 0)) })
			},
			client: func(ctx context.Context, d *roce.Device, _ string) error { return mckey.Sender(ctx, d, cfg) },
		})
	}
	return c
}
