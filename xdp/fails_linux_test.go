package xdp

import (
	"fmt"
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
	calls := scarce.Setsockopts([]int{unix.SOL_XDP},
		[]int{unix.XDP_UMEM_REG, unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_RX_RING, unix.XDP_TX_RING})
	for _, cmd := range []int{unix.BPF_MAP_CREATE, unix.BPF_PROG_LOAD, unix.BPF_LINK_CREATE, unix.BPF_MAP_UPDATE_ELEM} {
		calls = append(calls, scarce.Call{Name: fmt.Sprintf("bpf %d", cmd), Number: unix.SYS_BPF, Arg0: cmd + 1, Arg1: -1, Arg2: -1, Errno: unix.EPERM})
	}
	modes := []ZeroCopy{ZeroCopyAuto}
	if _, _, ok := netlab.Cards(); ok {
		modes = append(modes, ZeroCopyOn) // with Auto some drivers need a second attempt
	}
	for _, zero := range modes {
		for n := 1; n <= 2; n++ {
			scarce.Opens(t, calls, func(f func()) { a.Do(t, f) }, func() (io.Closer, error) {
				ports, err := OpenQueues(Config{Interface: a.Interface, Addrs: addrs(a), ZeroCopy: zero}, n)
				return all(ports), err
			})
		}
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
