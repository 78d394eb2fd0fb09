package raw

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtool asks the interface's driver: value begins with the command and takes
// the answer. It reports whether there was one.
func (p *Port) ethtool(value []uint32) bool {
	ifr := struct { // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value[0])}
	copy(ifr.name[:], p.info.Interface)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(p.fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr)))
	return errno == 0
}

// carrier asks the driver whether there is a link; IFF_RUNNING says so too, but
// up to a second later. Drivers that do not know count as having one.
func (p *Port) carrier() bool {
	const getLink = 0x0A
	value := []uint32{getLink, 0}
	return !p.ethtool(value) || value[1] != 0
}

// speed asks for the speed of the link in Mb/s; 0: unknown, for instance because
// it is down.
func (p *Port) speed() int {
	const getSettings = 0x01
	value := [11]uint32{getSettings} // struct ethtool_cmd
	if !p.ethtool(value[:]) {
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
