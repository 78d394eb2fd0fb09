package ethtool

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/netlab"
)

// TestVeth reads the data of a veth, and of an interface that does not exist.
func TestVeth(t *testing.T) {
	a, _ := netlab.Pair(t, netlab.Config{Queues: 3})
	a.Do(t, func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		c := Queues(fd, a.Interface)
		if d := Driver(fd, a.Interface); d != "veth" || c != (Channels{RX: 3, TX: 3, MostRX: 3}) || Speed(fd, a.Interface) != 10000 || !Carrier(fd, a.Interface) {
			t.Errorf("driver %q, queues %+v, %d Mb/s, carrier %v", d, c, Speed(fd, a.Interface), Carrier(fd, a.Interface))
		}
		c = Queues(fd, "none")
		if Driver(fd, "none") != "" || c != (Channels{}) || Speed(fd, "none") != 0 {
			t.Error("an interface that does not exist has data")
		}
	})
}
