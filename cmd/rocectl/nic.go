package main

import (
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/goroce/roce/internal/tools/nics"
)

func nicCommand() *cobra.Command {
	var asJSON, rate bool
	c := &cobra.Command{
		Use:   "nic",
		Short: "List the processes that share an address, and what they do",
		Long: `List the software NICs of this network namespace that several processes can share
(drivers udp and raw, on Linux): for each interface or address the processes on it,
their places, queue pairs, connections, packets, and the services that they listen
for. A service of rdma_cm is a port: "TCP 7471". One of the processes is the keeper,
which hands out the places and answers this command.

It needs no privilege. Of processes of another user it shows the places, not what the
processes do. A device that was opened for itself (Exclusive), with --link xdp or with
--link mem is not listed.`,
		Example: `  rocectl nic
  rocectl nic --rate
  rocectl nic --json | jq '.processes[].pid'
  sudo ip netns exec blue rocectl nic`,
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			var interval time.Duration
			if rate {
				interval = time.Second
			}
			list, err := nics.List(c.Context(), interval)
			if err != nil {
				return err
			}
			if !asJSON {
				return nics.WriteText(c.OutOrStdout(), list)
			}
			for _, a := range list {
				if err := json.NewEncoder(c.OutOrStdout()).Encode(a); err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per interface or address")
	c.Flags().BoolVar(&rate, "rate", false, "watch for a second, and print packets per second, too")
	return c
}
