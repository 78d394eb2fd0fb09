// Package ethtool asks the drivers of Linux network interfaces for the data that ethtool(8) shows.
package ethtool

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ask sends a command, the first word of value, through any socket. The driver writes its answer to
// value.
func ask(fd int, name string, value []uint32) unix.Errno {
	ifr := struct { // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value[0])}
	copy(ifr.name[:], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr)))
	return errno
}

// Carrier returns false if the driver of an interface says that the link is down, and true if the link
// is up or the driver does not know. The kernel's flag IFF_RUNNING changes up to a second later. fd is
// any socket of the interface's network namespace.
func Carrier(fd int, name string) bool {
	const getLink = 0x0A
	value := []uint32{getLink, 0}
	return ask(fd, name, value) != 0 || value[1] != 0
}

// Speed returns the speed of the link in Mb/s, or 0 if it is unknown, for instance because the link
// is down.
func Speed(fd int, name string) int {
	const getSettings = 0x01
	value := [11]uint32{getSettings} // struct ethtool_cmd
	if ask(fd, name, value[:]) != 0 {
		return 0
	}
	// The two halves of the speed are 16-bit fields at bytes 12 and 28.
	half := func(i int) uint32 {
		var b [4]byte
		binary.NativeEndian.PutUint32(b[:], value[i])
		return uint32(binary.NativeEndian.Uint16(b[:]))
	}
	const unknown = 0xFFFFFFFF
	if s := half(7)<<16 | half(3); s != unknown {
		return int(s)
	}
	return 0
}

// Channels counts the queues of an interface.
type Channels struct {
	RX, TX int // in use, for receiving and for sending
	MostRX int // the maximum for receiving
}

// Queues returns how many queues an interface has; all are 0 if the driver does not tell.
func Queues(fd int, name string) Channels {
	const getChannels = 0x3C
	// struct ethtool_channels: command, then rx, tx, other and combined twice: the maximum, and in use.
	value := [9]uint32{getChannels}
	if ask(fd, name, value[:]) != 0 {
		return Channels{}
	}
	return Channels{RX: int(value[5] + value[8]), TX: int(value[6] + value[8]), MostRX: int(value[1] + value[4])}
}

// RXRing returns the number of descriptors in each receive ring of the card; 0 if the driver does not tell.
func RXRing(fd int, name string) int {
	const getRings = 0x10
	value := [9]uint32{getRings} // struct ethtool_ringparam: command, then rx, rx_mini, rx_jumbo and tx twice: the maximum, and in use
	if ask(fd, name, value[:]) != 0 {
		return 0
	}
	return int(value[5])
}

// Driver returns the name of the driver, or an empty string if the driver does not tell.
func Driver(fd int, name string) string {
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, name)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(info.Driver[:])
}

// DisableOffloads disables the segmentation, merging and checksum offloads of an interface in the
// network namespace of the calling thread, as "ethtool -K NAME tso off gso off gro off sg off tx off
// rx off" does.
func DisableOffloads(name string) error {
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
		if errno := ask(fd, name, []uint32{command, 0}); errno != 0 && errno != unix.EOPNOTSUPP {
			return fmt.Errorf("ethtool command %#x of %s: %w", command, name, errno)
		}
	}
	return nil
}
