package udp

import (
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/internal/share"
)

// A link-local address has one key, with and without its zone, and also after its interface was
// renamed.
func TestShareLinkLocal(t *testing.T) {
	side, _ := netlab.Pair(t, netlab.Config{})
	side.Do(t, func() {
		open := func(a netip.Addr) {
			ports, err := OpenQueues(Config{Addr: a, Shared: true}, 1)
			if err != nil {
				t.Errorf("%v: %v", a, err)
				return
			}
			t.Cleanup(func() { ports[0].Close() })
		}
		open(side.LinkLocal.WithZone(side.Interface))
		open(side.LinkLocal)
		const other = "renamed"
		if err := side.Netlink().LinkSetName(side.Link(), other); err != nil {
			t.Logf("the interface cannot be renamed while it is up: %v", err) // before Linux 6.2
			return
		}
		open(side.LinkLocal.WithZone(other))
	})
}

// If the kernel refuses a long program, the device attaches a shorter one. Requests for the
// services that are not in it go to the keeper, and no listener is refused.
func TestSteerLittleRoom(t *testing.T) {
	side, _ := netlab.Pair(t, netlab.Config{})
	side.Sysctl(t, "net/core/optmem_max", "20480") // before Linux 6.7
	side.Do(t, func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
			t.Error(err)
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: 4791, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			t.Error(err)
		}
		services := slices.Repeat([]share.Service{{ID: 0xF0000000_F0000000, Slot: 3}}, share.MaxRules+1)
		if err := new(medium).Steer([]int{fd, fd}, services, 5); err != nil {
			t.Error(err)
		}
	})
}
