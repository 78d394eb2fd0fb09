package ethtool

import "golang.org/x/sys/unix"

// Name returns the present name of an interface, which may be renamed at any time. fd is any socket of the
// interface's network namespace. The error is ENODEV if the interface no longer exists.
func Name(fd, index int) (string, unix.Errno) {
	// struct ifreq holds the index where it would hold an address.
	ifr, _ := unix.NewIfreq("")
	ifr.SetUint32(uint32(index))
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFNAME, ifr); err != nil {
		return "", unix.ENODEV
	}
	return ifr.Name(), 0
}

// State returns 0 if an interface is up and has a carrier, ENETDOWN if not, and ENODEV if it was
// removed or is in another namespace.
func State(fd, index int) unix.Errno {
	return Ask(fd, index, func(name string) unix.Errno {
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
}

// Ask calls f with the present name of an interface. f asks the kernel about it by that name. If the
// interface was renamed meanwhile, the answer may be about another one, and Ask calls f again.
func Ask(fd, index int, f func(name string) unix.Errno) unix.Errno {
	const renames = 4 // in a row, before Ask gives up
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
	return 0 // a name exists, and another program keeps changing it
}
