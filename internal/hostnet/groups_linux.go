package hostnet

import (
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// membership is a joined group: the number of its joins, and the socket that joined it.
type membership struct {
	users int
	fd    int
}

// Join makes the host a member of a multicast group on the interface: the kernel reports the membership to the network
// (IGMP, MLD) and makes the network card's filter accept the group's frames. A program may join a group several
// times. leave undoes one Join, once.
//
// The kernel limits the memberships of a socket (net.ipv4.igmp_max_memberships, 20, and net.core.optmem_max). If a
// socket is full, Join opens another one. That only fails, with ENOBUFS, if the calling thread has left the network
// namespace of the Interface.
func (i *Interface) Join(group netip.Addr) (leave func() error, err error) {
	const op = "join on"
	group = group.Unmap()
	if !group.IsMulticast() {
		return nil, i.fail(op, group.String()+" is no multicast group", syscall.EINVAL)
	}
	if err := i.lock(op); err != nil {
		return nil, err
	}
	defer i.mu.Unlock()
	m := i.groups[group]
	if m == nil {
		fd, err := i.enter(group)
		if err != nil {
			detail := group.String()
			if err == syscall.ENOBUFS {
				detail += " (net.ipv4.igmp_max_memberships limits how many)"
			}
			return nil, i.fail(op, detail, err)
		}
		m = &membership{fd: fd}
		i.groups[group] = m
	}
	m.users++
	left := false
	return func() error {
		if err := i.lock("leave on"); err != nil {
			return err
		}
		defer i.mu.Unlock()
		if left {
			return nil
		}
		left = true
		if m.users--; m.users > 0 {
			return nil
		}
		delete(i.groups, group)
		if err := i.member(m.fd, group, false); err != nil && !gone(err) {
			return i.fail("leave group", group.String(), err)
		}
		return nil
	}, nil
}

// enter joins a group with the newest socket that has room, or a new one, and returns the socket.
func (i *Interface) enter(group netip.Addr) (int, error) {
	first, err := i.socket(group)
	if err != nil {
		return -1, err
	}
	v := version(group)
	sockets := append([]int{first}, i.more[v]...)
	for _, fd := range slices.Backward(sockets) {
		if err = i.member(fd, group, true); !full(err) {
			return fd, err
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if ns := here(); ns != i.home || ns == (namespace{}) {
		return -1, err
	}
	fd, oerr := i.open(v)
	if oerr != nil {
		return -1, oerr
	}
	if err := i.member(fd, group, true); err != nil {
		unix.Close(fd)
		return -1, err
	}
	i.more[v] = append(i.more[v], fd)
	return fd, nil
}

// full reports whether an error says that a socket has no room for another
// membership.
func full(err error) bool { return errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM) }

// gone reports whether an error of leaving a group says that the kernel has already left it, because the interface was
// removed.
func gone(err error) bool {
	return errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.EADDRNOTAVAIL)
}

// member joins or leaves a group with a UDP socket of its IP version. The socket receives nothing, because no host
// knows its port.
func (i *Interface) member(fd int, group netip.Addr, enter bool) error {
	if group.Is4() {
		opt := unix.IP_DROP_MEMBERSHIP
		if enter {
			opt = unix.IP_ADD_MEMBERSHIP
		}
		return unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, opt, &unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(i.index)})
	}
	opt := unix.IPV6_LEAVE_GROUP
	if enter {
		opt = unix.IPV6_JOIN_GROUP
	}
	return unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, opt, &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(i.index)})
}
