//go:build linux

package lab

import (
	"context"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// noOffloads switches off what an interface does, or spares itself, for whole
// bunches of packets, as "ethtool -K tx off rx off sg off tso off gso off gro off".
func noOffloads(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, command := range []uint32{ // of linux/ethtool.h
		0x1F, // ETHTOOL_STSO
		0x24, // ETHTOOL_SGSO
		0x2C, // ETHTOOL_SGRO
		0x19, // ETHTOOL_SSG
		0x17, // ETHTOOL_STXCSUM
		0x15, // ETHTOOL_SRXCSUM
	} {
		value := [2]uint32{command, 0}
		ifr := struct { // struct ifreq
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}{data: unsafe.Pointer(&value[0])}
		copy(ifr.name[:], name)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr)))
		if errno != 0 && errno != unix.EOPNOTSUPP {
			return fmt.Errorf("ethtool command %#x of %s: %w", command, name, errno)
		}
	}
	return nil
}

// pause waits a moment.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(2 * time.Millisecond):
		return nil
	}
}
