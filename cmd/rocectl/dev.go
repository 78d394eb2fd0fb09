package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/machine"
	"github.com/goroce/roce/internal/tools/devinfo"
	"github.com/goroce/roce/internal/tools/usage"
)

func devCommand() *cobra.Command {
	var (
		asJSON, verbose bool
		driver          driverFlags
	)
	c := &cobra.Command{
		Use:     "dev [IFACE...]",
		Aliases: []string{"info", "devinfo"},
		Short:   "Describe the NIC on a network interface, as ibv_devinfo does",
		Long: `Describe the software NIC on a network interface, as ibv_devinfo does: its GIDs, its
MTUs, and its driver. Without IFACE it describes the NIC of each Ethernet interface that
is up. If a NIC cannot be opened, it prints the reason, too.`,
		Example: `  rocectl dev
  rocectl dev -v eth0
  rocectl dev --link udp lo
  rocectl dev --json | jq '.gids'`,
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := driver.config()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				if args, err = upInterfaces(); err != nil {
					return err
				}
			}
			out := c.OutOrStdout()
			for n, name := range args {
				if err := machine.Exists(name); err != nil {
					return err
				}
				info, err := devinfo.OfInterface(name, cfg)
				switch {
				case err != nil:
				case asJSON:
					err = json.NewEncoder(out).Encode(info)
				default:
					if n > 0 {
						fmt.Fprintln(out)
					}
					err = info.WriteText(out, verbose)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per NIC")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "also print the limits of its objects")
	driver.add(c)
	c.AddCommand(devWatchCommand())
	return c
}

// driverFlags are the flags of a command that opens a NIC on an interface.
type driverFlags struct{ link, zeroCopy string }

func (f *driverFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.link, "link", roce.DefaultDriver, "driver of the NIC: "+strings.Join(roce.InterfaceDrivers(), ", "))
	machine.AddZeroCopy(c.Flags(), &f.zeroCopy)
}

// config returns the configuration of the NIC, or an error that names an invalid flag.
func (f *driverFlags) config() (c roce.InterfaceConfig, err error) {
	c.Driver = f.link
	if err = usage.OneOf("--link", f.link, roce.InterfaceDrivers()...); err == nil {
		c.XDP.ZeroCopy, err = machine.ParseZeroCopy(f.link, f.zeroCopy)
	}
	return c, err
}

func devWatchCommand() *cobra.Command {
	var driver driverFlags
	c := &cobra.Command{
		Use:   "watch IFACE",
		Short: "Print the events of a NIC on a network interface, as ibv_asyncwatch does",
		Long: `Print the asynchronous events of a software NIC on a network interface, as
ibv_asyncwatch does: the link goes down or comes up, addresses are added or removed. It
ends when it is interrupted or the interface is removed.`,
		Example: `  rocectl dev watch eth0`,
		Args:    arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			cfg, err := driver.config()
			if err := cmp.Or(err, machine.Exists(args[0])); err != nil {
				return err
			}
			d, err := roce.OpenInterface(args[0], cfg)
			if err != nil {
				return err
			}
			defer d.Close()
			return devinfo.Watch(c.Context(), c.OutOrStdout(), args[0], d)
		},
	}
	driver.add(c)
	return c
}

// upInterfaces returns the Ethernet interfaces that are up, which a NIC can use.
func upInterfaces() ([]string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	var names []string
	for _, i := range all {
		if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagLoopback == 0 && len(i.HardwareAddr) == 6 {
			names = append(names, i.Name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no Ethernet interface is up: name an interface, or try --link udp lo")
	}
	return names, nil
}
