// Package ethtool asks the drivers of Linux network interfaces what
// ethtool(8) shows.
package ethtool

import (
	"bytes"
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ask sends a command, the first word of value, through any socket. The answer
// comes in value. It reports whether there was one.
func ask(fd int, name string, value []uint32) bool {
	ifr := struct { // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value[0])}
	copy(ifr.name[:], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr)))
	return errno == 0
}

// Carrier asks the driver of an interface whether there is a link; IFF_RUNNING
// says so too, but up to a second later. Drivers that do not know count as
// having one. fd is any socket of the interface's network namespace.
func Carrier(fd int, name string) bool {
	const getLink = 0x0A
	value := []uint32{getLink, 0}
	return !ask(fd, name, value) || value[1] != 0
}

// Speed asks for the speed of the link in Mb/s; 0: unknown, for instance because
// it is down.
func Speed(fd int, name string) int {
	const getSettings = 0x01
	value := [11]uint32{getSettings} // struct ethtool_cmd
	if !ask(fd, name, value[:]) {
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

// Queues asks how many queues are in use for receiving and for sending; 0: the
// driver does not say.
func Queues(fd int, name string) (rx, tx int) {
	const getChannels = 0x3C
	// struct ethtool_channels: command, four limits, then rx, tx, other and
	// combined in use.
	value := [9]uint32{getChannels}
	if !ask(fd, name, value[:]) {
		return 0, 0
	}
	return int(value[5] + value[8]), int(value[6] + value[8])
}

// Driver asks for the name of the driver; empty if it does not say.
func Driver(fd int, name string) string {
	const (
		getDriver = 0x03
		driver    = 1      // word of struct ethtool_drvinfo: behind the command,
		words     = 32 / 4 // 32 bytes
	)
	value := [49]uint32{getDriver}
	if !ask(fd, name, value[:]) {
		return ""
	}
	var b []byte
	for _, w := range value[driver : driver+words] {
		b = binary.NativeEndian.AppendUint32(b, w)
	}
	before, _, _ := bytes.Cut(b, []byte{0})
	return string(before)
}
