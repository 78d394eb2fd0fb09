package main

import (
	"github.com/spf13/cobra"

	"github.com/goroce/roce/internal/machine"
)

const deviceHelp = `
The software NIC uses a network interface (--dev) and needs CAP_NET_RAW, with
--link xdp also CAP_NET_ADMIN and CAP_BPF. With --link udp it uses UDP sockets, also
on the loopback interface and on any system. With --link mem both ends run in this
process, on a simulated wire. --link udp and --link mem need no privilege. Faults
(--loss and so on) apply to the packets that this end sends and receives. --capture
records the packets on the wire.`

// deviceFlags are the flags of every command that sends packets: they describe the NIC.
type deviceFlags struct{ machine.Flags }

// addDeviceFlags adds the flags to a command. The command adds its own flags before.
func addDeviceFlags(c *cobra.Command) *deviceFlags {
	f := new(deviceFlags)
	f.Register(c.Flags())
	return f
}
