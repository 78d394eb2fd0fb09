package udp

import (
	"net"
	"net/netip"
	"slices"

	"github.com/goroce/roce/internal/hostnet"
)

// owner finds the interface that has an address; nil if none has.
func owner(addr netip.Addr) *net.Interface {
	all, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for _, ifi := range all {
		if zone := addr.Zone(); zone != "" && zone != ifi.Name {
			continue
		}
		if addr.IsLoopback() && ifi.Flags&net.FlagLoopback != 0 {
			return &ifi // the loopback interface has all addresses of 127.0.0.0/8
		}
		if addrs, _ := hostnet.AddrsOf(&ifi); slices.Contains(addrs, addr.WithZone("")) {
			return &ifi
		}
	}
	return nil
}
