package roce

import (
	"context"
	"net/netip"
	"syscall"
	"time"

	"github.com/goroce/roce/internal/hostnet"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/raw"
)

// InterfaceConfig says how [OpenInterface] opens a device. The zero value is a
// background device that takes over nothing but UDP port 4791.
type InterfaceConfig struct {
	Polled bool
	Spin   time.Duration

	Congestion *DCQCN // as in [Config]; nil: off

	// Wrap, if set, puts something around the port: link/fault, link/pcap.
	Wrap func(link.Port) (link.Port, error)
}

// OpenInterface makes a device of an Ethernet interface of this host, with its
// addresses, by a raw socket (package link/raw). It needs Linux and
// CAP_NET_RAW, and nothing else that answers on UDP port 4791, such as rxe on
// the same interface.
func OpenInterface(name string, c *InterfaceConfig) (*Device, error) {
	if c == nil {
		c = &InterfaceConfig{}
	}
	host, err := hostnet.Open(name)
	if err != nil {
		return nil, err
	}
	d, err := openInterface(name, host, c)
	if err != nil {
		host.Close()
	}
	return d, err
}

func openInterface(name string, host *hostnet.Interface, c *InterfaceConfig) (*Device, error) {
	addrs, err := host.Addrs()
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, fail("open", syscall.EADDRNOTAVAIL, "interface %s has no IP address", name)
	}
	var port link.Port
	if port, err = raw.Open(raw.Config{Interface: name, NoGSO: true}); err != nil {
		return nil, err
	}
	if c.Wrap != nil {
		wrapped, err := c.Wrap(port)
		if err != nil {
			port.Close()
			return nil, err
		}
		port = wrapped
	}
	d, err := Open(Config{Ports: []link.Port{port}, Addrs: addrs, Resolver: hostResolver{host}, Membership: host,
		Polled: c.Polled, Spin: c.Spin, Congestion: c.Congestion})
	if err != nil {
		return nil, err
	}
	if err := d.follow(host); err != nil {
		d.Close() // and the host's side
		return nil, err
	}
	return d, nil
}

// hostResolver asks the kernel for neighbours. Closing the device closes it.
type hostResolver struct{ host *hostnet.Interface }

func (h hostResolver) Resolve(ctx context.Context, src, dst netip.Addr) (Neighbour, error) {
	n, err := h.host.Resolve(ctx, src, dst)
	return Neighbour{MAC: n.MAC, HopLimit: n.HopLimit}, err
}

// Close is called by Device.Close.
func (h hostResolver) Close() error { return h.host.Close() }
