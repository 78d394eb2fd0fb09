package ethtool

import "golang.org/x/sys/unix"

// Name returns the present name of an interface, which may be renamed at any time. fd
// is any socket of the interface's network namespace. It is ENODEV when there is no
// such interface there any more.
func Name(fd, index int) (string, unix.Errno) {
	// struct ifreq holds the index where it would hold an address.
	ifr, _ := unix.NewIfreq("")
	ifr.SetUint32(uint32(index))
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFNAME, ifr); err != nil {
		return "", unix.ENODEV
	}
	return ifr.Name(), 0
}

// State asks whether an interface is up and has a carrier: 0, or ENETDOWN, or ENODEV
// when it was removed or is in another namespace.
func State(fd, index int) (errno unix.Errno) {
	errno = Ask(fd, index, func(name string) unix.Errno {
		ifr, err := unix.NewIfreq(name)
		if err == nil {
			err = unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr)
		}
		switch {
		case err != nil:
			return unix.ENODEV
		case ifr.Uint16()&unix.IFF_UP == 0 || !Carrier(fd, name):
			return unix.ENETDOWN
		}
		return 0
	})
	return errno
}

// Ask calls f, which asks the kernel about an interface by name, with the name that the
// interface has: once more if it was renamed meanwhile, for then the answer is none, or
// is about another.
func Ask(fd, index int, f func(name string) unix.Errno) unix.Errno {
	const renames = 4 // in a row, before the answer is taken as it is
	for range renames {
		name, errno := Name(fd, index)
		if errno != 0 {
			return errno
		}
		errno = f(name)
		if now, _ := Name(fd, index); now == name {
			return errno
		}
	}
	return 0 // the feature exists, and another program keeps changing it
}
