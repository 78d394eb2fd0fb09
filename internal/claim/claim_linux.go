package claim

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/sockfilter"
)

// Claim is a claim on the port. The ports of one device share it.
type Claim struct {
	fds   []int
	users atomic.Int32
}

// Config says what to claim.
type Config struct {
	Interface string

	// Share makes a port that is taken a note instead of an error.
	Share bool

	// Super keeps super-packets whole on the way to the sockets, which drop them. Without,
	// the kernel takes them apart first, also for packet sockets.
	Super bool
}

// Take claims the port for both IP versions, in the network namespace of the calling
// thread. It binds two sockets that receive nothing. The error wraps EADDRINUSE if
// somebody has the port; whatever else fails is a note, because the device works without.
func Take(c Config) (*Claim, []string, error) {
	k := new(Claim)
	k.users.Store(1)
	var notes []string
	// IPv4 first, always: of two that claim at once, the one that gets it gets both.
	for _, v := range []struct {
		name   string
		family int
	}{{"IPv4", unix.AF_INET}, {"IPv6", unix.AF_INET6}} {
		step, err := k.bind(c, v.family)
		if errors.Is(err, unix.EADDRINUSE) && !c.Share {
			k.Release()
			return nil, nil, fmt.Errorf("%s: %w", step, err)
		}
		if err != nil {
			notes = append(notes, fmt.Sprintf("UDP port %d is not ours on %s, the kernel may answer packets or another program see them: %s: %v",
				bth.UDPPort, v.name, step, err))
		}
	}
	return k, notes, nil
}

// bind binds the socket of one IP version. It returns the step that failed.
func (k *Claim) bind(c Config, family int) (step string, err error) {
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP)
	if err == unix.EAFNOSUPPORT {
		return "", nil // no packet arrives by a protocol that the kernel does not have
	}
	if err != nil {
		return "socket", err
	}
	k.fds = append(k.fds, fd)
	if err := sockfilter.Attach(fd, []bpf.Instruction{bpf.RetConstant{Val: 0}}); err != nil {
		return "attach filter", err
	}
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0)
	if c.Super {
		unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	}
	if err := unix.BindToDevice(fd, c.Interface); err != nil {
		return "SO_BINDTODEVICE", err
	}
	var any unix.Sockaddr = &unix.SockaddrInet4{Port: bth.UDPPort}
	if family == unix.AF_INET6 {
		any = &unix.SockaddrInet6{Port: bth.UDPPort}
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
		// Otherwise the kernel logs packets without checksum before it drops them.
		unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1)
	}
	return "bind", unix.Bind(fd, any)
}

// Share adds a user, who must call Release too.
func (k *Claim) Share() *Claim {
	k.users.Add(1)
	return k
}

// Release ends the claim when the last user has called it. A nil claim has none.
func (k *Claim) Release() {
	if k == nil || k.users.Add(-1) > 0 {
		return
	}
	for _, fd := range k.fds {
		unix.Close(fd)
	}
}
