package pingpong

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/oob"
	"github.com/goroce/roce/internal/tools/usage"
)

// gidChoice parses -g: an index, as in rdma-core's programs, or an address. A negative index stands for the first address of the
// peer's IP version.
func gidChoice(s string) (index int, addr netip.Addr, err error) {
	if index, err = strconv.Atoi(s); err == nil {
		return index, addr, nil
	}
	if addr, err = netip.ParseAddr(s); err != nil {
		return 0, addr, usage.Errorf("-g %s: want an index or an IP address", s)
	}
	return 0, addr.Unmap().WithZone(""), nil
}

// gidIndex returns the index of the chosen address in the device's GID table. peer is the address of
// the other side of the exchange.
func gidIndex(d *roce.Device, choice string, peer netip.Addr) (int, error) {
	index, addr, err := gidChoice(choice)
	if err != nil {
		return 0, err
	}
	if !addr.IsValid() {
		return oob.ChooseGID(d, index, peer)
	}
	if i := slices.Index(d.GIDs(), bth.GIDFrom(addr)); i >= 0 {
		return i, nil
	}
	return 0, fmt.Errorf("-g %v: not an address of the device: %w", addr, syscall.EADDRNOTAVAIL)
}
