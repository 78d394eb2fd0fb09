package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link"
)

// sharedAddress returns a loopback address that no other running test process uses.
func sharedAddress(n byte) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 24 + n, byte(os.Getpid() >> 8), byte(os.Getpid())})
}

// A device gives its slots back when its last Port is closed, so a Port that silences its socket
// does not affect another process.
func TestCloseShared(t *testing.T) {
	for _, order := range [][3]int{{0, 1, 2}, {2, 1, 0}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			ports, err := OpenQueues(Config{Addr: sharedAddress(0), Shared: true}, 3)
			if err != nil {
				t.Fatal(err)
			}
			place := ports[0].(*Port).place
			for i, k := range order {
				if err := place.Claim(uint64(1 + i)); err != nil {
					t.Errorf("after %d of 3 are closed: %v", i, err)
				}
				if err := ports[k].Close(); err != nil {
					t.Error(err)
				}
			}
			if err := place.Claim(9); !errors.Is(err, errs.ErrClosed) {
				t.Errorf("after all are closed: %v", err)
			}
		})
	}
}

// Packets to groups arrive at the first queue only, also if another process had the slots before.
func TestGroupsShared(t *testing.T) {
	a, _ := netlab.Pair(t, netlab.Config{}) // a network namespace in which no other program uses the loopback
	for _, shared := range []bool{false, true} {
		for range 2 {
			var ports []link.Port
			var err error
			a.Do(t, func() { ports, err = OpenQueues(Config{Interface: "lo", Shared: shared}, 2) })
			if err != nil {
				t.Fatal(err)
			}
			for k, p := range ports {
				fd := p.(*Port).FD
				v4, err4 := unix.GetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_ALL)
				v6, err6 := unix.GetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL)
				if want := max(0, 1-k); err4 != nil || err6 != nil || v4 != want || v6 != want {
					t.Errorf("shared %v, queue %d: groups of IPv4 %d (%v), of IPv6 %d (%v), want %d", shared, k, v4, err4, v6, err6, want)
				}
			}
			for _, p := range ports {
				p.Close()
			}
		}
	}
}
