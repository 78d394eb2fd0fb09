package main

import (
	"github.com/spf13/cobra"

	"github.com/goroce/roce/internal/tools/wireshark"
)

func pcapWiresharkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "wireshark",
		Short: "Print a dissector for Wireshark and tshark",
		Long: `Print a Lua plugin for Wireshark and tshark, 4.0 or later. It decodes RoCEv2 packets with
the opcode tables of this program. They have opcodes that Wireshark does not know: FLUSH,
ATOMIC_WRITE, CNP, and this stack's own masked atomics and dynamic connections. It verifies
the ICRC. Wireshark's own dissector still shows management datagrams and the protocols above
RDMA.

The fields are "roce.psn", "roce.dest_qpn" and so on, with the names of "rocectl pcap decode
--json", and "roce.icrc.status": 0 wrong, 1 right, 2 not verified, 3 as rxe computes it for
FLUSH.`,
		Example: `  rocectl pcap wireshark > ~/.local/lib/wireshark/plugins/roce.lua
  tshark -X lua_script:roce.lua -r file.pcap -Y 'roce.icrc.status == 0'
  tshark -X lua_script:roce.lua -r file.pcap -T fields -e roce.name -e roce.psn`,
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return wireshark.WritePlugin(c.OutOrStdout(), thisVersion().Version)
		},
	}
}
