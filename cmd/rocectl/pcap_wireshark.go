package main

import (
	"github.com/spf13/cobra"

	"github.com/goroce/roce/internal/tools/wireshark"
)

func pcapWiresharkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "wireshark",
		Short: "Print a dissector for Wireshark and tshark",
		Long: `Print a Lua plugin for Wireshark and tshark, 4.0 or later. It dissects RoCEv2 packets by
the tables of this program: also those that Wireshark has no name for (FLUSH, ATOMIC_WRITE,
CNP, and the packets of this stack's own: masked atomics, dynamic connections). It says
whether the ICRC is right. Wireshark's own dissector still shows management datagrams and
the protocols above RDMA.

The fields are "roce.psn", "roce.dest_qpn" and so on, with the names that "rocectl pcap decode
--json" has, and "roce.icrc.status": 0 wrong, 1 right, 2 not verified, 3 as rxe has it for FLUSH.`,
		Example: `  rocectl pcap wireshark > ~/.local/lib/wireshark/plugins/roce.lua
  tshark -X lua_script:roce.lua -r file.pcap -Y 'roce.icrc.status == 0'
  tshark -X lua_script:roce.lua -r file.pcap -T fields -e roce.name -e roce.psn`,
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return wireshark.WritePlugin(c.OutOrStdout(), thisVersion().Version)
		},
	}
}
