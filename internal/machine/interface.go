package machine

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/hostnet"
	"github.com/goroce/roce/internal/tools/usage"
)

// Exists returns an error that lists the network interfaces of this host unless name is one.
func Exists(name string) error {
	all := InterfaceNames()
	if len(all) == 0 || slices.Contains(all, name) {
		return nil
	}
	return fmt.Errorf("%w: %s: choose one of %s", roce.ErrNoDevice, name, strings.Join(all, ", "))
}

// InterfaceNames returns the network interfaces of this host, none if they are unknown.
func InterfaceNames() (names []string) {
	all, _ := net.Interfaces()
	for _, i := range all {
		names = append(names, i.Name)
	}
	return names
}

// InterfaceTo returns the network interface that leads to far, and the source address for packets to far. If name is
// empty, it takes the interface that has the address near, or if near is invalid, the interface of the route to far.
func InterfaceTo(name string, near, far netip.Addr) (ifname string, own netip.Addr, err error) {
	if name == "" {
		if name, err = findInterface(near, far); err != nil {
			return "", own, err
		}
	} else if err := Exists(name); err != nil {
		return "", own, err
	}
	addrs, err := addrsOf(name)
	if err != nil {
		return "", own, err
	}
	if own = near; !own.IsValid() {
		own = SourceOf(far)
	}
	if !slices.Contains(addrs, own) {
		return "", own, fmt.Errorf("%s has no address that leads to %v: it has %v", name, far, addrs)
	}
	return name, own, nil
}

// findInterface finds the network interface that has the address near, or if near is not valid
// or unspecified, the one that leads to far. Without both it is the only one of the host.
func findInterface(near, far netip.Addr) (string, error) {
	if !near.IsValid() || near.IsUnspecified() {
		near = netip.Addr{}
		if far.IsValid() {
			near = SourceOf(far)
		}
	}
	all, err := net.Interfaces()
	if err != nil {
		return "", fmt.Errorf("list network interfaces: %w", err)
	}
	var names []string
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, _ := hostnet.AddrsOf(&i)
		if near.IsValid() && !slices.Contains(addrs, near.Unmap().WithZone("")) {
			continue
		}
		if len(addrs) > 0 {
			names = append(names, i.Name)
		}
	}
	switch {
	case len(names) == 1:
		return names[0], nil
	case len(names) > 1:
		return "", usage.Errorf("which interface? Give --dev %s", strings.Join(names, " or --dev "))
	case far.IsValid():
		return "", fmt.Errorf("no network interface leads to %v (see --dev; on the loopback only --link udp works)", far)
	case near.IsValid():
		return "", fmt.Errorf("no network interface has the address %v: choose one of this host (ip addr)", near)
	}
	return "", fmt.Errorf("no network interface is up and has an address (try --link mem)")
}

// socketAddr returns the only address for UDP sockets: on the loopback, and on systems other
// than Linux. It is not valid if the sockets follow the addresses of an interface.
func (f *Flags) socketAddr(near, far netip.Addr) netip.Addr {
	if f.Link != linkUDP || f.Dev != "" {
		return netip.Addr{}
	}
	a := near
	if (!a.IsValid() || a.IsUnspecified()) && far.IsValid() {
		a = SourceOf(far)
		if a == far && far.IsLoopback() && far.Is4() {
			a = far.Next() // the server has the address far
		}
	}
	if a.IsLoopback() || runtime.GOOS != "linux" && !a.IsUnspecified() {
		return a
	}
	return netip.Addr{}
}

// SourceOf asks the kernel for the source address of packets to dst. It sends nothing. The address is invalid if there
// is no route.
func SourceOf(dst netip.Addr) netip.Addr {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, 9)))
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}

// usable returns the interfaces that are up and have an address that a driver can use. It returns the loopback only if
// there is no other: programs expect no device there, and if a device has the address 127.0.0.1, libfabric uses no
// other.
func usable(driver string) ([]string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	var names, loopbacks []string
	for _, i := range all {
		loopback := i.Flags&net.FlagLoopback != 0
		if i.Flags&net.FlagUp == 0 || driver != linkUDP && (loopback || len(i.HardwareAddr) != 6) {
			continue
		}
		if addrs, err := addrsOf(i.Name); err != nil || len(addrs) == 0 {
			continue // it may have been removed meanwhile
		}
		if loopback {
			loopbacks = append(loopbacks, i.Name)
		} else {
			names = append(names, i.Name)
		}
	}
	if len(names) == 0 {
		return loopbacks, nil
	}
	return names, nil
}

// addrsOf returns the addresses of a device on an interface, in the order of its GID table.
func addrsOf(name string) ([]netip.Addr, error) {
	host, err := hostnet.Open(name)
	if err == nil {
		defer host.Close()
		return host.Addrs()
	}
	if !errors.Is(err, hostnet.ErrUnsupported) {
		return nil, err
	}
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	addrs, err := hostnet.AddrsOf(ifi)
	return slices.DeleteFunc(addrs, netip.Addr.IsMulticast), err
}

// interfaceOf returns the interface that has an address. The loopback interface has all addresses of its
// network.
func interfaceOf(a netip.Addr) (string, bool) {
	all, _ := net.Interfaces()
	for _, i := range all {
		addrs, _ := hostnet.AddrsOf(&i)
		if slices.Contains(addrs, a.Unmap().WithZone("")) || a.IsLoopback() && i.Flags&net.FlagLoopback != 0 {
			return i.Name, true
		}
	}
	return "", false
}
