package xdp

import (
	"fmt"
	"io"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/internal/scarce"
	"github.com/goroce/roce/link"
)

// TestOpenFails: whichever system call of Open fails, nothing stays open.
func TestOpenFails(t *testing.T) {
	a, _ := netlab.Pair(t, netlab.Config{Queues: 2})
	debug.SetGCPercent(-1) // no finalizer closes what is left
	defer debug.SetGCPercent(100)
	for n := 1; n <= 2; n++ {
		open := func() (io.Closer, error) {
			ports, err := OpenQueues(Config{Interface: a.Interface, Addrs: addrs(a)}, n)
			return all(ports), err
		}
		a.Do(t, func() { scarce.Descriptors(t, open) })
		var calls []scarce.Call
		add := func(name string, number uintptr, arg1, arg2 int) {
			calls = append(calls, scarce.Call{Name: name, Number: number, Arg1: arg1, Arg2: arg2, Errno: unix.EPERM})
		}
		add("bind", unix.SYS_BIND, -1, -1)
		add("ioctl", unix.SYS_IOCTL, -1, -1)
		add("epoll_create1", unix.SYS_EPOLL_CREATE1, -1, -1)
		add("epoll_ctl", unix.SYS_EPOLL_CTL, -1, -1)
		add("eventfd2", unix.SYS_EVENTFD2, -1, -1)
		add("getsockopt", unix.SYS_GETSOCKOPT, -1, -1)
		for _, level := range []int{unix.SOL_XDP} {
			for _, option := range []int{unix.XDP_UMEM_REG, unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_RX_RING, unix.XDP_TX_RING} {
				add(fmt.Sprintf("setsockopt %d %d", level, option), unix.SYS_SETSOCKOPT, level, option)
			}
		}
		for _, cmd := range []int{unix.BPF_MAP_CREATE, unix.BPF_PROG_LOAD, unix.BPF_LINK_CREATE, unix.BPF_MAP_UPDATE_ELEM} {
			calls = append(calls, scarce.Call{Name: fmt.Sprintf("bpf %d", cmd), Number: unix.SYS_BPF, Arg0: cmd + 1, Arg1: -1, Arg2: -1, Errno: unix.EPERM})
		}
		scarce.Calls(t, calls, func(f func()) { a.Do(t, f) }, open)
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
