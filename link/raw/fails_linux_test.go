package raw

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
	calls := scarce.Setsockopts([]int{unix.SOL_SOCKET, unix.SOL_PACKET},
		[]int{unix.SO_ATTACH_FILTER, unix.SO_BINDTODEVICE, unix.SO_SNDBUFFORCE, unix.PACKET_IGNORE_OUTGOING, unix.PACKET_AUXDATA, unix.PACKET_VNET_HDR,
			unix.PACKET_FANOUT, unix.PACKET_FANOUT_DATA})
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
