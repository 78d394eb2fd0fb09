package udp

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
	for k := range 4 {
		n, shared := 1+k%2, k >= 2
		open := func() (io.Closer, error) {
			ports, err := OpenQueues(Config{Interface: a.Interface, Shared: shared}, n)
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
		add("sendmsg", unix.SYS_SENDMSG, -1, -1)
		add("recvmsg", unix.SYS_RECVMSG, -1, -1)
		add("memfd_create", unix.SYS_MEMFD_CREATE, -1, -1)
		for _, level := range []int{unix.SOL_SOCKET, unix.IPPROTO_IP, unix.IPPROTO_IPV6, unix.IPPROTO_UDP} {
			for _, option := range []int{unix.SO_REUSEPORT, unix.SO_BINDTODEVICE, unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE, unix.SO_ATTACH_REUSEPORT_CBPF, unix.IP_MTU_DISCOVER, unix.IPV6_V6ONLY, unix.IPV6_MTU_DISCOVER, unix.IPV6_RECVPKTINFO} {
				add(fmt.Sprintf("setsockopt %d %d", level, option), unix.SYS_SETSOCKOPT, level, option)
			}
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
