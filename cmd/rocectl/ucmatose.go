package main

import (
	"github.com/spf13/cobra"

	"github.com/goroce/roce/internal/tools/cmatose"
	"github.com/goroce/roce/internal/tools/messages"
)

func ucmatoseCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "ucmatose [-s ADDR | -b ADDR]",
		Short: "Send messages over many connections, as librdmacm's ucmatose",
		Long: `Connect a number of times; over each connection the server sends a number of
messages, then the client as many: librdmacm's ucmatose, either end. With -s it
is the client; without, it is the server on the address given by -b. Give both ends
the same -c, -C and -S.
` + deviceHelp,
		Example: `  rocectl ucmatose -s 10.0.0.2 -c 16 -C 100 -S 4000
  rocectl ucmatose -b 10.0.0.1 -c 16 -C 100 -S 4000   # the peer runs: ucmatose -s 10.0.0.1 -c 16 …
  rocectl ucmatose -c 16 --link mem                   # both ends, no privilege`,
		Args: arguments(0, 0),
	}
	ends := addEndFlags(c, cmatose.DefaultPort, "p")
	o := addMessageFlags(c)
	dev := addDeviceFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		o.Out = c.OutOrStdout()
		t := toolOf(cmatose.Server, *o, cmatose.Client, *o)
		t.validate, t.status = o.Validate, true
		return dev.run(c, ends.endpoint(), t)
	}
	return c
}

// addMessageFlags adds the flags of ucmatose, udaddy and mckey for how much they transfer.
func addMessageFlags(c *cobra.Command) *messages.Options {
	o := messages.Default()
	f := c.Flags()
	f.IntVarP(&o.Connections, "connections", "c", o.Connections, "connections")
	f.IntVarP(&o.Count, "count", "C", o.Count, "messages each way on each connection (0: connect only)")
	f.IntVarP(&o.Size, "size", "S", o.Size, "bytes of a message (0: connect only)")
	return &o
}
