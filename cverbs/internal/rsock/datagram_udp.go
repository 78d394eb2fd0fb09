package rsock

import (
	"net/netip"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/cverbs/internal/abi"
)

// udpSocket is the UDP socket of a datagram rsocket.
type udpSocket struct {
	file *os.File
	raw  syscall.RawConn
}

// newUDPSocket takes the descriptor of a UDP socket, and closes it also if it fails.
func newUDPSocket(fd int) (*udpSocket, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "udp")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	return &udpSocket{file, raw}, nil
}

// receive waits for a datagram, or for what an ICMP packet said of an earlier one: the kernel reports that once, and
// only to a connected socket. open is false after close.
func (u *udpSocket) receive(b []byte) (n int, from netip.AddrPort, said error, open bool) {
	closed := u.raw.Read(func(fd uintptr) bool {
		for {
			var sa unix.Sockaddr
			n, sa, said = unix.Recvfrom(int(fd), b, 0)
			switch said {
			case unix.EINTR:
				continue
			case unix.EAGAIN:
				return false
			case nil:
				from = unmapped(addrPortOf(sa))
			}
			return true
		}
	})
	return n, from, said, closed == nil
}

// send sends a header and data. If the kernel has no room, the datagram is lost, as the network may lose it.
func (u *udpSocket) send(header, data []byte, to netip.AddrPort, v6 bool) error {
	var err error
	if closed := u.raw.Control(func(fd uintptr) {
		_, err = unix.SendmsgBuffers(int(fd), [][]byte{header, data}, nil, sockaddrOf(to, v6), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}); closed != nil {
		return syscall.EBADF
	}
	if err == unix.EAGAIN || err == unix.ENOBUFS {
		return nil
	}
	return err
}

// loopback4 and its counterpart of IPv6 are as good as no address: a program that binds to them means the host, as
// in librdmacm.
var loopback4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// localFor returns the address with which the socket sends to a peer, and its port. It binds the socket if it has no
// port yet.
func (u *udpSocket) localFor(to netip.AddrPort, v6 bool) (local netip.AddrPort, err error) {
	if closed := u.raw.Control(func(fd uintptr) { local, err = boundAddr(int(fd), v6) }); closed != nil {
		return local, syscall.EBADF
	}
	if err != nil || !local.Addr().IsUnspecified() && local.Addr() != loopback4 && local.Addr() != netip.IPv6Loopback() {
		return local, err
	}
	chosen, err := routed(to, v6)
	return netip.AddrPortFrom(chosen, local.Port()), err
}

// boundAddr returns the address of a socket, which it binds to any port if it has none.
func boundAddr(fd int, v6 bool) (netip.AddrPort, error) {
	for {
		sa, err := unix.Getsockname(fd)
		if err != nil {
			return netip.AddrPort{}, err
		}
		local := unmapped(addrPortOf(sa))
		if local.Port() != 0 {
			return local, nil
		}
		if err := unix.Bind(fd, sockaddrOf(netip.AddrPortFrom(local.Addr(), 0), v6)); err != nil {
			return netip.AddrPort{}, err
		}
	}
}

// routed returns the source address that the kernel's routes choose for a peer.
func routed(to netip.AddrPort, v6 bool) (netip.Addr, error) {
	family := unix.AF_INET
	if v6 {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return netip.Addr{}, err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err != nil {
		return netip.Addr{}, err
	}
	if err := unix.Connect(fd, sockaddrOf(to, v6)); err != nil {
		return netip.Addr{}, err
	}
	sa, err := unix.Getsockname(fd)
	return unmapped(addrPortOf(sa)).Addr(), err
}

// close ends receive.
func (u *udpSocket) close() { u.file.Close() }

// unmapped returns the IPv4 address of an IPv4 address in the form of IPv6.
func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

func addrPortOf(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(withScope(netip.AddrFrom16(sa.Addr), sa.ZoneId), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

// sockaddrOf returns the address for a socket of IPv4 or IPv6.
func sockaddrOf(a netip.AddrPort, v6 bool) unix.Sockaddr {
	if !v6 {
		if !a.Addr().Is4() {
			return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())} // the kernel refuses it
		}
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	if a.Addr().Is4() && a.Addr().IsUnspecified() {
		return &unix.SockaddrInet6{Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port()), ZoneId: scopeOf(a.Addr())}
}

// The zone of an address is the number of an interface: the scope ID of struct sockaddr_in6. Addresses that need no
// scope have no zone, so that a peer has one form of its address.
func withScope(a netip.Addr, scope uint32) netip.Addr {
	if scope == 0 || !a.IsLinkLocalUnicast() && !a.IsLinkLocalMulticast() {
		return a
	}
	return a.WithZone(strconv.FormatUint(uint64(scope), 10))
}

func scopeOf(a netip.Addr) uint32 {
	n, _ := strconv.ParseUint(a.Zone(), 10, 32)
	return uint32(n)
}

// plainAddr returns an address of the C side. Nil and an unknown family give an invalid one.
func plainAddr(a *abi.CMAddr) netip.AddrPort {
	addr := a.AddrPort()
	if !addr.IsValid() {
		return addr
	}
	return unmapped(netip.AddrPortFrom(withScope(addr.Addr(), a.ScopeID), addr.Port()))
}

// outsideAddr returns an address as a program sees it: an IPv6 socket has only IPv6 addresses.
func outsideAddr(a netip.AddrPort, v6 bool) abi.CMAddr {
	scope := scopeOf(a.Addr())
	if v6 {
		a = netip.AddrPortFrom(netip.AddrFrom16(a.Addr().As16()), a.Port())
	}
	c := abi.AddrOf(a)
	c.ScopeID = scope
	return c
}
