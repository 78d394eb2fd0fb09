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
		Long: `List the software NICs of this network namespace, on Linux. For each interface or
address it prints the processes, their queue pairs, connections, packets, and the services
on which they listen. A service of rdma_cm is a port: "TCP 7471". Several processes can
share an interface or address (drivers udp and raw). Then each of them has places, and one
of them is the keeper, which assigns the places and answers this command. A device with
--link xdp, or one that was opened with Exclusive, answers itself.

It needs no privilege. For processes of other users it prints no queue pairs, connections,
packets and services. Devices with --link mem are not listed.`,
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
	c.Flags().BoolVar(&rate, "rate", false, "measure for a second, and also print packets per second")
	c.AddCommand(nicHoldCommand())
	return c
}

func nicHoldCommand() *cobra.Command {
	var driver string
	c := &cobra.Command{
		Use:   "hold IFACE|ADDRESS",
		Short: "Share an address, and notify the peers of processes that are killed",
		Long: `Share an interface, or with --link udp an address of this host, until the command is
interrupted or the interface is removed. When a process on a shared address is killed, the
other processes tell its peers that their connections have ended. This command does so
even if no other process uses the address. It prints the asynchronous events of the NIC.`,
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

// sharedDrivers returns the drivers with which several processes can share an interface.
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
