package udp

import (
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/internal/scarce"
	"github.com/goroce/roce/link"
)

// TestOpenFails: if any system call of Open fails, Open leaves no file open.
func TestOpenFails(t *testing.T) {
	a, _ := netlab.Pair(t, netlab.Config{Queues: 2})
	calls := scarce.Setsockopts([]int{unix.SOL_SOCKET, unix.IPPROTO_IP, unix.IPPROTO_IPV6, unix.IPPROTO_UDP},
		[]int{unix.SO_REUSEPORT, unix.SO_BINDTODEVICE, unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE, unix.SO_ATTACH_REUSEPORT_CBPF, unix.IP_MTU_DISCOVER,
			unix.IPV6_V6ONLY, unix.IPV6_MTU_DISCOVER, unix.IPV6_RECVPKTINFO})
	for k := range 4 {
		n, shared := 1+k%2, k >= 2
		scarce.Opens(t, calls, func(f func()) { a.Do(t, f) }, func() (io.Closer, error) {
			ports, err := OpenQueues(Config{Interface: a.Interface, Shared: shared}, n)
			return all(ports), err
		})
	}
}

// all closes Ports together.
type all []link.Port

func (a all) Close() error {
	for _, p := range a {
		p.Close()
	}
	return nil
}
