package roce

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/raw"
	"github.com/goroce/roce/link/udp"
	"github.com/goroce/roce/xdp"
)

// opener opens the ports of a device on an interface with some addresses.
type opener func(name string, addrs []netip.Addr, c *InterfaceConfig) ([]link.Port, error)

// drivers are the values of InterfaceConfig.Driver.
var drivers = map[string]opener{
	"raw": func(name string, _ []netip.Addr, c *InterfaceConfig) ([]link.Port, error) {
		r := c.Raw
		r.Interface, r.VLAN = name, c.VLAN
		return raw.OpenQueues(r, c.queues())
	},
	udpDriver: func(name string, _ []netip.Addr, c *InterfaceConfig) ([]link.Port, error) {
		return udp.OpenQueues(udp.Config{Interface: name}, c.queues())
	},
	"xdp": func(name string, addrs []netip.Addr, c *InterfaceConfig) ([]link.Port, error) {
		x := c.XDP
		x.Interface, x.Addrs, x.VLAN = name, addrs, c.VLAN
		return xdp.OpenQueues(x, c.queues())
	},
}

// udpDriver is the one that needs no interface: see [OpenAddr].
const udpDriver = "udp"

// DefaultDriver is what an InterfaceConfig without a Driver means.
const DefaultDriver = "raw"

// InterfaceDrivers returns what InterfaceConfig.Driver may be, in order.
func InterfaceDrivers() []string { return slices.Sorted(maps.Keys(drivers)) }

func (c *InterfaceConfig) queues() int { return max(1, c.Queues) }

// openPorts opens the ports of the driver that was chosen, each with what is to be
// put around it.
func (c *InterfaceConfig) openPorts(name string, addrs []netip.Addr) ([]link.Port, error) {
	driver := c.Driver
	if driver == "" {
		driver = DefaultDriver
	}
	open, ok := drivers[driver]
	if !ok {
		return nil, fail("open", syscall.EINVAL, "no driver %q, there are %s", driver, strings.Join(InterfaceDrivers(), ", "))
	}
	ports, err := open(name, addrs, c)
	if err != nil {
		return nil, err
	}
	return c.wrap(ports)
}

// wrap puts around each port what is wanted. If that fails it closes them.
func (c *InterfaceConfig) wrap(ports []link.Port) ([]link.Port, error) {
	if c.Wrap == nil {
		return ports, nil
	}
	for i, p := range ports {
		wrapped, err := c.Wrap(p)
		if err != nil {
			for _, p := range ports {
				p.Close()
			}
			return nil, err
		}
		ports[i] = wrapped
	}
	return ports, nil
}
