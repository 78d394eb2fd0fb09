package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/tools/udaddy"
	"github.com/goroce/roce/internal/tools/usage"
)

func udaddyCommand() *cobra.Command {
	var cfg udaddy.Config
	c := &cobra.Command{
		Use:   "udaddy [-s ADDR | -b ADDR]",
		Short: "Send datagrams to resolved queue pairs, as librdmacm's udaddy",
		Long: `Ask the connection manager for a number of UD queue pairs of a server; to each
the client sends a number of messages, and the server as many back: librdmacm's
udaddy, either end. With -s it is the client; without, it is the server on the
address given by -b. Give both ends the same -c, -C and -S.

Only the question is repeated: if a message is lost, its receiver waits for ever,
as udaddy does.
` + deviceHelp,
		Example: `  rocectl udaddy -s 10.0.0.2 -c 16 -C 100 -S 1000
  rocectl udaddy -b 10.0.0.1 -c 16 -C 100 -S 1000     # the peer runs: udaddy -s 10.0.0.1 -c 16 …
  rocectl udaddy -c 16 --link mem                     # both ends, no privilege`,
		Args: arguments(0, 0),
	}
	ends := addEndFlags(c, udaddy.DefaultPort, "") // udaddy has no flag for it
	o := addMessageFlags(c)
	c.Flags().Uint8VarP(&cfg.TrafficClass, "tos", "t", 0, "type of service of what the client sends")
	space := addPortSpaceFlag(c)
	dev := addDeviceFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := checkPortSpace(*space); err != nil {
			return err
		}
		cfg.Options, cfg.Out = *o, c.OutOrStdout()
		t := toolOf(udaddy.Server, cfg, udaddy.Client, cfg)
		t.validate, t.status = cfg.Validate, true
		return dev.run(c, ends.endpoint(), t)
	}
	return c
}

// addPortSpaceFlag gives a command librdmacm's choice of port space, of which RoCE
// has one only.
func addPortSpaceFlag(c *cobra.Command) *string {
	return c.Flags().StringP("port-space", "p", "0x111", "port space: only UDP (0x111) exists on RoCE")
}

func checkPortSpace(s string) error {
	if n, err := strconv.ParseUint(s, 0, 16); err != nil || cm.PortSpace(n) != cm.PortSpaceUDP {
		return usage.Errorf("-p %s: only the port space UDP (0x111) exists on RoCE", s)
	}
	return nil
}
