package main

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/machine"
	"github.com/goroce/roce/internal/tools/devinfo"
	"github.com/goroce/roce/internal/tools/nics"
	"github.com/goroce/roce/internal/tools/usage"
)

func nicCommand() *cobra.Command {
	var asJSON, rate bool
	c := &cobra.Command{
		Use:   "nic",
		Short: "List the processes on each interface and address, and what they do",
		Long: `List the software NICs of this network namespace, on Linux: for each interface or
address the processes on it, their queue pairs, connections, packets, and the services
that they listen for. A service of rdma_cm is a port: "TCP 7471". Several processes can
share an interface or address (drivers udp and raw): then each has places, and one of
them is the keeper, which hands out the places and answers this command. A device with
--link xdp, or one that was opened for itself (Exclusive), answers by itself.

It needs no privilege. Of processes of another user it shows who they are, not what
they do. Devices with --link mem are not listed.`,
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
	c.AddCommand(nicHoldCommand())
	return c
}

func nicHoldCommand() *cobra.Command {
	var driver string
	c := &cobra.Command{
		Use:   "hold IFACE|ADDRESS",
		Short: "Stay on an address, so that the peers of its last process are told when that is killed",
		Long: `Take a place on an interface, or with --link udp on an address of this host, and
stay there, until it is interrupted or the interface is removed. When a process on a
shared address is killed, the others tell its peers that their connections are over.
This command is one that is always there, as a kernel is, also after the last program.
It prints the asynchronous events of the NIC.`,
		Example: `  rocectl nic hold eth0
  rocectl nic hold --link udp 10.0.0.1`,
		Args: arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := usage.OneOf("--link", driver, sharedDrivers()...); err != nil {
				return err
			}
			d, err := openShared(args[0], driver)
			if err != nil {
				return err
			}
			defer d.Close()
			return devinfo.Watch(c.Context(), c.OutOrStdout(), args[0], d)
		},
	}
	c.Flags().StringVar(&driver, "link", roce.DefaultDriver, "driver of the NIC: "+strings.Join(sharedDrivers(), ", "))
	return c
}

// sharedDrivers are those whose devices share an interface.
func sharedDrivers() []string {
	return slices.DeleteFunc(roce.InterfaceDrivers(), func(name string) bool { return name == "xdp" })
}

// openShared opens an interface, or an address of this host.
func openShared(name, driver string) (*roce.Device, error) {
	addr, err := netip.ParseAddr(name)
	if err != nil {
		if err := machine.Exists(name); err != nil {
			return nil, err
		}
		return roce.OpenInterface(name, roce.InterfaceConfig{Driver: driver})
	}
	if driver != "udp" {
		return nil, usage.Errorf("%s is an address: give --link udp, or the interface that has it", name)
	}
	return roce.OpenAddr(addr, roce.InterfaceConfig{})
}
