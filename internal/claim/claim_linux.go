package claim

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/hostnet"
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

	// Share: if the port is taken, Take returns a note instead of an error.
	Share bool

	// Super makes the kernel pass super-packets whole to the sockets, which drop them. Otherwise the kernel segments
	// them first, even for packet sockets.
	Super bool
}

// Take claims the port for both IP versions, in the network namespace of the calling
// thread. It binds sockets that receive nothing. The error wraps EADDRINUSE if another socket
// has the port; any other failure is a note, because the device works without the claim. A
// socket on an address of another interface holds the port of that address only; Take then
// claims the port at the addresses of this interface.
func Take(c Config) (*Claim, []string, error) {
	k := new(Claim)
	k.users.Store(1)
	var notes []string
	// Always IPv4 first: if two devices claim at once, the one that gets IPv4 gets both.
	for _, v := range []struct {
		name   string
		family int
	}{{"IPv4", unix.AF_INET}, {"IPv6", unix.AF_INET6}} {
		step, err := k.bind(c, v.family, netip.Addr{})
		if errors.Is(err, unix.EADDRINUSE) && k.bindEach(c, v.family) == nil {
			notes = append(notes, fmt.Sprintf("UDP port %d is ours on %s at the addresses that %s has now: another socket has it at an address of another interface",
				bth.UDPPort, v.name, c.Interface))
			continue
		}
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

// marker is an address that no device has. Every claim by addresses also binds it, so there is at most one such
// claim on an interface, even if the addresses of the interface have changed.
var marker = netip.AddrFrom4([4]byte{127, 0, 47, 91})

// bindEach binds a socket to each address of the interface of an IP version.
func (k *Claim) bindEach(c Config, family int) error {
	ifi, err := net.InterfaceByName(c.Interface)
	if err != nil {
		return err
	}
	addrs, err := hostnet.AddrsOf(ifi)
	if err != nil {
		return err
	}
	for _, a := range append([]netip.Addr{marker}, addrs...) {
		if a.Is4() != (family == unix.AF_INET) {
			continue
		}
		if _, err := k.bind(c, family, a); err != nil {
			return err
		}
	}
	return nil
}

// bind binds a socket of one IP version, to an address if it is valid. It returns the
// step that failed.
func (k *Claim) bind(c Config, family int, at netip.Addr) (step string, err error) {
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP)
	if err == unix.EAFNOSUPPORT {
		return "", nil // the kernel does not have this IP version, so no packets arrive
	}
	if err != nil {
		return "socket", err
	}
	k.fds = append(k.fds, fd)
	if err := sockfilter.Attach(fd, sockfilter.RejectAll); err != nil {
		return "attach filter", err
	}
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0)
	if c.Super {
		unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	}
	if err := unix.BindToDevice(fd, c.Interface); err != nil {
		return "SO_BINDTODEVICE", err
	}
	if family == unix.AF_INET {
		to := &unix.SockaddrInet4{Port: bth.UDPPort}
		if at.IsValid() {
			to.Addr = at.As4()
		}
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_FREEBIND, 1)
		return "bind", unix.Bind(fd, to)
	}
	to := &unix.SockaddrInet6{Port: bth.UDPPort}
	if at.IsValid() {
		to.Addr = at.As16()
	}
	unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
	// Permit addresses that wait for duplicate address detection.
	unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1)
	// Otherwise the kernel logs packets without checksum before it drops them.
	unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_NO_CHECK6_RX, 1)
	return "bind", unix.Bind(fd, to)
}

// Share adds a user of the claim. The user must call Release, too.
func (k *Claim) Share() *Claim {
	k.users.Add(1)
	return k
}

// Hand returns the descriptors of the claim to a new owner. The claim lasts until the caller and all holders of
// duplicates have closed them.
func (k *Claim) Hand() []int {
	fds := k.fds
	k.fds = nil
	return fds
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
